//! `stead gluster`: the objects and the state of a pool.

#[cfg(target_os = "linux")]
mod agent;
mod check;
mod copy_agent;
mod manifests;
mod status;
mod topology;

use crate::args::{GlusterArgs, GlusterCommand};
use crate::output::Outcome;

pub(crate) fn run(args: GlusterArgs) -> anyhow::Result<Outcome> {
    match args.command {
        GlusterCommand::Manifests(args) => manifests::run(*args),
        GlusterCommand::Status(args) => status::run(&args),
        #[cfg(target_os = "linux")]
        GlusterCommand::Agent(args) => agent::run(*args),
        #[cfg(not(target_os = "linux"))]
        GlusterCommand::Agent(_) => Err(anyhow::anyhow!("the agent of a pool runs on Linux only")),
        GlusterCommand::CopyAgent(args) => copy_agent::run(&args),
    }
}
