//! The command line of `stead recover`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use jiff::Timestamp;

use crate::args::timers::timestamp;
use crate::args::{ConsentArgs, ControlPlaneArgs, DumpLimitArgs};
use crate::complete;
use crate::connect::ConnectArgs;

/// Move pods and volumes off a node whose machine is off
///
/// Examples:
///   Show the plan, without changing anything:
///     stead recover node/worker-0 --dry-run
///
///   Recover, after you made sure that the machine is powered off:
///     stead recover node/worker-0 --confirm-off 'powered off in the console, ticket 4711'
///
///   When the machine is back: remove the taint as soon as that is safe
///     stead recover node/worker-0 --wait-return
///
///   Show the plan from a dump, without access to the cluster:
///     stead recover node/worker-0 --from dump.json.gz
///
///   List all recoveries:
///     stead recover --list
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    group = ArgGroup::new("mode").args(["list", "status", "abort"]),
    after_long_help = "\
WARNING: what you confirm with --confirm-off must be true. If the machine still runs, it may keep writing to a volume that \
another pod already uses.

What it does:
  1. Shows a plan: which pods and volumes are released, where each pod would go and when, what is left alone and why.
  2. Records the plan and the evidence in a NodeRecovery object.
  3. Applies the taint node.kubernetes.io/out-of-service to the node. Kubernetes then deletes the pods and detaches the volumes.
  4. Follows each pod until its replacement is Ready.
  5. Removes the taint when the node is back and nothing from before the outage can write any more.

A node that is Ready or whose Lease is fresh is always refused. Otherwise recovery needs --confirm-off, or evidence of a type \
that the policy accepts.

Some storage drivers do not stop a machine from writing when they detach a volume (docs/RECOVER-REFERENCE.md has a table). \
If such a volume is involved, a suspended machine does not count as off: add --powered-off, or type it when you are asked.

A recovery that was interrupted or timed out is not undone: run the same command again, and it continues where it stopped.

A policy is a file such as:
  accept: [Person, CloudShutdown]   # accepted evidence: Person, CloudShutdown, BootIdChanged
  atOnce: 2                         # nodes that are recovered at the same time
  atOncePerZone: 1
  allowPending: false
  includeTolerating: false
  detachRevokes: []                 # further storage drivers whose detach revokes access

Exit codes:
  0  done, or nothing left to do for now
  1  refused, stopped or failed; the last line says why
  2  the command line is wrong"
)]
pub(crate) struct RecoverArgs {
    /// Node to recover
    #[arg(value_name = "node/NAME", required_unless_present = "list", add = complete::nodes())]
    pub(crate) target: Option<String>,

    /// Confirm that the machine is off, and say how you know; recorded with your user name and the time
    #[arg(long, value_name = "REASON", conflicts_with = "mode")]
    pub(crate) confirm_off: Option<String>,

    /// State that the machine is powered off, not only suspended; needed for volumes whose driver does not revoke access when
    /// it detaches them
    #[arg(long, requires = "confirm_off", conflicts_with = "mode")]
    pub(crate) powered_off: bool,

    /// File that says which evidence is accepted and how many nodes may be recovered at once
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Include Terminating pods whose replacements no node can run at present
    #[arg(long, conflicts_with = "mode")]
    pub(crate) allow_pending: bool,

    /// Include pods that tolerate the out-of-service taint
    #[arg(long, conflicts_with = "mode")]
    pub(crate) include_tolerating: bool,

    /// List all recoveries
    #[arg(long, conflicts_with = "target")]
    pub(crate) list: bool,

    /// Show the state of the node's recovery
    #[arg(long)]
    pub(crate) status: bool,

    /// Abort the recovery and undo it; possible until the first pod is deleted or the first volume detached
    #[arg(long)]
    pub(crate) abort: bool,

    /// Wait until the node is back and the taint is removed
    #[arg(long, conflicts_with = "mode")]
    pub(crate) wait_return: bool,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// Show the plan from a dump instead of the live cluster, without changing anything: a file, folder or archive as for
    /// `stead explain --from`
    #[arg(long, value_name = "PATH", requires = "target", conflicts_with_all = [
        "mode", "confirm_off", "wait_return", "yes", "context", "kubeconfig",
    ])]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    /// Time of the plan, with --from [default: the time of the dump]
    #[arg(long, value_name = "RFC3339", value_parser = timestamp, requires = "from")]
    pub(crate) now: Option<Timestamp>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = RecoverFormat::Table, value_name = "FORMAT")]
    pub(crate) output: RecoverFormat,

    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How a recovery is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecoverFormat {
    /// Text for people
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
