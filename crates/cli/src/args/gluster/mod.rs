//! The command line of what concerns Gluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

mod agent;
mod manifests;
mod status;
mod values;

pub(crate) use agent::GlusterAgentArgs;
pub(crate) use manifests::GlusterManifestsArgs;
pub(crate) use status::{GlusterStatusArgs, StatusFormat};
pub(crate) use values::PoolValues;

/// Run a Gluster pool as a StatefulSet whose peers come back as themselves.
///
/// The pool belongs to its pods: there is no operator and no definition. `manifests` prints all that it needs, `status`
/// says how it stands.
#[derive(Debug, Args)]
pub(crate) struct GlusterArgs {
    #[command(subcommand)]
    pub(crate) command: GlusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GlusterCommand {
    Manifests(Box<GlusterManifestsArgs>),
    Status(GlusterStatusArgs),
    Agent(Box<GlusterAgentArgs>),
    CopyAgent(CopyAgentArgs),
}

/// Copy this program to a file.
///
/// What the pods' init container does, so that an image that knows nothing of Stead can run it.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct CopyAgentArgs {
    /// The file to make
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}
