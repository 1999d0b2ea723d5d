//! The command line of `stead gluster`.

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

/// Run a GlusterFS storage pool as a StatefulSet that repairs itself
///
/// Examples:
///   Create a pool:
///     stead gluster manifests --image registry.example/gluster:11.1 | kubectl apply -f -
///
///   Show its state:
///     stead gluster status
///
///   Scale it:
///     kubectl scale statefulsets glusterfs --replicas=5
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
The pool needs no operator and no CRD. Each pod runs an agent that starts glusterd, restores the identity of a peer that lost \
its state, and repairs the pool."
)]
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
/// The init container runs it, so that the agent can run in an image that does not contain Stead.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct CopyAgentArgs {
    /// File to create
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}
