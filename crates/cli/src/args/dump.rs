//! The command line of `stead dump`.

use std::path::PathBuf;

use clap::Args;

use super::DumpLimitArgs;
use crate::connect::ConnectArgs;

/// Write everything that --from needs into one file
///
/// Examples:
///   A dump of the cluster:
///     stead dump -o dump.json.gz
///     stead explain -A --from dump.json.gz
///
///   A dump that can be shared, with all names replaced:
///     stead dump --redact -o dump.json.gz
///
///   The same from a must-gather:
///     stead dump --from must-gather.tar.gz --redact -o dump.json.gz
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
What is collected:
  Nodes, pods, claims, volumes, workloads, events, leases and everything else that `stead explain`, `place` and `recover` look \
at, from all namespaces; ControllerRevisions, EndpointSlices, CronJobs, quotas; OpenStack's resources; OpenShift's settings of \
the controllers and the scheduler. What may not be listed is left out, and named at the end.

What is never collected:
  Secrets and ConfigMaps are not read. Values of environment variables, commands, arguments, configuration files of \
OpenStack's resources and the last applied configuration are removed, except for the timing flags of kube-controller-manager \
and kube-scheduler.

Format:
  JSON documents, one list of a kind per line, compressed if the name ends in .gz. docs/DUMP.md describes it.

With --redact:
  Names of objects, namespaces, nodes and hosts, values of labels, images, addresses, storage handles and most annotations are \
replaced, the same name always by the same word. The order of names, ordinals (web-0) and what refers to what are kept, so \
that answers are the same apart from names. Reasons, well-known labels and drivers are kept. Look at the file before you share it."
)]
pub(crate) struct DumpArgs {
    /// File to write; - for standard output [default: standard output, unless it is a terminal]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,

    /// Replace names, so that the dump can be shared
    #[arg(long)]
    pub(crate) redact: bool,

    /// Read another dump instead of the live cluster, to redact it or to make one file of several
    #[arg(long, value_name = "PATH", conflicts_with_all = ["context", "kubeconfig"])]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}
