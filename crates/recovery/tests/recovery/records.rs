//! The size of NodeRecoveries, and compatibility with records of earlier versions.

use serde_json::{Value, json};
use stead_model::Objects;
use stead_recovery::{
    Evidence, EvidenceKind, LeftAlone, NextStep, NodeRecovery, PlannedPod, RecordedStep, RecoveryPhase, RecoveryPolicy,
    ReplacementTarget, Statement, record_of,
};

use crate::cluster::{confirmed, find, lease, next, node, now, outage, pod, refusal, set, store, unreachable, written};

/// The default limit of a request to etcd.
const ETCD_LIMIT: usize = 1_572_864;

fn size(record: &NodeRecovery) -> usize {
    serde_json::to_vec(record).unwrap().len()
}

/// Node `a` with this many pods, in a cluster with this many nodes.
fn large(nodes: usize, pods: usize) -> Vec<Value> {
    let mut items = vec![unreachable("a", "z1"), lease("a", "2026-01-01T00:49:10Z"), set("db", pods as i64)];
    items.extend((0..nodes - 1).map(|n| node(&format!("worker-{n}.compute.example.internal"), "z2")));
    items.extend((0..pods).map(|n| pod(&format!("db-{n}"), "a")));
    items
}

#[test]
fn the_record_for_1000_nodes_and_250_pods_fits_into_etcd() {
    let record = written(next(&large(1000, 250), &confirmed(), &RecoveryPolicy::default()));
    let plan = &record.spec.plan;
    assert_eq!(plan.pods.len(), 250);
    for pod in &plan.pods {
        let ReplacementTarget::Nodes(best) = &pod.target else { panic!("no node can run {}", pod.name) };
        assert!(best.len() == 3 && pod.feasible_nodes() > 900, "{} of {}", best.len(), pod.feasible_nodes());
    }
    assert!(size(&record) < 150_000, "{} bytes", size(&record));
}

/// Each growing list and text has a limit, and together they stay below etcd's.
#[test]
fn a_record_is_cut_to_its_limits() {
    let mut items = outage();
    let mut record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    let long = "ä".repeat(5000);
    let confirmation = Statement { by: "anna".into(), at: now(), words: "x".repeat(4096) };
    record.spec.evidence =
        vec![Evidence { kind: EvidenceKind::Person, statement: confirmation, powered_off: true, pods: None }; 64];
    record.status.steps = vec![RecordedStep { at: now(), what: long.clone() }; 4096];
    record.status.message = long.clone();
    let planned = record.spec.plan.pods[0].clone();
    let all: Vec<String> = (0..1000).map(|n| format!("worker-{n}.compute.example.internal")).collect();
    record.spec.plan.pods[0].target = ReplacementTarget::Nodes(all);
    let earlier = |n: usize| PlannedPod {
        uid: format!("00000000-0000-0000-0000-00000000{n:04}"),
        released_earlier: true,
        target: ReplacementTarget::NoNode(long.clone()),
        volumes: Vec::new(),
        ..planned.clone()
    };
    record.spec.plan.pods.extend((0..1500).map(earlier));
    let left = LeftAlone { what: "taint k".into(), why: long, ..LeftAlone::default() };
    record.spec.plan.left_alone = vec![left; 100];
    store(&mut items, &record);

    // An abort is the smallest change of a record.
    let mut abort = confirmed();
    abort.abort = abort.confirm_off.take();
    let limited = written(next(&items, &abort, &RecoveryPolicy::default()));
    assert_eq!((limited.spec.evidence.len(), limited.status.steps.len()), (16, 200));
    assert_eq!(limited.spec.plan.pods.len(), 1024);
    let first = &limited.spec.plan.pods[0];
    assert_eq!(
        (first.feasible_nodes(), matches!(&first.target, ReplacementTarget::Nodes(n) if n.len() == 3)),
        (1000, true)
    );
    assert!(!first.released_earlier && limited.spec.plan.pods[1].released_earlier);
    assert!(limited.spec.plan.left_alone.iter().all(|left| left.why.chars().count() <= 1024));
    assert!(size(&limited) < ETCD_LIMIT, "{} bytes", size(&limited));
}

#[test]
fn a_record_that_is_too_large_within_all_limits_is_refused() {
    let mut items = large(2, 1000);
    // No pod can be placed, and each has a long list of tolerations.
    let tolerations: Vec<Value> =
        (0..12).map(|n| json!({ "key": format!("example.com/{n}"), "operator": "Exists" })).collect();
    for item in items.iter_mut().filter(|i| i["kind"] == "Pod") {
        item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100".into();
        item["spec"]["tolerations"] = json!(tolerations);
    }
    items.push(pod("web-0", "a"));
    let why = refusal(&items, &confirmed(), &RecoveryPolicy::default());
    assert!(why.contains("bytes") && why.contains("etcd"), "{why}");
}

#[test]
fn further_pods_that_have_ended_are_counted() {
    let mut items = outage();
    items.extend((0..1500).map(|n| {
        let mut pod = pod(&format!("job-{n}"), "a");
        pod["status"]["phase"] = "Succeeded".into();
        pod
    }));
    let record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    let left = &record.spec.plan.left_alone;
    assert_eq!(left.len(), 21);
    assert_eq!((left[20].what.as_str(), left[20].why.as_str()), ("1480 more pods", "they have ended"));
}

/// Objects written by version 0.1.0, which stored an unlimited number of nodes.
fn written_by_0_1_0() -> Vec<Value> {
    serde_json::from_str(include_str!("records/fenced-by-0.1.0.json")).unwrap()
}

#[test]
fn a_record_of_an_earlier_version_is_continued() {
    let mut items = outage();
    items.retain(|i| i["kind"] != "Pod" && i["metadata"]["name"] != "a");
    items.extend(written_by_0_1_0());
    let record = record_of(&Objects::from_items(items.clone()), "a").expect("a record");
    let pod = &record.spec.plan.pods[0];
    assert_eq!((record.status.phase, pod.feasible_nodes()), (RecoveryPhase::Fenced, 8));
    assert!(record.status.no_return_since.is_some());
    // Its taint is recognised: the volume is free now, and the recovery enters the next phase.
    items.retain(|i| i["kind"] != "VolumeAttachment");
    let next: NextStep = next(&items, &confirmed(), &RecoveryPolicy::default());
    let next = written(next);
    assert_eq!(next.status.phase, RecoveryPhase::Released);
    let pod = &next.spec.plan.pods[0];
    assert_eq!(
        (pod.feasible_nodes(), &pod.target),
        (8, &ReplacementTarget::Nodes(["b", "c", "n0"].map(str::to_owned).to_vec()))
    );
    assert_eq!(find(&mut items, "NodeRecovery", next.name())["status"]["phase"], "Fenced");
}

/// The values in records are independent of the names in the code.
#[test]
fn replacement_targets_keep_their_names() {
    for (target, value) in [
        (ReplacementTarget::Nodes(vec!["b".into()]), json!({ "nodes": ["b"] })),
        (ReplacementTarget::NoNode("full".into()), json!({ "nowhere": "full" })),
        (ReplacementTarget::NotRecreated, json!("gone")),
    ] {
        assert_eq!(json!(target), value);
        assert_eq!(serde_json::from_value::<ReplacementTarget>(value).unwrap(), target);
    }
}
