//! The command line of `stead gluster status`.

use clap::{Args, ValueEnum};

use crate::connect::ConnectArgs;

/// Show the state of a pool: peers, connections, bricks, heals and repairs
///
/// Examples:
///   The only pool of a namespace:
///     stead gluster status -n storage
///
///   A pool by the name of its StatefulSet, as JSON:
///     stead gluster status glusterfs -n storage -o json
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Reads the StatefulSet, its pods, the pool record, the Lease and events, and asks each agent through the API server how it sees \
every other peer. Disagreements are marked with `!`. Nothing is changed.

Exit codes:
  0  the pool is healthy: each peer answers and sees each other peer connected, no heal is pending, nothing is being repaired
  1  the pool is not healthy, or an error occurred
  2  the command line is wrong"
)]
pub(crate) struct GlusterStatusArgs {
    /// Name of the pool's StatefulSet; not needed if the namespace has one pool
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Namespace of the pool [default: the namespace of the kubeconfig context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = StatusFormat::Table, value_name = "FORMAT")]
    pub(crate) output: StatusFormat,
}

/// How a status is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Text for people
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
