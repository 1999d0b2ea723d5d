//! The timeouts of a control plane.

use std::time::Duration;

/// The waiting times of a control plane, and how exact its forecasts have to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Whether it is the one with fast timers.
    pub fast: bool,
    /// A node may be silent so long.
    grace: u64,
    /// Its pods tolerate so long that it is.
    pub tolerance: u64,
    /// A volume that is still mounted on it is detached after so long.
    detach: u64,
    /// So often a node renews its lease.
    pub heartbeat: u64,
    /// So far off a forecast may be.
    pub limit: Duration,
}

/// The pod collector looks so often, and has lost nodes in quarantine for so long.
const COLLECTOR: (u64, u64) = (20, 40);

impl Waits {
    /// Those of the test bed's fast control plane.
    pub const FAST: Waits =
        Waits { fast: true, grace: 8, tolerance: 30, detach: 36, heartbeat: 1, limit: Duration::from_secs(3) };

    /// Kubernetes' own.
    pub const REAL: Waits =
        Waits { fast: false, grace: 50, tolerance: 300, detach: 360, heartbeat: 10, limit: Duration::from_secs(10) };

    /// What `stead explain` has to be told. The nodes here say at once how their pods are and which volumes they have
    /// unmounted, and the pods end when they are told to.
    pub(super) fn flags(&self) -> Vec<String> {
        let own =
            ["--node-status-period", "0s", "--kubelet-return", "300ms", "--pod-stop", "300ms", "--pod-start", "500ms"];
        let fast =
            ["--node-monitor-grace-period", "8s", "--node-monitor-period", "500ms", "--force-detach-after", "36s"];
        own.iter().chain(fast.iter().filter(|_| self.fast)).map(|flag| (*flag).to_owned()).collect()
    }

    /// From when on a node's lease has run out, so that it is known to be silent.
    pub(super) fn silent(&self) -> Duration {
        Duration::from_secs(4 * self.heartbeat + 1)
    }

    /// Two nodes that fall silent so far apart are found so one after the other.
    pub(super) fn apart(&self) -> Duration {
        Duration::from_secs(if self.fast { 3 } else { 12 })
    }

    /// A moment after a node fell silent, from the first at which that is known to one when its pods were evicted long
    /// ago: this part of the time in between.
    pub(super) fn moment(&self, part: f64) -> Duration {
        let last = Duration::from_secs(self.grace + self.tolerance + self.tolerance / 2);
        self.silent() + (last - self.silent()).mul_f64(part)
    }

    /// A part of the time that a volume stays on a node after its pod was deleted by force; something happens only then.
    pub(super) fn held(&self, part: f64) -> Duration {
        Duration::from_secs(self.detach - 5).mul_f64(part)
    }

    /// A part of the time that the pods of a deleted node are there at least.
    pub(super) fn orphaned(&self, part: f64) -> Duration {
        Duration::from_secs(COLLECTOR.1 - 4).mul_f64(part)
    }

    /// What has not happened by then never does: all waiting times one after the other, and a margin.
    pub(super) fn horizon(&self) -> Duration {
        let margin = 20;
        Duration::from_secs(self.grace + self.tolerance + self.detach + COLLECTOR.1 + 2 * COLLECTOR.0 + margin)
    }
}
