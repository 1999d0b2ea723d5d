//! The command line of `stead operator`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::connect::ConnectArgs;

/// Look after Topologies, Glance and the control plane of a cluster.
///
/// Runs until it is told to end (SIGTERM or SIGINT): it then finishes what it is writing and lets the next one lead.
/// Several may run: one leads, the others stand by. A kind whose definition belongs to somebody else is watched and
/// never written.
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// The namespace of the Lease by which one leads, if not the one that this runs in
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// What a Topology without an affinity of its own does to the default one: keep it, or replace it with nothing,
    /// as the released OpenStack operators do
    #[arg(long, value_enum, default_value_t = AntiAffinity::Keep, value_name = "WHAT")]
    pub(crate) default_anti_affinity: AntiAffinity,

    /// The image of a Glance that names none; without it, such a Glance says so in its conditions
    #[arg(long, value_name = "IMAGE", env = "RELATED_IMAGE_GLANCE_API_IMAGE_URL_DEFAULT", default_value = "")]
    pub(crate) glance_image: String,

    /// The domain of the cluster's own names
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,

    /// Whether to lead only with the Lease in hand; without it, nobody else may run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,

    /// Where /healthz, /readyz and /metrics are
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub(crate) listen: SocketAddr,

    /// How many objects are worked on at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) workers: u8,

    /// How the log is written
    #[arg(long, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// From which level on: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,

    /// After how many seconds a watch is begun anew
    #[arg(long, value_name = "SECONDS", default_value_t = 290, hide = true,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) watch_timeout: u64,
}

/// What becomes of the default anti-affinity where a Topology brings no affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AntiAffinity {
    /// It stays
    Keep,
    /// It goes
    Replace,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Human,
    /// A JSON object a line
    Json,
}
