//! The flags of `stead explain` without an object.

use clap::Args;
use jiff::SignedDuration;
use stead_explain::triage::Thresholds;

use super::timers::duration;

/// What `stead explain` without an object lists, and from when on something counts as stuck.
#[derive(Debug, Args)]
#[command(next_help_heading = "Without an object: what is listed")]
pub(crate) struct TriageArgs {
    /// List what is stuck on this node or because of it
    #[arg(long, value_name = "NAME", conflicts_with = "targets")]
    pub(crate) node: Option<String>,

    /// List what is stuck on the nodes of this zone or because of them
    #[arg(long, value_name = "NAME", conflicts_with = "targets")]
    pub(crate) zone: Option<String>,

    /// Time after the grace period from which a Terminating object is stuck [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "targets")]
    terminating_after: Option<SignedDuration>,

    /// Time from which a pod that is ContainerCreating is stuck [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "targets")]
    creating_after: Option<SignedDuration>,

    /// Time from which a pod or node that is not ready is stuck [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "targets")]
    not_ready_after: Option<SignedDuration>,

    /// Exit with 0 even if something is stuck
    #[arg(long, conflicts_with = "targets")]
    pub(crate) exit_zero: bool,

    /// Read and list again every few seconds, until Ctrl-C
    #[arg(short = 'w', long, conflicts_with_all = ["targets", "from"])]
    pub(crate) watch: bool,
}

impl TriageArgs {
    /// The thresholds: the flags that were given, and the defaults.
    pub(crate) fn thresholds(&self) -> Thresholds {
        let own = Thresholds::default();
        Thresholds {
            terminating: self.terminating_after.unwrap_or(own.terminating),
            creating: self.creating_after.unwrap_or(own.creating),
            not_ready: self.not_ready_after.unwrap_or(own.not_ready),
        }
    }
}
