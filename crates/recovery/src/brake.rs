//! Not too many at once.

use serde_json::Value;
use stead_explain::outage::{NodeStanding, Readiness};
use stead_model::ObjectKey;

use crate::evidence::{CloudShutdown, MAX_EVIDENCE_AGE, Witness};
use crate::guard::Guard;
use crate::mark;
use crate::policy::Policy;
use crate::record::{EvidenceKind, Heard, NodeIdentity};
use crate::step::sign_of_life;
use crate::view::{Request, View, record_named, records};

/// Whether it is somebody's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is.
    Go,
    /// It will be, as soon as others have seen that they have to wait.
    Soon(String),
    /// It is not: others come first.
    Held(String),
}

/// Why nothing is done while most nodes are not Ready: as a rule that is the network or the control plane, not the nodes.
/// It is the nodes where each of them has its own proof that its machine is off.
pub(crate) fn too_many_unreachable(view: &View<'_>, policy: &Policy) -> Option<String> {
    let (lost, all) = most_unreachable(view)?;
    let summary = format!("node {}: {} of {all} nodes are not Ready", view.node, lost.len());
    if lost.len() == all {
        return Some(format!(
            "{summary}: the cause is the network or the control plane, or no node is left to recover to"
        ));
    }
    let others = lost.iter().filter(|node| node.name != view.node && !is_proven_off(view, node, policy));
    let unproven: Vec<&str> = others.map(|node| node.name.as_str()).collect();
    let first = unproven.first()?;
    let more = if unproven.len() > 1 { format!(" and {} more", unproven.len() - 1) } else { String::new() };
    Some(format!(
        "{summary}: when most nodes are unreachable, the cause is usually the network or the control plane; each of them \
         needs its own proof that it is off, and {first}{more} has none: stead recover node/{first} --confirm-off \"REASON\""
    ))
}

/// The nodes that are not Ready, and how many nodes there are, if most are not Ready.
pub(crate) fn most_unreachable(view: &View<'_>) -> Option<(Vec<NodeStanding>, usize)> {
    let nodes: Vec<&ObjectKey> = view.objects.keys("Node").collect();
    let found = nodes.iter().filter_map(|key| NodeStanding::find(view.objects, &key.name));
    let lost: Vec<NodeStanding> = found.filter(|node| node.readiness != Readiness::Ready).collect();
    let most = lost.len() * 2 > nodes.len() || lost.len() == nodes.len();
    (most && view.guards.hold(Guard::Most)).then_some((lost, nodes.len()))
}

/// Whether a node that is not Ready has its own proof that its machine is off: accepted evidence for all of the machine
/// that was recorded for this boot, and no sign of life since; or what its cloud says now.
fn is_proven_off(view: &View<'_>, node: &NodeStanding, policy: &Policy) -> bool {
    if sign_of_life(node, view.now, view.guards).is_some() {
        return false;
    }
    let of_it = View { node: &node.name, ..view.clone() };
    let accepted = |kind: EvidenceKind| policy.accept.contains(&kind);
    if accepted(EvidenceKind::CloudShutdown) && CloudShutdown.evidence(&of_it, node, &Request::default()).is_ok() {
        return true;
    }
    let identity = NodeIdentity::of(node);
    let record = record_named(view.objects, &identity.record_name()).filter(|record| {
        let same_boot = record.spec.node.uid == identity.uid && record.spec.node.boot_id == identity.boot_id;
        same_boot && !record.status.phase.is_over() && record.spec.abort.is_none()
    });
    let Some(record) = record.filter(|record| record.spec.heard == Heard::of(node)) else { return false };
    // A node that is out of service by its evidence stays so until it is heard of.
    let acted_upon = mark::is_marked(node, record.name());
    record.spec.evidence.last().is_some_and(|evidence| {
        let fresh = view.now.duration_since(evidence.said.at) <= MAX_EVIDENCE_AGE;
        accepted(evidence.kind) && evidence.pods.is_none() && (acted_upon || fresh)
    })
}

/// Whether it is this node's turn. Several may ask at once, each having written its record down before: of two, at least
/// one sees the other's. Whoever sees no more than the limit allows goes; of the others, those whose names come later give
/// way, and are seen to do so.
pub(crate) fn turn(view: &View<'_>, zone: Option<&str>, record: Option<&str>, policy: &Policy) -> Turn {
    if !view.guards.hold(Guard::Brake) {
        return Turn::Go;
    }
    let mut others: Vec<&Value> = records(view.objects).filter(|r| is_under_way(view, r)).collect();
    // A node counts once, and by what has come farthest: somebody slow may have written a record of a former life of it.
    others.sort_by_key(|r| (r["spec"]["node"]["name"].as_str(), phase(r) == "Planned"));
    others.dedup_by_key(|r| r["spec"]["node"]["name"].as_str());
    let of_zone: Vec<&Value> =
        others.iter().copied().filter(|r| zone.is_some() && r["spec"]["node"]["zone"].as_str() == zone).collect();
    let everywhere = limited(&others, policy.at_once, record, "atOnce");
    match (everywhere, limited(&of_zone, policy.at_once_per_zone, record, "atOncePerZone")) {
        (Turn::Held(why), _) | (_, Turn::Held(why)) => Turn::Held(format!("node {}: {why}", view.node)),
        (Turn::Soon(why), _) | (_, Turn::Soon(why)) => Turn::Soon(why),
        (Turn::Go, Turn::Go) => Turn::Go,
    }
}

fn limited(others: &[&Value], limit: usize, record: Option<&str>, field: &str) -> Turn {
    if others.len() < limit {
        return Turn::Go;
    }
    let names: Vec<&str> = others.iter().filter_map(|r| r["spec"]["node"]["name"].as_str()).collect();
    let why = format!(
        "the policy's {field} is {limit}, and a recovery of {} is under way: finish it, or end it with --abort",
        names.join(", ")
    );
    let fenced = others.iter().filter(|r| phase(r) != "Planned").count();
    let before_us = |r: &&&Value| phase(r) == "Planned" && r["metadata"]["name"].as_str() < record;
    let ahead = others.iter().filter(before_us).count();
    if record.is_some() && ahead + fenced < limit { Turn::Soon(why) } else { Turn::Held(why) }
}

/// Whether a record is of another node that is being recovered, or may be at any moment. One whose node is well and has
/// nothing of it is not: it would have to look again before it does anything, and would see what is written by then.
fn is_under_way(view: &View<'_>, record: &Value) -> bool {
    let Some(name) = record["spec"]["node"]["name"].as_str().filter(|name| *name != view.node) else { return false };
    match phase(record) {
        "Planned" => NodeStanding::find(view.objects, name)
            .is_some_and(|node| node.readiness != Readiness::Ready || crate::mark::Mark::of(&node).is_some()),
        // One whose pods and volumes are free waits for others: that may take for ever, and holds nobody up.
        "Fenced" => true,
        _ => false,
    }
}

fn phase(record: &Value) -> &str {
    record["status"]["phase"].as_str().unwrap_or("Planned")
}
