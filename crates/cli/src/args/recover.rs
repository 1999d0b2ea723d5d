//! The command line of `stead recover`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use crate::args::ConsentArgs;
use crate::connect::ConnectArgs;

/// Free the pods and volumes of a machine that is off, in the safe order, with proof.
///
/// Shows a plan first: which pods and volumes, where each would go, what is left alone and why. Then, if the machine is
/// known to be off, it puts Kubernetes' out-of-service taint on the node, waits until pods are collected and volumes are
/// detached, and follows each pod until its successor is ready. Every step is written down in a NodeRecovery object.
///
/// A node that is Ready, or whose Lease is fresh, is refused whatever one says. Otherwise it takes your word
/// (--confirm-off), or evidence of a kind that a policy accepts. YOUR WORD HAS TO BE TRUE: if the machine still runs, it
/// may go on writing to a volume that another pod has by then.
///
/// If --timeout passes, what was begun stays. Called again, it goes on where it was: after it was killed, and when the node is back, to take the taint away. That
/// happens only when nothing of the node's old life can write any more.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("deed").args(["list", "status", "abort"]),
    after_long_help = "\
A policy is a file such as
  accept: [Person, CloudShutdown]   # Person, CloudShutdown, BootIdChanged
  atOnce: 2                         # nodes at a time
  atOncePerZone: 1
  allowPending: false
  includeTolerating: false

Exit codes:
  0  done, or there is nothing left to do for now
  1  refused, stopped or failed; the last line says why
  2  the command line is wrong"
)]
pub(crate) struct RecoverArgs {
    /// The node: node/NAME
    #[arg(value_name = "node/NAME", required_unless_present = "list")]
    pub(crate) target: Option<String>,

    /// Your word that the machine is off, and how you know it; written down with your name and the time
    #[arg(long, value_name = "REASON", conflicts_with = "deed")]
    pub(crate) confirm_off: Option<String>,

    /// A file that says which evidence is accepted and how much may be done at once
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Take pods along that are being deleted already though their successors would find no place for now
    #[arg(long, conflicts_with = "deed")]
    pub(crate) allow_pending: bool,

    /// Take pods along that tolerate the out-of-service taint
    #[arg(long, conflicts_with = "deed")]
    pub(crate) include_tolerating: bool,

    /// List all recoveries
    #[arg(long, conflicts_with = "target")]
    pub(crate) list: bool,

    /// Show how the node's recovery stands
    #[arg(long)]
    pub(crate) status: bool,

    /// End the recovery and undo it, as long as no pod was collected
    #[arg(long)]
    pub(crate) abort: bool,

    /// Stay until the node is back and the taint is gone
    #[arg(long, conflicts_with = "deed")]
    pub(crate) wait_return: bool,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// How to print the plan, the list or the status
    #[arg(short, long, value_enum, default_value_t = RecoverFormat::Table, value_name = "FORMAT")]
    pub(crate) output: RecoverFormat,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How a recovery is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecoverFormat {
    /// For people
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
