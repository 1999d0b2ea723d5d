//! The command line of `stead gluster agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::args::LogFormat;
use crate::connect::ConnectArgs;

/// Run the agent in a pod of a pool; the printed manifests start it
///
/// Example, as in the printed StatefulSet:
///   stead gluster agent --pool glusterfs --service glusterfs
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
The agent is the first process of the container. It restores the identity of a peer that lost its state, keeps glusterd \
running, and reports the peer's state over HTTP. One agent is the leader: it probes missing peers, repairs rejected ones, and \
detaches peers that were scaled away. On SIGTERM or SIGINT it stops glusterd and the bricks, and ends; a pod \
that was scaled away first waits to be detached."
)]
pub(crate) struct GlusterAgentArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// Name of the pool's StatefulSet
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: String,

    /// Headless Service of the StatefulSet
    #[arg(long, value_name = "NAME")]
    pub(crate) service: String,

    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,

    /// Namespace of the pool [default: the pod's]
    #[arg(short, long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Name of this pod
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) pod_name: String,

    /// UID of this pod
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub(crate) pod_uid: String,

    /// IP address of this pod
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub(crate) pod_ip: String,

    /// Address of /livez, /readyz, /state, /pool and /metrics; all agents of a pool use the same port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:24080")]
    pub(crate) listen: SocketAddr,

    /// State directory of glusterd
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/glusterd")]
    pub(crate) state_dir: PathBuf,

    /// Command that runs glusterd in the foreground: a program and its arguments, separated by spaces
    #[arg(long, value_name = "COMMAND", default_value = "glusterd --no-daemon --log-file=- --log-level=WARNING")]
    pub(crate) glusterd_command: String,

    /// Command line client of glusterd
    #[arg(long, value_name = "PROGRAM", default_value = "gluster")]
    pub(crate) gluster_program: String,

    /// Secret with the key that the pool's agents sign requests and answers with; without it nothing is signed
    #[arg(long, value_name = "NAME")]
    pub(crate) key_secret: Option<String>,

    /// Seconds that a pod which was scaled away waits to be detached; less than its termination grace period
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) leave_seconds: u64,

    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,
}
