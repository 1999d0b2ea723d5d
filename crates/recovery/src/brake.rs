//! Not too many at once.

use serde_json::Value;
use stead_explain::outage::{NodeStanding, Readiness};

use crate::guard::Guard;
use crate::policy::Policy;
use crate::view::{View, records};

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

/// Why it is not the node that is at fault: most others are silent too.
pub(crate) fn most(view: &View<'_>) -> Option<String> {
    let nodes = view.objects.raw_of_kind("Node").map(|(_, node)| NodeStanding::of(node, None));
    let (all, lost) =
        nodes.fold((0, 0), |(all, lost), node| (all + 1, lost + usize::from(node.readiness != Readiness::Ready)));
    (view.guards.hold(Guard::Most) && (lost * 2 > all || lost == all)).then(|| {
        format!(
            "node {}: {lost} of {all} nodes are not Ready: where most are silent it is the network or the control plane, \
             and not the nodes",
            view.node
        )
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
