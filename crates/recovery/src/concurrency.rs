//! How many nodes are recovered at the same time.

use std::cmp::Ordering;

use stead_model::{NodeHealth, OUT_OF_SERVICE, Readiness};

use crate::annotation::{self, RecoveryAnnotation};
use crate::evidence::{self, MAX_EVIDENCE_AGE};
use crate::guard::Guard;
use crate::policy::RecoveryPolicy;
use crate::record::{EvidenceKind, LastContact, NodeIdentity, RecoveryPhase};
use crate::records::{RecordSummary, record_named};
use crate::sign_of_life::SignOfLife;
use crate::view::ClusterView;

/// Most nodes are not Ready: usually the cause is the network or the control plane, not the nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: {not_ready} of {nodes} nodes are not Ready: {}", self.reason())]
pub struct MostUnreachable {
    node: String,
    not_ready: usize,
    nodes: usize,
    /// The nodes without evidence of their own.
    unproven: Vec<String>,
}

impl MostUnreachable {
    fn reason(&self) -> String {
        let Some(first) = self.unproven.first().filter(|_| self.not_ready < self.nodes) else {
            return "the cause is the network or the control plane, or no node is left to recover to".into();
        };
        let more = self.unproven.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "when most nodes are unreachable, the cause is usually the network or the control plane; each of them needs its \
             own evidence that it is off, and {first}{more} has none: stead recover node/{first} --confirm-off \"REASON\""
        )
    }
}

/// An error while most nodes are not Ready, unless each of them has its own evidence that its machine is off.
pub(crate) fn check_most_unreachable(view: &ClusterView<'_>, policy: &RecoveryPolicy) -> Result<(), MostUnreachable> {
    let Some((lost, nodes)) = most_unreachable(view) else { return Ok(()) };
    let others = lost.iter().filter(|node| node.name() != view.node && !is_proven_off(view, node, policy));
    let unproven: Vec<String> = others.map(|node| node.name().to_owned()).collect();
    if lost.len() < nodes && unproven.is_empty() {
        return Ok(());
    }
    Err(MostUnreachable { node: view.node.to_owned(), not_ready: lost.len(), nodes, unproven })
}

/// The nodes that are not Ready, and the number of all nodes, if most are not Ready.
pub(crate) fn most_unreachable<'a>(view: &ClusterView<'a>) -> Option<(Vec<NodeHealth<'a>>, usize)> {
    let nodes = view.objects.keys("Node").count();
    let found = view.objects.nodes().map(|node| NodeHealth::new(node, view.objects.node_lease(node.name())));
    let lost: Vec<NodeHealth<'a>> = found.filter(|node| node.readiness != Readiness::Ready).collect();
    let most = lost.len() * 2 > nodes || lost.len() == nodes;
    (most && view.guards.hold(Guard::MostUnreachable)).then_some((lost, nodes))
}

/// Whether a node that is not Ready has its own evidence that its machine is off: accepted evidence for the whole machine
/// that was recorded for this boot, and no sign of life since; or the current report of its cloud.
fn is_proven_off(view: &ClusterView<'_>, node: &NodeHealth<'_>, policy: &RecoveryPolicy) -> bool {
    if SignOfLife::of(node, view.now, view.guards).is_some() {
        return false;
    }
    let accepted = |kind: EvidenceKind| policy.accept.contains(&kind);
    if accepted(EvidenceKind::CloudShutdown) && evidence::from_cloud(view, node).is_ok() {
        return true;
    }
    let identity = NodeIdentity::of(node);
    let Some(record) = record_named(view.objects, &identity.record_name()) else { return false };
    let same_boot = record.spec.node.uid == identity.uid && record.spec.node.boot_id == identity.boot_id;
    let in_progress = !record.status.phase.is_over() && record.spec.abort.is_none();
    if !same_boot || !in_progress || record.spec.last_contact != LastContact::of(node) {
        return false;
    }
    // A node that is out of service, and whose evidence was acted upon, stays so until there is a sign of life. The taint may
    // be somebody else's.
    let after_taint = record.status.phase.is_after_taint() && node.taint(OUT_OF_SERVICE).is_some();
    let acted_upon = after_taint || annotation::is_fenced_by(node, record.name());
    record.spec.evidence.last().is_some_and(|evidence| {
        let fresh = view.now.duration_since(evidence.statement.at) <= MAX_EVIDENCE_AGE;
        accepted(evidence.kind) && evidence.pods.is_none() && (acted_upon || fresh)
    })
}

/// As many other nodes as the policy allows are being recovered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: {}", self.reason())]
pub struct LimitReached {
    node: String,
    field: &'static str,
    limit: usize,
    others: Vec<String>,
}

impl LimitReached {
    /// The reason, without the name of the node.
    pub(crate) fn reason(&self) -> String {
        let LimitReached { field, limit, others, .. } = self;
        format!(
            "the policy's {field} is {limit}, and {} is being recovered: finish that recovery, or undo it with --abort",
            others.join(", ")
        )
    }
}

/// Whether a node may be recovered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Yes.
    Now,
    /// As soon as others have seen that they have to wait.
    Soon(LimitReached),
    /// No: others come first.
    Blocked(LimitReached),
}

/// Whether this node may be recovered now. Several callers may ask at once, each after it has written its record: of two, at
/// least one sees the other's record. A caller that sees no more records than the limit allows continues; of the others,
/// those whose names sort later give way, and their records say so.
pub(crate) fn turn(view: &ClusterView<'_>, zone: Option<&str>, record: Option<&str>, policy: &RecoveryPolicy) -> Turn {
    if !view.guards.hold(Guard::Limits) {
        return Turn::Now;
    }
    let mut others: Vec<RecordSummary> =
        RecordSummary::all(view.objects).filter(|record| is_in_progress(view, record)).collect();
    // A node counts once, by the record that has come farthest: a slow caller may have written one of an earlier boot.
    others.sort_by(|a, b| a.node().cmp(b.node()).then_with(|| farthest_first(a, b)));
    others.dedup_by(|a, b| a.node() == b.node());
    let all: Vec<&RecordSummary> = others.iter().collect();
    let in_zone: Vec<&RecordSummary> = others.iter().filter(|other| zone.is_some() && other.zone() == zone).collect();
    let everywhere = limited(view, &all, policy.at_once, record, "atOnce");
    match (everywhere, limited(view, &in_zone, policy.at_once_per_zone, record, "atOncePerZone")) {
        (Turn::Blocked(reached), _) | (_, Turn::Blocked(reached)) => Turn::Blocked(reached),
        (Turn::Soon(reached), _) | (_, Turn::Soon(reached)) => Turn::Soon(reached),
        (Turn::Now, Turn::Now) => Turn::Now,
    }
}

fn farthest_first(a: &RecordSummary, b: &RecordSummary) -> Ordering {
    is_planned(a).cmp(&is_planned(b))
}

fn limited(
    view: &ClusterView<'_>,
    others: &[&RecordSummary],
    limit: usize,
    record: Option<&str>,
    field: &'static str,
) -> Turn {
    if others.len() < limit {
        return Turn::Now;
    }
    let names = others.iter().map(|other| other.node().to_owned()).collect();
    let reached = LimitReached { node: view.node.to_owned(), field, limit, others: names };
    let fenced = others.iter().filter(|other| !is_planned(other)).count();
    let ahead = others.iter().filter(|other| is_planned(other) && Some(other.name()) < record).count();
    if record.is_some() && ahead + fenced < limit { Turn::Soon(reached) } else { Turn::Blocked(reached) }
}

/// Whether a record is of another node that is being recovered, or may be at any moment. A node that is Ready and not
/// annotated does not count: whoever recovers it has to look again first, and sees what is written by then.
fn is_in_progress(view: &ClusterView<'_>, record: &RecordSummary) -> bool {
    let node = || view.objects.node_health(record.node()).ok().flatten();
    if record.node().is_empty() || record.node() == view.node {
        return false;
    }
    match record.phase() {
        Some(RecoveryPhase::Planned) => {
            node().is_some_and(|node| node.readiness != Readiness::Ready || RecoveryAnnotation::of(&node).is_some())
        }
        // After that a recovery waits for others, possibly for ever, and blocks nobody.
        Some(RecoveryPhase::Fenced) => true,
        _ => false,
    }
}

fn is_planned(record: &RecordSummary) -> bool {
    record.phase() == Some(RecoveryPhase::Planned)
}
