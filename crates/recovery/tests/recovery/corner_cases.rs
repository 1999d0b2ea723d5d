//! Single decisions that are easy to get wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_model::Objects;
use stead_recovery::{
    ClusterView, EvidenceKind, NextStep, NodeRecovery, RecoveryEnd, RecoveryPhase, RecoveryPolicy, RecoveryRequest,
    RecoveryWrite, Refusal, ReplacementTarget, next_step, record_of,
};

use crate::cluster::{
    confirmed, find, lease, next, now, outage, pod, refusal, set, statement, store, with_volume, written,
};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fn plain_request() -> RecoveryRequest {
    RecoveryRequest { who: "bert".into(), ..RecoveryRequest::default() }
}

/// Returns the next step without a confirmation.
fn next_unconfirmed(items: &[Value]) -> NextStep {
    next(items, &plain_request(), &RecoveryPolicy::default())
}

/// Applies a write to the items.
fn apply(items: &mut Vec<Value>, write: Option<RecoveryWrite>) {
    match write {
        Some(RecoveryWrite::Record(record)) => store(items, &record),
        Some(RecoveryWrite::Node { name, patch, .. }) => {
            let node = find(items, "Node", &name);
            node["spec"]["taints"] = patch["spec"]["taints"].clone();
            let annotations = patch["metadata"]["annotations"].as_object().into_iter().flatten();
            // A merge patch removes what is null.
            node["metadata"]["annotations"] = annotations
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
        }
        Some(RecoveryWrite::Pod { name, patch, .. }) => {
            find(items, "Pod", &name)["spec"]["tolerations"] = patch["spec"]["tolerations"].clone();
        }
        other => panic!("unexpected write: {other:?}"),
    }
}

/// Applies the next write.
fn apply_next(items: &mut Vec<Value>, request: &RecoveryRequest, policy: &RecoveryPolicy) {
    let write = next(items, request, policy).write;
    apply(items, write);
}

fn resume(items: &mut Vec<Value>) {
    apply_next(items, &plain_request(), &RecoveryPolicy::default());
}

fn record(items: &[Value]) -> NodeRecovery {
    record_of(&Objects::from_items(items.to_vec()), "a").expect("a record")
}

/// Continues until the recovery is in this phase.
fn advance_to(items: &mut Vec<Value>, phase: RecoveryPhase) {
    apply_next(items, &confirmed(), &RecoveryPolicy::default());
    for _ in 0..20 {
        if record(items).status.phase == phase {
            return;
        }
        resume(items);
    }
    panic!("not {phase:?}, but {:?}", record(items).status);
}

/// Brings node `a` back without a restart.
fn return_node(items: &mut Vec<Value>) {
    items.retain(|i| i["kind"] != "Lease");
    items.push(lease("a", "2026-01-01T00:59:55Z"));
    find(items, "Node", "a")["status"]["conditions"][0]["status"] = "True".into();
}

/// Returns the next step if the node's kubelet reports that it runs these pods.
fn next_if_running(items: &[Value], running: &[&str]) -> NextStep {
    let objects = Objects::from_items(items.to_vec());
    let running: BTreeSet<String> = running.iter().map(|uid| (*uid).to_owned()).collect();
    let view = ClusterView::new("a", &objects, Some(&running), now());
    next_step(&view, record_of(&objects, "a").as_ref(), &plain_request(), &RecoveryPolicy::default())
}

fn remove(items: &mut Vec<Value>, kind: &str, name: &str) {
    items.retain(|i| i["kind"] != kind || i["metadata"]["name"] != name);
}

/// Checks that the point of no return is recorded, an abort is refused, and the kubelet has to report its pods before
/// the end.
fn check_point_of_no_return(mut items: Vec<Value>, why: &str) {
    resume(&mut items);
    assert!(record(&items).status.no_return_since.is_some(), "{why}");
    let abort = RecoveryRequest { abort: statement("never mind"), ..plain_request() };
    assert!(refusal(&items, &abort, &RecoveryPolicy::default()).contains("too late to abort"), "{why}");
    return_node(&mut items);
    let asked = next_unconfirmed(&items);
    assert!(asked.ask_running, "{why}: {asked:?}");
    let waits = next_if_running(&items, &["uid-of-a-former-pod"]);
    assert!(!matches!(waits.write, Some(RecoveryWrite::Node { .. })), "{why}: {waits:?}");
    let closes = next_if_running(&items, &[]);
    assert!(matches!(closes.write, Some(RecoveryWrite::Node { .. })), "{why}: {closes:?}");
}

#[test]
fn the_point_of_no_return() {
    let mut items = outage();
    advance_to(&mut items, RecoveryPhase::Fenced);
    let abort = RecoveryRequest { abort: statement("never mind"), ..plain_request() };
    assert!(
        matches!(next(&items, &abort, &RecoveryPolicy::default()).write, Some(RecoveryWrite::Record(_))),
        "nothing was released yet"
    );

    let mut collected = items.clone();
    remove(&mut collected, "Pod", "db-0");
    check_point_of_no_return(collected, "the pod is gone");

    let mut kept = items.clone();
    find(&mut kept, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    find(&mut kept, "Pod", "db-0")["metadata"]["finalizers"] = json!(["example.com/keep"]);
    find(&mut kept, "Pod", "db-0")["status"]["phase"] = "Failed".into();
    check_point_of_no_return(kept, "the pod was removed, and a finalizer keeps its object");

    let mut freed = outage();
    remove(&mut freed, "Pod", "db-0");
    advance_to(&mut freed, RecoveryPhase::Fenced);
    remove(&mut freed, "VolumeAttachment", "va-v");
    check_point_of_no_return(freed, "a volume that no pod used was detached");

    let mut beside = outage();
    beside.push(pod("any-0", "a"));
    find(&mut beside, "Pod", "any-0")["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    advance_to(&mut beside, RecoveryPhase::Fenced);
    remove(&mut beside, "Pod", "any-0");
    check_point_of_no_return(beside, "a user deleted a pod that was left alone");
}

#[test]
fn static_pods_belong_to_the_node() {
    let mut items = outage();
    let mut mirror = pod("static-0", "a");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    items.push(mirror);
    advance_to(&mut items, RecoveryPhase::Fenced);
    remove(&mut items, "Pod", "db-0");
    resume(&mut items);
    return_node(&mut items);
    let closes = next_if_running(&items, &["hash", "uid-static-0"]);
    assert!(matches!(closes.write, Some(RecoveryWrite::Node { .. })), "{closes:?}");
}

#[test]
fn a_pod_that_tolerates_the_taint_for_some_time_is_deleted() {
    let mut items = outage();
    let tolerations = json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 86_400 }]);
    find(&mut items, "Pod", "db-0")["spec"]["tolerations"] = tolerations;
    advance_to(&mut items, RecoveryPhase::Fenced);
    let step = next_unconfirmed(&items);
    assert!(matches!(&step.write, Some(RecoveryWrite::DeletePod { uid, .. }) if uid == "uid-db-0"), "{step:?}");
}

#[test]
fn a_second_recovery_of_the_same_boot() {
    let mut items = outage();
    advance_to(&mut items, RecoveryPhase::Fenced);
    let mut undone = record(&items);
    undone.status.phase = RecoveryPhase::Undone;
    store(&mut items, &undone);
    // The pod has since been replaced on the same node, and the replacement uses the volume.
    find(&mut items, "Node", "a")["metadata"]["annotations"] = Value::Null;
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().retain(|t| t["key"] != OUT_OF_SERVICE);
    find(&mut items, "Pod", "db-0")["metadata"]["uid"] = "uid-next".into();
    let mut again = confirmed();
    again.confirm_off = again
        .confirm_off
        .map(|said| stead_recovery::Statement { at: said.at + jiff::SignedDuration::from_secs(1), ..said });
    apply_next(&mut items, &again, &RecoveryPolicy::default());
    let plan = record(&items).spec.plan;
    let released = plan.pod("uid-db-0").expect("it may still run");
    assert_eq!(
        (released.released_earlier, &released.volumes, &released.target),
        (true, &Vec::new(), &ReplacementTarget::NotRecreated)
    );
    assert_eq!(plan.pod("uid-next").unwrap().volumes, ["v"]);
    // It can be aborted until something is released again; the end needs the report of the kubelet.
    resume(&mut items);
    resume(&mut items);
    assert_eq!((record(&items).status.phase, record(&items).status.no_return_since), (RecoveryPhase::Fenced, None));
    let abort = RecoveryRequest { abort: statement("never mind"), ..plain_request() };
    assert!(matches!(next(&items, &abort, &RecoveryPolicy::default()).write, Some(RecoveryWrite::Record(_))));
    return_node(&mut items);
    assert!(next_unconfirmed(&items).ask_running);

    // After a recovery that ended as Returned, no pod of it can run.
    let mut returned = undone;
    returned.status.phase = RecoveryPhase::Returned;
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["uid"] = "uid-next".into();
    store(&mut items, &returned);
    apply_next(&mut items, &again, &RecoveryPolicy::default());
    assert!(record(&items).spec.plan.pod("uid-db-0").is_none());
}

#[test]
fn a_record_of_the_same_boot_is_continued() {
    let mut items = outage();
    let mut own = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    own.status.phase = RecoveryPhase::Undone;
    own.status.steps[0].at = "2026-01-01T00:10:00Z".parse().unwrap();
    store(&mut items, &own);
    // A slow caller has closed the record of an earlier boot after that.
    let mut former = own.clone();
    former.metadata.insert("name".into(), "a-former".into());
    former.spec.node.boot_id = "boot-0".into();
    former.status.steps[0].at = "2026-01-01T00:20:00Z".parse().unwrap();
    store(&mut items, &former);
    let begun = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    assert_eq!((begun.name(), begun.metadata["resourceVersion"].as_str()), (own.name(), Some("9")));
}

#[test]
fn a_record_that_cannot_be_read() {
    let mut items = outage();
    let record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    store(&mut items, &record);
    find(&mut items, "NodeRecovery", record.name())["spec"]["plan"]["pods"][0]["target"] = json!("the moon");
    let why = refusal(&items, &confirmed(), &RecoveryPolicy::default());
    assert!(why.starts_with(&format!("NodeRecovery {} cannot be read", record.name())), "{why}");
}

#[test]
fn a_record_that_was_deleted() {
    let mut items = outage();
    advance_to(&mut items, RecoveryPhase::Fenced);
    let name = record(&items).name().to_owned();
    remove(&mut items, "NodeRecovery", &name);
    remove(&mut items, "Pod", "db-0");
    assert!(refusal(&items, &plain_request(), &RecoveryPolicy::default()).contains("no evidence"));
    return_node(&mut items);
    assert!(next_unconfirmed(&items).ask_running);
    assert!(next_if_running(&items, &["uid-db-0"]).write.is_none());
    let tidied = next_if_running(&items, &[]);
    apply(&mut items, tidied.write);
    let node = find(&mut items, "Node", "a");
    assert!(!node.to_string().contains(OUT_OF_SERVICE), "{node}");
    assert!(refusal(&items, &plain_request(), &RecoveryPolicy::default()).contains("its kubelet is alive"));
}

#[test]
fn evidence_for_some_pods_is_not_evidence_for_others() {
    let mut items = outage();
    items.push(pod("db-1", "a"));
    advance_to(&mut items, RecoveryPhase::Fenced);
    // Somebody removes the taint. The policy does not accept a new confirmation, and the boot ID is evidence for one
    // pod.
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().retain(|t| t["key"] != OUT_OF_SERVICE);
    let mut former = record(&items);
    former.metadata.insert("name".into(), "a-former".into());
    former.spec.node.boot_id = "boot-0".into();
    former.status.phase = RecoveryPhase::Returned;
    former.spec.plan.pods.iter_mut().for_each(|p| p.terminating = p.name == "db-0");
    store(&mut items, &former);
    let policy = RecoveryPolicy { accept: [EvidenceKind::BootIdChanged].into(), ..RecoveryPolicy::default() };
    let mut words = confirmed();
    words.confirm_off =
        words.confirm_off.map(|s| stead_recovery::Statement { at: s.at + jiff::SignedDuration::from_secs(1), ..s });
    let why = refusal(&items, &words, &policy);
    assert_eq!(why, "node a: pod x/db-1: the evidence (BootIdChanged) does not cover it");
}

#[test]
fn a_pod_keeps_its_added_tolerations() {
    let mut items = outage();
    for node in ["b", "c"] {
        find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "1".into();
    }
    items.push(set("web", 3));
    items.extend(["web-0", "web-1"].map(|name| pod(name, "a")));
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    let kept = record(&items)
        .spec
        .plan
        .left_alone
        .iter()
        .find_map(|l| l.added_tolerations.clone())
        .expect("one pod is left alone");
    resume(&mut items);
    assert!(find(&mut items, "Pod", &kept.name)["spec"]["tolerations"].to_string().contains(OUT_OF_SERVICE));
    // There is room now, and another pod is gone.
    find(&mut items, "Node", "b")["status"]["allocatable"]["cpu"] = "8".into();
    remove(&mut items, "Pod", if kept.name == "web-0" { "web-1" } else { "web-0" });
    let policy = RecoveryPolicy { include_tolerating: true, ..RecoveryPolicy::default() };
    apply_next(&mut items, &plain_request(), &policy);
    let plan = record(&items).spec.plan;
    let left = plan.left_alone.iter().find(|l| l.added_tolerations.as_ref().is_some_and(|s| s.name == kept.name));
    assert_eq!(left.and_then(|l| l.added_tolerations.clone()), Some(kept.clone()), "{plan:?}");

    // In another recovery it is released, like the others.
    let mut undone = record(&items);
    undone.status.phase = RecoveryPhase::Undone;
    undone.status.steps.iter_mut().for_each(|step| step.at = "2026-01-01T00:10:00Z".parse().unwrap());
    store(&mut items, &undone);
    resume(&mut items);
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    let plan = record(&items).spec.plan;
    assert!(plan.pods.iter().any(|p| p.name == kept.name && !p.released_earlier), "{plan:?}");
}

#[test]
fn added_tolerations_are_removed_when_the_node_is_gone() {
    let mut items = outage();
    items.push(pod("large-0", "a"));
    find(&mut items, "Pod", "large-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100".into();
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    resume(&mut items);
    find(&mut items, "Node", "a")["metadata"]["uid"] = "another".into();
    let removal = next_unconfirmed(&items);
    assert!(matches!(&removal.write, Some(RecoveryWrite::Pod { name, .. }) if name == "large-0"), "{removal:?}");
    apply(&mut items, removal.write);
    assert_eq!(written(next_unconfirmed(&items)).status.phase, RecoveryPhase::Void);
}

/// Returns what the recovery waits for when pods and volumes are released.
fn waits(owner: &str, more: Vec<Value>) -> Vec<String> {
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["ownerReferences"][0] =
        json!({ "apiVersion": "x/v1", "kind": owner, "name": "o", "uid": "o", "controller": true });
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:30Z".into();
    items.extend(more);
    advance_to(&mut items, RecoveryPhase::Fenced);
    remove(&mut items, "Pod", "db-0");
    remove(&mut items, "VolumeAttachment", "va-v");
    for _ in 0..10 {
        let step = next_unconfirmed(&items);
        if step.end == Some(RecoveryEnd::Recovered) {
            return Vec::new();
        }
        if record(&items).status.phase == RecoveryPhase::Released && !step.waits.is_empty() {
            return step.waits.into_iter().map(|w| format!("{}: {}", w.what, w.how)).collect();
        }
        apply(&mut items, step.write);
    }
    panic!("the recovery does not end: {:?}", record(&items).status);
}

fn pod_of(kind: &str, name: &str, ready: bool, created: &str) -> Value {
    let mut pod = pod(name, "b");
    pod["metadata"]["ownerReferences"][0] = json!({ "kind": kind, "name": "o", "uid": "o", "controller": true });
    pod["metadata"]["creationTimestamp"] = created.into();
    pod["status"]["conditions"][0]["status"] = if ready { "True" } else { "False" }.into();
    pod
}

fn controller(kind: &str, name: &str, spec: Value, conditions: Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "x", "uid": name },
            "spec": spec, "status": { "conditions": conditions } })
}

#[test]
fn only_replacements_that_will_be_created_are_waited_for() {
    let (before, after) = ("2026-01-01T00:10:00Z", "2026-01-01T00:58:00Z");
    let job = |conditions: Value| vec![controller("Job", "o", json!({}), conditions)];
    assert_eq!(waits("Job", job(json!([]))), ["a pod of Job x/o: not created yet"]);
    assert_eq!(waits("Job", job(json!([{ "type": "Failed", "status": "True" }]))), [""; 0]);
    assert_eq!(waits("Job", Vec::new()), [""; 0], "it was deleted");
    assert_eq!(waits("Custom", Vec::new()), [""; 0]);
    let waiting = vec![pod_of("Custom", "next", false, after)];
    assert_eq!(waits("Custom", waiting), ["a pod of Custom x/o: on b, not Ready yet"]);

    let set = |replicas: i64| controller("ReplicaSet", "o", json!({ "replicas": replicas }), json!([]));
    assert_eq!(waits("ReplicaSet", vec![set(1)]), ["a pod of ReplicaSet x/o: not created yet"]);
    let broken = pod_of("ReplicaSet", "broken", false, before);
    let next = |ready| pod_of("ReplicaSet", "next", ready, after);
    assert_eq!(waits("ReplicaSet", vec![set(2), broken.clone(), next(true)]), [""; 0], "it was broken before");
    let not_yet = waits("ReplicaSet", vec![set(2), broken, next(false)]);
    assert_eq!(not_yet, ["a pod of ReplicaSet x/o: on b, not Ready yet"]);

    // During an update: the old ReplicaSet wants no pod, the Deployment wants one.
    let above = json!([{ "kind": "Deployment", "name": "d", "uid": "d", "controller": true }]);
    let mut old = set(0);
    old["metadata"]["ownerReferences"] = above.clone();
    let mut new = controller("ReplicaSet", "o2", json!({ "replicas": 1 }), json!([]));
    new["metadata"]["ownerReferences"] = above;
    let deployment = controller("Deployment", "d", json!({ "replicas": 1 }), json!([]));
    let all = |more: Vec<Value>| [vec![old.clone(), new.clone(), deployment.clone()], more].concat();
    assert_eq!(waits("ReplicaSet", all(Vec::new())), ["a pod of ReplicaSet x/o: not created yet"]);
    let mut successor = pod_of("ReplicaSet", "next", true, after);
    successor["metadata"]["ownerReferences"][0]["uid"] = "o2".into();
    assert_eq!(waits("ReplicaSet", all(vec![successor])), [""; 0]);
}

#[test]
fn a_recovery_that_waits_for_replacements_blocks_no_other() {
    let mut items = outage();
    advance_to(&mut items, RecoveryPhase::Fenced);
    let mut released = record(&items);
    released.metadata.insert("name".into(), "b-1".into());
    (released.spec.node.name, released.spec.node.uid) = ("b".into(), "uid-b".into());
    let begins = |phase: RecoveryPhase| {
        let mut items = outage();
        let mut released = released.clone();
        released.status.phase = phase;
        store(&mut items, &released);
        next(&items, &confirmed(), &RecoveryPolicy { at_once: 1, ..RecoveryPolicy::default() }).write.is_some()
    };
    assert!(!begins(RecoveryPhase::Fenced) && begins(RecoveryPhase::Released));
}

/// Between the record and the taint, the room on other nodes may change.
#[test]
fn the_plan_is_current_when_the_taint_is_applied() {
    let mut items = outage();
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    assert_eq!(record(&items).spec.plan.pods.len(), 1);
    for node in ["b", "c"] {
        find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "0".into();
    }
    // Nothing is left to release: the recovery is undone.
    for _ in 0..3 {
        resume(&mut items);
    }
    let now = record(&items).status;
    assert_eq!(now.phase, RecoveryPhase::Undone, "{now:?}");
    assert!(now.steps.last().unwrap().what.contains("no pod or volume is left to release"), "{now:?}");
    assert_eq!(find(&mut items, "Node", "a")["spec"]["taints"].as_array().unwrap().len(), 2);

    // One of two pods can no longer be placed, and is left alone.
    let mut items = outage();
    items.push(pod("web-0", "a"));
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    assert_eq!(record(&items).spec.plan.pods.len(), 2);
    remove(&mut items, "Node", "c");
    find(&mut items, "Node", "b")["status"]["allocatable"]["cpu"] = "1".into();
    resume(&mut items);
    let plan = record(&items).spec.plan;
    assert_eq!(plan.pods.len(), 1, "{plan:?}");
    assert!(plan.left_alone[0].what == "pod x/web-0" && plan.left_alone[0].added_tolerations.is_some(), "{plan:?}");

    // The targets of replacements may change without a new plan.
    let mut items = outage();
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    remove(&mut items, "Node", "b");
    assert!(matches!(next_unconfirmed(&items).write, Some(RecoveryWrite::Node { .. })));
}

/// Evidence expires before the taint is applied, not after.
#[test]
fn evidence_expires_after_ten_minutes() {
    let mut items = outage();
    apply_next(&mut items, &confirmed(), &RecoveryPolicy::default());
    let later = |items: &[Value], request: &RecoveryRequest, minutes: i64| {
        let objects = Objects::from_items(items.to_vec());
        let now = now() + jiff::SignedDuration::from_mins(minutes);
        let view = ClusterView::new("a", &objects, None, now);
        next_step(&view, record_of(&objects, "a").as_ref(), request, &RecoveryPolicy::default())
    };
    assert!(matches!(later(&items, &plain_request(), 10).write, Some(RecoveryWrite::Node { .. })));
    let refused = later(&items, &plain_request(), 11);
    assert!(matches!(&refused.end, Some(RecoveryEnd::Refused(Refusal::EvidenceExpired { .. }))), "{refused:?}");
    // The same confirmation is not a new one.
    assert!(matches!(later(&items, &confirmed(), 11).end, Some(RecoveryEnd::Refused(_))));
    let mut again = confirmed();
    again.confirm_off.as_mut().unwrap().at = now() + jiff::SignedDuration::from_mins(11);
    let renewed = later(&items, &again, 11);
    apply(&mut items, renewed.write);
    assert_eq!(record(&items).spec.evidence.len(), 2);
    assert!(matches!(later(&items, &plain_request(), 12).write, Some(RecoveryWrite::Node { .. })));
    // After the taint was applied, the recovery continues.
    let tainted = later(&items, &plain_request(), 12);
    apply(&mut items, tainted.write);
    assert!(
        matches!(later(&items, &plain_request(), 60).write, Some(RecoveryWrite::Record(record)) if record.status.phase == RecoveryPhase::Fenced)
    );
}

/// A toleration of zero seconds matches the taint, so that the pod may be evicted later because of other taints.
#[test]
fn a_pod_that_tolerates_the_taint_for_zero_seconds_is_deleted() {
    let mut items = outage();
    let none = json!({ "key": OUT_OF_SERVICE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 });
    find(&mut items, "Pod", "db-0")["spec"]["tolerations"].as_array_mut().unwrap().push(none);
    advance_to(&mut items, RecoveryPhase::Fenced);
    let write = next_unconfirmed(&items).write;
    assert!(matches!(&write, Some(RecoveryWrite::DeletePod { uid, .. }) if uid == "uid-db-0"), "{write:?}");
}

/// A pod that has ended is not a replica.
#[test]
fn pods_that_have_ended_are_not_replacements() {
    let replica_set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": "db", "namespace": "x", "uid": "db" }, "spec": { "replicas": 1 } });
    for phase in ["Failed", "Succeeded"] {
        let mut items = outage();
        items.push(replica_set.clone());
        find(&mut items, "Pod", "db-0")["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
        let mut evicted = find(&mut items, "Pod", "db-0").clone();
        evicted["metadata"]["name"] = "db-evicted".into();
        evicted["metadata"]["uid"] = "uid-evicted".into();
        evicted["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        evicted["spec"]["nodeName"] = "b".into();
        evicted["status"] = json!({ "phase": phase });
        items.push(evicted);
        advance_to(&mut items, RecoveryPhase::Fenced);
        remove(&mut items, "Pod", "db-0");
        remove(&mut items, "VolumeAttachment", "va-v");
        resume(&mut items);
        resume(&mut items);
        let step = next_unconfirmed(&items);
        assert!(step.waits.iter().any(|wait| wait.how == "not created yet"), "{phase}: {step:?}");
    }
}

/// A kubelet that runs no released pod may still have released volumes mounted.
#[test]
fn the_taint_stays_while_a_released_volume_is_in_use() {
    let unique = "kubernetes.io/csi/cinder.csi.openstack.org^v";
    let returned = |in_use: &[&str], attached: bool| {
        let mut items = outage();
        advance_to(&mut items, RecoveryPhase::Fenced);
        remove(&mut items, "Pod", "db-0");
        if !attached {
            remove(&mut items, "VolumeAttachment", "va-v");
        }
        resume(&mut items);
        return_node(&mut items);
        find(&mut items, "Node", "a")["status"]["volumesInUse"] = json!(in_use);
        items
    };
    let stays = |items: &[Value]| !matches!(next_if_running(items, &[]).write, Some(RecoveryWrite::Node { .. }));
    assert!(stays(&returned(&[unique], false)), "it was released");
    assert!(stays(&returned(&[unique], true)), "it is about to be released");
    assert!(!stays(&returned(&[], false)));
    let other = "kubernetes.io/csi/cinder.csi.openstack.org^other";
    assert!(stays(&returned(&[other], false)), "it is not attached to this node");
    let mut attached = returned(&[other], false);
    find(&mut attached, "Node", "a")["status"]["volumesAttached"] = json!([{ "name": other, "devicePath": "" }]);
    assert!(!stays(&attached), "it belongs to a pod that runs there");
    let mut again = returned(&[unique], true);
    again.extend(with_volume(pod("db-0", "a"), "v"));
    find(&mut again, "Pod", "db-0")["metadata"]["uid"] = "uid-next".into();
    assert!(!stays(&again), "its replacement runs on the same node");
    // The record was deleted: a volume that is mounted without being attached was released.
    let mut orphaned = returned(&[unique], false);
    orphaned.retain(|i| i["kind"] != "NodeRecovery");
    assert!(stays(&orphaned));
    find(&mut orphaned, "Node", "a")["status"]["volumesInUse"] = json!([]);
    assert!(!stays(&orphaned));
    // After a restart nothing is mounted any more, and the taint is removed at once.
    let mut rebooted = returned(&[unique], false);
    find(&mut rebooted, "Node", "a")["status"]["nodeInfo"]["bootID"] = "boot-2".into();
    assert!(!stays(&rebooted));
}

/// On storage that does not revoke access, pods are deleted before the taint is applied: no kubelet starts them again.
#[test]
fn pods_with_unrevoked_volumes_are_deleted_before_the_taint() {
    let mut items = outage();
    find(&mut items, "PersistentVolume", "v")["spec"]["csi"]["driver"] = "nfs.csi.k8s.io".into();
    let stated = RecoveryRequest { powered_off: true, ..confirmed() };
    apply_next(&mut items, &stated, &RecoveryPolicy::default());
    let write = next_unconfirmed(&items).write;
    let expected = |uid: &str, version: &str| uid == "uid-db-0" && version == "3";
    assert!(
        matches!(&write, Some(RecoveryWrite::DeletePod { uid, resource_version, .. }) if expected(uid, resource_version)),
        "{write:?}"
    );
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:30Z".into();
    assert!(matches!(next_unconfirmed(&items).write, Some(RecoveryWrite::Node { .. })));
}
