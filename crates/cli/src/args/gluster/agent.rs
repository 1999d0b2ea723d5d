//! The command line of `stead gluster agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::args::LogFormat;
use crate::connect::ConnectArgs;

/// Look after one pod of a Gluster pool, as its first process.
///
/// Gives the pod its identity back if its state was lost, keeps glusterd running, and tells on HTTP how the pod is. One
/// agent of the pool decides for all: it probes who is missing, has those cured that are rejected, and detaches who has
/// left for good. Runs until it is told to end (SIGTERM or SIGINT); glusterd and its bricks end with it.
#[derive(Debug, Args)]
pub(crate) struct GlusterAgentArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// The pool: the name of its StatefulSet
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: String,

    /// The headless Service of the StatefulSet
    #[arg(long, value_name = "NAME")]
    pub(crate) service: String,

    /// The domain of the cluster's own names
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,

    /// The namespace, if not the one that this runs in
    #[arg(short, long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// The pod's name
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: String,

    /// The pod's uid
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub(crate) pod_uid: String,

    /// The pod's address
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub(crate) pod_ip: String,

    /// Where /livez, /readyz, /state, /pool, /metrics and /prestop are; the pool's other agents use the same port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:24080")]
    pub(crate) listen: SocketAddr,

    /// glusterd's state
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/glusterd")]
    pub(crate) state_dir: PathBuf,

    /// What runs glusterd in the foreground: a program and its arguments, separated by spaces
    #[arg(long, value_name = "COMMAND", default_value = "glusterd --no-daemon --log-file=- --log-level=WARNING")]
    pub(crate) glusterd_command: String,

    /// The program that talks to glusterd
    #[arg(long, value_name = "PROGRAM", default_value = "gluster")]
    pub(crate) gluster_program: String,

    /// How many seconds a pod that leaves for good waits to be detached; less than its grace period
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) leave_seconds: u64,

    /// How the log is written
    #[arg(long, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// From which level on: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,
}
