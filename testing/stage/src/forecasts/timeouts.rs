//! The timeouts of a control plane, and the moments that are derived from them.

use std::time::Duration;

/// The timeouts of a control plane in seconds, and the required accuracy of forecasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timeouts {
    /// Whether it is the control plane with fast timers.
    pub fast: bool,
    /// A node without heartbeat is marked unreachable after this time.
    grace: u64,
    /// The default toleration of pods for an unreachable node.
    pub toleration: u64,
    /// A volume that is still mounted on an unreachable node is detached after this time.
    force_detach: u64,
    /// The interval at which a node renews its Lease.
    pub heartbeat: u64,
    /// The maximum error of a forecast.
    pub max_error: Duration,
}

/// The period of the pod garbage collector, and how long it waits before it deletes the pods of a deleted node.
const POD_GC: (u64, u64) = (20, 40);

impl Timeouts {
    /// The timeouts of the test bed's fast control plane.
    pub const FAST: Timeouts = Timeouts {
        fast: true,
        grace: 8,
        toleration: 30,
        force_detach: 36,
        heartbeat: 1,
        max_error: Duration::from_secs(3),
    };

    /// The timeouts of Kubernetes.
    pub const REAL: Timeouts = Timeouts {
        fast: false,
        grace: 50,
        toleration: 300,
        force_detach: 360,
        heartbeat: 10,
        max_error: Duration::from_secs(10),
    };

    /// Returns the flags that `stead explain` needs. The stand-in nodes report pod status and unmounted volumes at
    /// once, and the pods terminate without delay.
    pub(super) fn flags(&self) -> Vec<String> {
        let always =
            ["--node-status-period", "0s", "--kubelet-return", "300ms", "--pod-stop", "300ms", "--pod-start", "500ms"];
        let fast =
            ["--node-monitor-grace-period", "8s", "--node-monitor-period", "500ms", "--force-detach-after", "36s"];
        always.iter().chain(fast.iter().filter(|_| self.fast)).map(|flag| (*flag).to_owned()).collect()
    }

    /// Returns the time after which the Lease of a failed node has expired.
    pub(super) fn lease_expiry(&self) -> Duration {
        Duration::from_secs(4 * self.heartbeat + 1)
    }

    /// Returns the time between the failures of two nodes after which they are marked unreachable one after the other.
    pub(super) fn failure_gap(&self) -> Duration {
        Duration::from_secs(if self.fast { 3 } else { 12 })
    }

    /// Returns a moment after the failure of a node, as a fraction of the time from the expiry of its Lease until long
    /// after its pods were evicted.
    pub(super) fn after_failure(&self, fraction: f64) -> Duration {
        let last = Duration::from_secs(self.grace + self.toleration + self.toleration / 2);
        self.lease_expiry() + (last - self.lease_expiry()).mul_f64(fraction)
    }

    /// Returns a fraction of the time that a volume stays attached to a node after its pod was force-deleted.
    pub(super) fn before_force_detach(&self, fraction: f64) -> Duration {
        Duration::from_secs(self.force_detach - 5).mul_f64(fraction)
    }

    /// Returns a fraction of the minimum time that the pods of a deleted node remain.
    pub(super) fn before_pod_gc(&self, fraction: f64) -> Duration {
        Duration::from_secs(POD_GC.1 - 4).mul_f64(fraction)
    }

    /// Returns the time after which nothing happens any more: the sum of all timeouts, and a margin.
    pub(super) fn horizon(&self) -> Duration {
        let margin = 20;
        Duration::from_secs(self.grace + self.toleration + self.force_detach + POD_GC.1 + 2 * POD_GC.0 + margin)
    }
}
