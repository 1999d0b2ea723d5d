//! The command line of `stead operator`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::connect::ConnectArgs;

/// Run the operator for Topologies, Glance and the OpenStack control plane
///
/// Examples:
///   In a cluster, run it with `stead install`. From your machine, for a test:
///     stead operator --context test -n stead-system --listen 127.0.0.1:8080
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Several operators can run: one is the leader, the others stand by. On SIGTERM or SIGINT it finishes the writes in progress and \
gives up leadership. Kinds whose CRD belongs to someone else are watched and never written."
)]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// Namespace of the leader election Lease [default: the pod's, or that of the kubeconfig context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Watch and write only these namespaces
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', num_args = 1)]
    pub(crate) namespaces: Vec<String>,

    /// What happens to the default anti-affinity when a Topology has no affinity
    #[arg(long, value_enum, default_value_t = AntiAffinity::Keep, value_name = "MODE")]
    pub(crate) default_anti_affinity: AntiAffinity,

    /// Glance image for objects that do not name one; without it, their conditions report that it is missing
    #[arg(long, value_name = "IMAGE", env = "RELATED_IMAGE_GLANCE_API_IMAGE_URL_DEFAULT", default_value = "")]
    pub(crate) glance_image: String,

    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,

    /// Elect a leader with a Lease; with `false`, make sure that no other operator runs
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,

    /// Address of /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub(crate) listen: SocketAddr,

    /// Number of objects that are reconciled at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) workers: u8,

    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,

    /// Seconds after which a watch is restarted
    #[arg(long, value_name = "SECONDS", default_value_t = 290, hide = true,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) watch_timeout: u64,
}

/// What happens to the default anti-affinity when a Topology has no affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AntiAffinity {
    /// Keep it
    Keep,
    /// Remove it, as the released OpenStack operators do
    Replace,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    Human,
    /// One JSON object per line
    Json,
}
