//! Whether a node must be considered alive.

use std::fmt;

use jiff::Timestamp;
use stead_model::{LeaseView, NODE_LEASES, NodeHealth, Readiness};

use crate::guard::{Guard, Guards};

/// Why a node must be considered alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignOfLife {
    node: String,
    sign: Sign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sign {
    /// Its kubelet reports that it is ready.
    Ready,
    /// Its kubelet reports that it is not ready.
    NotReady,
    /// Its Lease is fresh.
    Lease(LeaseView),
    /// There was a heartbeat since the evidence was found.
    SinceEvidence,
}

impl SignOfLife {
    /// A sign that the node is alive now.
    pub(crate) fn of(node: &NodeHealth<'_>, now: Timestamp, guards: Guards) -> Option<SignOfLife> {
        let reported = |readiness: Readiness| node.readiness == readiness && guards.hold(Guard::Unreachable);
        let fresh = node.lease.filter(|lease| lease.is_fresh(now) && guards.hold(Guard::Lease));
        let sign = match fresh {
            _ if reported(Readiness::Ready) => Sign::Ready,
            Some(lease) => Sign::Lease(lease),
            None if reported(Readiness::NotReady) => Sign::NotReady,
            None => return None,
        };
        Some(SignOfLife { node: node.name().to_owned(), sign })
    }

    /// A sign of life at some time since the evidence was found.
    pub(crate) fn since_evidence(node: &NodeHealth<'_>) -> SignOfLife {
        SignOfLife { node: node.name().to_owned(), sign: Sign::SinceEvidence }
    }
}

impl fmt::Display for SignOfLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SignOfLife { node, sign } = self;
        match sign {
            Sign::Ready => write!(f, "node {node}: its condition Ready is True: its kubelet is alive"),
            Sign::NotReady => write!(
                f,
                "node {node}: its condition Ready is False, which its kubelet reports itself: its kubelet is alive; once it \
                 is unreachable, the node controller sets the condition to Unknown"
            ),
            Sign::Lease(lease) => write!(
                f,
                "node {node}: lease {NODE_LEASES}/{node} was renewed at {} for {} s: its kubelet is alive",
                lease.renewed,
                lease.duration.as_secs()
            ),
            Sign::SinceEvidence => write!(f, "node {node}: there was a heartbeat since this recovery was recorded"),
        }
    }
}

/// Whether a node is back: it is Ready, and its Lease is fresh.
pub(crate) fn is_back(node: &NodeHealth<'_>, now: Timestamp) -> bool {
    node.readiness == Readiness::Ready && node.lease_is_fresh(now)
}
