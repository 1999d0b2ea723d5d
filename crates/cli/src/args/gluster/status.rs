//! The command line of `stead gluster status`.

use clap::{Args, ValueEnum};

use crate::connect::ConnectArgs;

/// Say how a pool stands: every peer as every other sees it.
///
/// Reads the StatefulSet, its pods, the record, the Lease and events, and asks every agent through the API server. What
/// does not agree is marked; what the agents do, and why, is said. Nothing is changed.
///
/// Exit code 0 if the pool is whole: every peer that is wanted answers and sees every other in the pool and connected,
/// nothing waits to be healed, and nothing is being repaired. Otherwise 1.
#[derive(Debug, Args)]
pub(crate) struct GlusterStatusArgs {
    /// The pool's StatefulSet; not needed where a namespace has one pool
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The namespace, if not the context's
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = StatusFormat::Table, value_name = "FORMAT")]
    pub(crate) output: StatusFormat,
}

/// How a status is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Tables and sentences for people
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
