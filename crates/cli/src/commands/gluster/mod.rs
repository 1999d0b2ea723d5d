//! `stead gluster`: the objects and the state of a pool.

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
        GlusterCommand::Agent(args) => agent::run(*args),
        GlusterCommand::CopyAgent(args) => copy_agent::run(&args),
    }
}
