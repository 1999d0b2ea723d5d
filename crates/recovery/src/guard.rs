//! The guards of a recovery: safety checks with names, so that a test can switch one off and show what it is for.
//!
//! Guards can be switched only with the feature `switchable-guards`. In a normal build every guard is on, and [`Guards`] has
//! no content.

/// A safety check of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "switchable-guards"), expect(unreachable_pub, reason = "only tests name guards from outside"))]
pub enum Guard {
    /// A node whose Lease is fresh is not touched.
    Lease,
    /// A node is not touched before the node controller has marked it as unreachable, whether it is Ready or not.
    Unreachable,
    /// A sign of life after the evidence makes the evidence void.
    SignOfLife,
    /// A confirmation that is older than the outage, has expired or was used before does not count.
    ConfirmationAge,
    /// A report of the cloud about an earlier outage, or one that has expired, does not count.
    CloudAge,
    /// Nothing is done without evidence.
    Evidence,
    /// Evidence for some pods is not evidence for others.
    Coverage,
    /// A recovery is recorded before anything is done.
    Record,
    /// The taint is only for the Node object with the recorded UID.
    Identity,
    /// The taint is only for the recorded boot of the machine.
    Boot,
    /// When most nodes are unreachable, each needs its own evidence.
    MostUnreachable,
    /// The policy limits how many nodes are recovered at the same time, also per zone.
    Limits,
    /// Nothing happens to a pod that is not in the plan.
    Plan,
    /// Pods that are left alone tolerate the taint before it is applied, and until every controller has seen its removal.
    Tolerations,
    /// A patch is refused if the object has changed.
    Version,
    /// A pod is deleted by its UID.
    Uid,
    /// Taints of others are not removed.
    Foreign,
    /// The taint is removed only when no released pod runs on the node any more.
    RunningPods,
    /// The taint is not removed while the node's kubelet has a released volume mounted.
    VolumesInUse,
    /// On storage that does not revoke access, a suspended machine does not count as off.
    PoweredOff,
    /// On such storage, pods are deleted before the taint is applied, so that no kubelet starts them again.
    Terminating,
    /// The end of a recovery changes the Node, so that a late taint is refused.
    EndAnnotation,
    /// A recovery is not undone after the point of no return.
    PointOfNoReturn,
}

#[cfg(feature = "switchable-guards")]
impl Guard {
    /// All guards.
    pub const ALL: [Guard; 23] = [
        Guard::Lease,
        Guard::Unreachable,
        Guard::SignOfLife,
        Guard::ConfirmationAge,
        Guard::CloudAge,
        Guard::Evidence,
        Guard::Coverage,
        Guard::Record,
        Guard::Identity,
        Guard::Boot,
        Guard::MostUnreachable,
        Guard::Limits,
        Guard::Plan,
        Guard::Tolerations,
        Guard::Version,
        Guard::Uid,
        Guard::Foreign,
        Guard::RunningPods,
        Guard::VolumesInUse,
        Guard::PoweredOff,
        Guard::Terminating,
        Guard::EndAnnotation,
        Guard::PointOfNoReturn,
    ];
}

/// The guards that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(feature = "switchable-guards"), expect(unreachable_pub, reason = "only tests name guards from outside"))]
pub struct Guards {
    #[cfg(feature = "switchable-guards")]
    without: Option<Guard>,
}

#[cfg(feature = "switchable-guards")]
impl Guards {
    /// All guards.
    pub const ALL: Guards = Guards { without: None };

    /// All guards except one.
    pub fn without(guard: Guard) -> Guards {
        Guards { without: Some(guard) }
    }

    /// Whether this guard is on.
    pub(crate) fn hold(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

#[cfg(not(feature = "switchable-guards"))]
impl Guards {
    /// Every guard is on.
    pub(crate) fn hold(self, _: Guard) -> bool {
        true
    }
}
