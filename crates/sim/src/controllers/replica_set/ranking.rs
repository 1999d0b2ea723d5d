//! Which pods of a ReplicaSet are deleted first (`getPodsToDelete`, `ActivePodsWithRanks`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::choices::{Choices, Question};
use crate::object::SimKey;
use crate::pods::{condition, is_active, is_ready, node_of, phase};

/// The annotation with which a user says how much the deletion of a pod costs.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The order of pods: those that come first are deleted first. Ages are compared by their logarithm. Kubernetes compares
/// random UIDs where all of this is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i32,
    siblings_on_node: Reverse<usize>,
    ready_for: Option<Age>,
    /// Compared only among pods that became ready at the same time.
    tie_break: Option<TieBreak>,
}

/// More restarts, then younger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TieBreak {
    restarts: Reverse<(i32, i32)>,
    age: Age,
}

/// The logarithm of a time that has passed; -1 if none has.
type Age = i64;

/// The victims among the active pods of a set: as many as asked for. Chance decides where Kubernetes compares UIDs.
/// `siblings` are the pods of all sets with the same controller.
pub(super) fn victims<'a>(
    set: &SimKey,
    pods: Vec<&'a Arc<Pod>>,
    siblings: &[&Arc<Pod>],
    count: usize,
    now: Timestamp,
    choices: &mut Choices,
) -> Vec<&'a Arc<Pod>> {
    let mut ranked = rank(pods, siblings, count, now);
    let (mut certain, mut options) = (Vec::new(), Vec::new());
    if let Some(last) = count.checked_sub(1).and_then(|last| ranked.get(last)).map(|(rank, _)| *rank) {
        ranked.truncate(ranked.partition_point(|(rank, _)| *rank <= last));
        (certain, options) = ranked.into_iter().partition(|(rank, _)| *rank < last);
    }
    let names = |pods: &[(Rank, &'a Arc<Pod>)]| -> Vec<&'a str> {
        pods.iter().map(|(_, pod)| pod.metadata.name.as_deref().unwrap_or_default()).collect()
    };
    let question = Question::Victim { workload: set.to_string() };
    let missing = count - certain.len().min(count);
    let chosen = choices.pick_several(&question, &names(&certain), &names(&options), missing);
    let chosen = chosen.into_iter().map(|index| options[index].1);
    certain.iter().map(|(_, pod)| *pod).chain(chosen).collect()
}

/// The pods in the order of deletion. Equal ranks are in the order of chance.
fn rank<'a>(
    pods: Vec<&'a Arc<Pod>>,
    siblings: &[&Arc<Pod>],
    count: usize,
    now: Timestamp,
) -> Vec<(Rank, &'a Arc<Pod>)> {
    let all_go = count >= pods.len();
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in siblings.iter().filter(|pod| is_active(pod) && !all_go) {
        *on_node.entry(node_of(pod).unwrap_or_default()).or_default() += 1;
    }
    let mut ranked: Vec<(Rank, &Arc<Pod>)> = pods
        .into_iter()
        .map(|pod| {
            let siblings = on_node.get(node_of(pod).unwrap_or_default()).copied().unwrap_or_default();
            (rank_of(pod, siblings, now), pod)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    // Restarts and ages matter only if the pods became ready at the same time: otherwise the UIDs decide.
    for group in ranked.chunk_by_mut(|(a, _), (b, _)| a == b) {
        let first = ready_since(group[0].1);
        if group.iter().all(|(_, pod)| ready_since(pod) == first) {
            for (rank, pod) in group.iter_mut() {
                rank.tie_break = Some(tie_break(pod, now));
            }
            group.sort_by_key(|(rank, _)| *rank);
        }
    }
    ranked
}

fn rank_of(pod: &Pod, siblings_on_node: usize, now: Timestamp) -> Rank {
    let phase = match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    Rank {
        is_assigned: node_of(pod).is_some(),
        phase,
        is_ready: is_ready(pod),
        cost: deletion_cost(pod),
        siblings_on_node: Reverse(siblings_on_node),
        ready_for: ready_since(pod).map(|since| age(since, now)),
        tie_break: None,
    }
}

fn tie_break(pod: &Pod, now: Timestamp) -> TieBreak {
    let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
    TieBreak { restarts: Reverse(max_container_restarts(pod)), age: created.map_or(-1, |created| age(created, now)) }
}

/// Since when the pod is Ready.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// `logarithmicRankDiff`: the base-2 logarithm of nanoseconds.
fn age(since: Timestamp, now: Timestamp) -> Age {
    let passed = u128::try_from(now.duration_since(since).as_nanos()).unwrap_or_default();
    passed.checked_ilog2().map_or(-1, i64::from)
}

/// `GetDeletionCostFromPodAnnotations`: a malformed value counts as zero.
fn deletion_cost(pod: &Pod) -> i32 {
    let value = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST));
    let valid = |value: &&String| *value == "0" || value.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    value.filter(valid).and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// The most restarts of a container, and of a sidecar.
fn max_container_restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let regular = status.container_statuses.iter().flatten().map(|container| container.restart_count).max();
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let is_sidecar = |name: &str| {
        init.iter().any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten().filter(|container| is_sidecar(&container.name));
    (regular.unwrap_or_default(), sidecars.map(|container| container.restart_count).max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().expect("a time")
    }

    /// A pod that is Ready since a time, or not ready.
    fn pod(name: &str, node: &str, phase: &str, ready: Option<&str>, more: Value) -> Arc<Pod> {
        let conditions = ready.map(|since| json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]));
        let mut pod = json!({ "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [], "nodeName": node }, "status": { "phase": phase, "conditions": conditions } });
        for (field, value) in more.as_object().into_iter().flatten() {
            pod.pointer_mut(field).map(|place| *place = value.clone()).unwrap_or_else(|| {
                let (parent, name) = field.rsplit_once('/').expect("a path");
                pod.pointer_mut(parent).expect("an object")[name] = value.clone();
            });
        }
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn order(pods: &[Arc<Pod>], siblings: &[Arc<Pod>]) -> Vec<Vec<String>> {
        let siblings: Vec<&Arc<Pod>> = siblings.iter().collect();
        let ranked = rank(pods.iter().collect(), &siblings, 0, now());
        let name = |(_, pod): &(Rank, &Arc<Pod>)| pod.metadata.name.clone().expect("a name");
        ranked.chunk_by(|a, b| a.0 == b.0).map(|group| group.iter().map(name).collect()).collect()
    }

    #[test]
    fn sorting_active_pods_with_ranks() {
        let (early, late) = (Some("2026-01-01T00:01:00Z"), Some("2026-01-01T00:59:00Z"));
        let restarts = |count: i32| {
            json!({ "/status/containerStatuses": [{ "name": "c", "ready": true, "image": "", "imageID": "",
                "restartCount": count }] })
        };
        let cost = |value: &str| json!({ "/metadata/annotations": { DELETION_COST: value } });
        let pods = [
            pod("expensive", "a", "Running", late, cost("10")),
            pod("old", "a", "Running", early, json!({})),
            pod("old-and-restarted", "a", "Running", early, restarts(3)),
            pod("young", "a", "Running", late, cost("+5")),
            pod("doubled-up", "b", "Running", late, json!({})),
            pod("cheap", "a", "Running", early, cost("-10")),
            pod("not-ready", "a", "Running", None, json!({})),
            pod("unknown", "a", "Unknown", None, json!({})),
            pod("pending", "a", "Pending", None, json!({})),
            pod("unassigned", "", "Pending", None, json!({})),
        ];
        let siblings = [pod("x", "b", "Running", early, json!({})), pod("y", "b", "Running", early, json!({}))];
        let order = order(&pods, &siblings);
        let expected = [
            "unassigned",
            "pending",
            "unknown",
            "not-ready",
            "cheap",
            "doubled-up",
            "young",
            "old-and-restarted",
            "old",
            "expensive",
        ];
        assert_eq!(order, expected.map(|name| vec![name.to_owned()]));
    }

    #[test]
    fn uids_decide_among_pods_of_about_the_same_age() {
        let at = |time| Some(time);
        let restarted = json!({ "/status/containerStatuses": [{ "name": "c", "ready": true, "image": "",
            "imageID": "", "restartCount": 3 }] });
        let pods = [
            pod("a", "a", "Running", at("2026-01-01T00:10:00Z"), json!({})),
            pod("b", "a", "Running", at("2026-01-01T00:11:00Z"), restarted),
            pod("c", "a", "Running", at("2026-01-01T00:58:00Z"), json!({})),
        ];
        assert_eq!(order(&pods, &[]), [vec!["c"], vec!["a", "b"]]);
        let set = SimKey::new(crate::ObjectKind::ReplicaSet, "n", "web");
        let mut seen = std::collections::BTreeSet::new();
        let mut choices = Choices::enumerated();
        loop {
            let victims = victims(&set, pods.iter().collect(), &[], 2, now(), &mut choices);
            seen.insert(victims.iter().filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>());
            match choices.next_path() {
                Some(next) => choices = next,
                None => break,
            }
        }
        assert_eq!(Vec::from_iter(seen), [["c", "a"], ["c", "b"]]);
    }
}
