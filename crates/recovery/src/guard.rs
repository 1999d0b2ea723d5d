//! The guards of a recovery: safety checks, each with a name, so that a test can switch it off and see what it is for.
//!
//! Only with the feature `switchable-guards` is there anything to switch: in a normal build every guard holds, and
//! [`Guards`] has no content.

/// Something that a recovery never goes without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "switchable-guards"), expect(unreachable_pub, reason = "only tests name guards from outside"))]
pub enum Guard {
    /// A node whose Lease is fresh is not touched.
    Lease,
    /// A node that the node controller has not found silent is not touched, be it Ready or not.
    Silence,
    /// A sign of life after the evidence makes the evidence void.
    Heard,
    /// Words that are older than the silence, or were used up, do not count.
    Words,
    /// Nor does what the cloud has said of an earlier silence.
    Cloud,
    /// Nothing without evidence.
    Evidence,
    /// Evidence for some pods is not evidence for others.
    Covers,
    /// What is done is written down before.
    Record,
    /// Only this Node object.
    Identity,
    /// Only this life of the machine.
    Boot,
    /// Where most nodes are silent, it is not the nodes.
    Most,
    /// So many nodes at once, and of a zone.
    Brake,
    /// Nothing happens to a pod that is not in the plan.
    Plan,
    /// What is left alone is kept from the taint before the taint comes, and until it has gone for everybody.
    Shield,
    /// A patch is refused where the object has changed.
    Version,
    /// A pod is deleted by its identity.
    Uid,
    /// Other people's taints stay.
    Foreign,
    /// The taint goes only when nothing of the node's old life can write.
    Return,
    /// The taint stays while the node's kubelet still has a volume mounted that was released.
    InUse,
    /// On storage that does not revoke access, a suspended machine is not off.
    PoweredOff,
    /// On such storage, pods are Terminating before the taint comes, so that no kubelet starts them again.
    Terminating,
    /// Whoever comes late with the taint finds the Node changed.
    Bar,
    /// There is no way back after the point of no return.
    NoReturn,
}

#[cfg(feature = "switchable-guards")]
impl Guard {
    /// All of them.
    pub const ALL: [Guard; 23] = [
        Guard::Lease,
        Guard::Silence,
        Guard::Heard,
        Guard::Words,
        Guard::Cloud,
        Guard::Evidence,
        Guard::Covers,
        Guard::Record,
        Guard::Identity,
        Guard::Boot,
        Guard::Most,
        Guard::Brake,
        Guard::Plan,
        Guard::Shield,
        Guard::Version,
        Guard::Uid,
        Guard::Foreign,
        Guard::Return,
        Guard::InUse,
        Guard::PoweredOff,
        Guard::Terminating,
        Guard::Bar,
        Guard::NoReturn,
    ];
}

/// The guards that hold.
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

    /// All but one, to see what it is for.
    pub fn without(guard: Guard) -> Guards {
        Guards { without: Some(guard) }
    }

    /// Whether this guard holds.
    pub(crate) fn hold(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

#[cfg(not(feature = "switchable-guards"))]
impl Guards {
    /// Every guard holds.
    pub(crate) fn hold(self, _: Guard) -> bool {
        true
    }
}
