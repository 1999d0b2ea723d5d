//! Single decisions that are easily got wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_model::Objects;
use stead_recovery::{
    Deed, End, EvidenceKind, NodeRecovery, Phase, Policy, Request, Step, Target, View, record_of, step,
};

use crate::cluster::{confirmed, find, keep, lease, next, now, outage, pod, refusal, said, set, with_volume, written};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fn nobody() -> Request {
    Request { who: "bert".into(), ..Request::default() }
}

/// The next step, of one who wants nothing in particular.
fn then(items: &[Value]) -> Step {
    next(items, &nobody(), &Policy::default())
}

/// Has a write done to the items.
fn done(items: &mut Vec<Value>, deed: Option<Deed>) {
    match deed {
        Some(Deed::Record(record)) => keep(items, &record),
        Some(Deed::Node { name, patch, .. }) => {
            let node = find(items, "Node", &name);
            node["spec"]["taints"] = patch["spec"]["taints"].clone();
            node["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        }
        Some(Deed::Pod { name, patch, .. }) => {
            find(items, "Pod", &name)["spec"]["tolerations"] = patch["spec"]["tolerations"].clone();
        }
        other => panic!("no write that is expected: {other:?}"),
    }
}

/// Has the next write done.
fn does(items: &mut Vec<Value>, request: &Request, policy: &Policy) {
    let deed = next(items, request, policy).deed;
    done(items, deed);
}

fn goes_on(items: &mut Vec<Value>) {
    does(items, &nobody(), &Policy::default());
}

fn record(items: &[Value]) -> NodeRecovery {
    record_of(&Objects::from_items(items.to_vec()), "a").expect("a record")
}

/// A node whose recovery has come to this phase.
fn come_to(items: &mut Vec<Value>, phase: Phase) {
    does(items, &confirmed(), &Policy::default());
    for _ in 0..20 {
        if record(items).status.phase == phase {
            return;
        }
        goes_on(items);
    }
    panic!("not {phase:?}, but {:?}", record(items).status);
}

/// Node `a` is back, in the same life.
fn back(items: &mut Vec<Value>) {
    items.retain(|i| i["kind"] != "Lease");
    items.push(lease("a", "2026-01-01T00:59:55Z"));
    find(items, "Node", "a")["status"]["conditions"][0]["status"] = "True".into();
}

/// The next step when the node's kubelet says that it runs these.
fn then_running(items: &[Value], running: &[&str]) -> Step {
    let objects = Objects::from_items(items.to_vec());
    let running: BTreeSet<String> = running.iter().map(|uid| (*uid).to_owned()).collect();
    let view = View::new("a", &objects, Some(&running), now());
    step(&view, record_of(&objects, "a").as_ref(), &nobody(), &Policy::default())
}

fn gone(items: &mut Vec<Value>, kind: &str, name: &str) {
    items.retain(|i| i["kind"] != kind || i["metadata"]["name"] != name);
}

/// There is no way back: that is written down, an abort is refused, and a return has to be proven by the kubelet.
fn no_way_back(mut items: Vec<Value>, why: &str) {
    goes_on(&mut items);
    assert!(record(&items).status.no_return_since.is_some(), "{why}");
    let abort = Request { abort: said("never mind"), ..nobody() };
    assert!(refusal(&items, &abort, &Policy::default()).contains("there is no way back"), "{why}");
    back(&mut items);
    let asked = then(&items);
    assert!(asked.ask_running, "{why}: {asked:?}");
    let waits = then_running(&items, &["uid-of-a-former-pod"]);
    assert!(!matches!(waits.deed, Some(Deed::Node { .. })), "{why}: {waits:?}");
    let closes = then_running(&items, &[]);
    assert!(matches!(closes.deed, Some(Deed::Node { .. })), "{why}: {closes:?}");
}

#[test]
fn what_is_taken_for_good() {
    let mut items = outage();
    come_to(&mut items, Phase::Fenced);
    let abort = Request { abort: said("never mind"), ..nobody() };
    assert!(matches!(next(&items, &abort, &Policy::default()).deed, Some(Deed::Record(_))), "nothing was taken yet");

    let mut collected = items.clone();
    gone(&mut collected, "Pod", "db-0");
    no_way_back(collected, "the pod is gone");

    let mut kept = items.clone();
    find(&mut kept, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    find(&mut kept, "Pod", "db-0")["metadata"]["finalizers"] = json!(["example.com/keep"]);
    find(&mut kept, "Pod", "db-0")["status"]["phase"] = "Failed".into();
    no_way_back(kept, "the pod was collected, and its object is kept by a finalizer");

    let mut freed = outage();
    gone(&mut freed, "Pod", "db-0");
    come_to(&mut freed, Phase::Fenced);
    gone(&mut freed, "VolumeAttachment", "va-v");
    no_way_back(freed, "a volume that no pod had was detached");

    let mut beside = outage();
    beside.push(pod("any-0", "a"));
    find(&mut beside, "Pod", "any-0")["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    come_to(&mut beside, Phase::Fenced);
    gone(&mut beside, "Pod", "any-0");
    no_way_back(beside, "somebody has deleted what was left alone");
}

#[test]
fn what_the_kubelet_has_from_files_is_its_own() {
    let mut items = outage();
    let mut mirror = pod("static-0", "a");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    items.push(mirror);
    come_to(&mut items, Phase::Fenced);
    gone(&mut items, "Pod", "db-0");
    goes_on(&mut items);
    back(&mut items);
    let closes = then_running(&items, &["hash", "uid-static-0"]);
    assert!(matches!(closes.deed, Some(Deed::Node { .. })), "{closes:?}");
}

#[test]
fn a_pod_that_bears_the_taint_for_a_time_is_not_waited_for() {
    let mut items = outage();
    let tolerations = json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 86_400 }]);
    find(&mut items, "Pod", "db-0")["spec"]["tolerations"] = tolerations;
    come_to(&mut items, Phase::Fenced);
    let step = then(&items);
    assert!(matches!(&step.deed, Some(Deed::DeletePod { uid, .. }) if uid == "uid-db-0"), "{step:?}");
}

#[test]
fn a_second_recovery_of_the_same_life() {
    let mut items = outage();
    come_to(&mut items, Phase::Fenced);
    let mut undone = record(&items);
    undone.status.phase = Phase::Undone;
    keep(&mut items, &undone);
    // The pod was replaced on the same node since, and has the volume.
    find(&mut items, "Node", "a")["metadata"]["annotations"] = Value::Null;
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().retain(|t| t["key"] != OUT_OF_SERVICE);
    find(&mut items, "Pod", "db-0")["metadata"]["uid"] = "uid-next".into();
    let mut again = confirmed();
    again.confirm_off =
        again.confirm_off.map(|said| stead_recovery::Said { at: said.at + jiff::SignedDuration::from_secs(1), ..said });
    does(&mut items, &again, &Policy::default());
    let plan = record(&items).spec.plan;
    let taken = plan.condemned("uid-db-0").expect("it may still run");
    assert_eq!((taken.taken, &taken.volumes, &taken.target), (true, &Vec::new(), &Target::Gone));
    assert_eq!(plan.condemned("uid-next").unwrap().volumes, ["v"]);
    // It can be ended as long as nothing of this round was taken; a return has to be proven.
    goes_on(&mut items);
    goes_on(&mut items);
    assert_eq!((record(&items).status.phase, record(&items).status.no_return_since), (Phase::Fenced, None));
    let abort = Request { abort: said("never mind"), ..nobody() };
    assert!(matches!(next(&items, &abort, &Policy::default()).deed, Some(Deed::Record(_))));
    back(&mut items);
    assert!(then(&items).ask_running);

    // After one that its kubelet has confirmed nothing is left of it.
    let mut returned = undone;
    returned.status.phase = Phase::Returned;
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["uid"] = "uid-next".into();
    keep(&mut items, &returned);
    does(&mut items, &again, &Policy::default());
    assert!(record(&items).spec.plan.condemned("uid-db-0").is_none());
}

#[test]
fn a_record_of_the_same_name_is_taken_up_whoever_came_last() {
    let mut items = outage();
    let mut own = written(next(&items, &confirmed(), &Policy::default()));
    own.status.phase = Phase::Undone;
    own.status.steps[0].at = "2026-01-01T00:10:00Z".parse().unwrap();
    keep(&mut items, &own);
    // Somebody slow has closed the record of a former life after that.
    let mut former = own.clone();
    former.metadata.insert("name".into(), "a-former".into());
    former.spec.node.boot_id = "boot-0".into();
    former.status.steps[0].at = "2026-01-01T00:20:00Z".parse().unwrap();
    keep(&mut items, &former);
    let begun = written(next(&items, &confirmed(), &Policy::default()));
    assert_eq!((begun.name(), begun.metadata["resourceVersion"].as_str()), (own.name(), Some("9")));
}

#[test]
fn a_record_that_cannot_be_read() {
    let mut items = outage();
    let record = written(next(&items, &confirmed(), &Policy::default()));
    keep(&mut items, &record);
    find(&mut items, "NodeRecovery", record.name())["spec"]["plan"]["pods"][0]["target"] = json!("the moon");
    let why = refusal(&items, &confirmed(), &Policy::default());
    assert!(why.starts_with(&format!("NodeRecovery {}: it cannot be read", record.name())), "{why}");
}

#[test]
fn a_record_that_somebody_has_deleted() {
    let mut items = outage();
    come_to(&mut items, Phase::Fenced);
    let name = record(&items).name().to_owned();
    gone(&mut items, "NodeRecovery", &name);
    gone(&mut items, "Pod", "db-0");
    assert!(refusal(&items, &nobody(), &Policy::default()).contains("nothing proves"));
    back(&mut items);
    assert!(then(&items).ask_running);
    assert!(then_running(&items, &["uid-db-0"]).deed.is_none());
    let tidied = then_running(&items, &[]);
    done(&mut items, tidied.deed);
    let node = find(&mut items, "Node", "a");
    assert!(!node.to_string().contains(OUT_OF_SERVICE), "{node}");
    assert!(refusal(&items, &nobody(), &Policy::default()).contains("its kubelet is alive"));
}

#[test]
fn evidence_for_some_pods_is_not_evidence_for_others() {
    let mut items = outage();
    items.push(pod("db-1", "a"));
    come_to(&mut items, Phase::Fenced);
    // Somebody takes the taint away; the next word is not accepted, and what is known of boot ids covers one pod.
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().retain(|t| t["key"] != OUT_OF_SERVICE);
    let mut former = record(&items);
    former.metadata.insert("name".into(), "a-former".into());
    former.spec.node.boot_id = "boot-0".into();
    former.status.phase = Phase::Returned;
    former.spec.plan.pods.iter_mut().for_each(|p| p.terminating = p.name == "db-0");
    keep(&mut items, &former);
    let policy = Policy { accept: [EvidenceKind::BootIdChanged].into(), ..Policy::default() };
    let mut words = confirmed();
    words.confirm_off =
        words.confirm_off.map(|s| stead_recovery::Said { at: s.at + jiff::SignedDuration::from_secs(1), ..s });
    let why = refusal(&items, &words, &policy);
    assert_eq!(why, "node a: pod x/db-1: the evidence (BootIdChanged) does not cover it");
}

#[test]
fn who_has_a_shield_keeps_it() {
    let mut items = outage();
    for node in ["b", "c"] {
        find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "1".into();
    }
    items.push(set("web", 3));
    items.extend(["web-0", "web-1"].map(|name| pod(name, "a")));
    does(&mut items, &confirmed(), &Policy::default());
    let shielded = record(&items).spec.plan.left_alone.iter().find_map(|l| l.shield.clone()).expect("no room for one");
    goes_on(&mut items);
    assert!(find(&mut items, "Pod", &shielded.name)["spec"]["tolerations"].to_string().contains(OUT_OF_SERVICE));
    // There is room now, and another pod has gone.
    find(&mut items, "Node", "b")["status"]["allocatable"]["cpu"] = "8".into();
    gone(&mut items, "Pod", if shielded.name == "web-0" { "web-1" } else { "web-0" });
    let policy = Policy { include_tolerating: true, ..Policy::default() };
    does(&mut items, &nobody(), &policy);
    let plan = record(&items).spec.plan;
    let left = plan.left_alone.iter().find(|l| l.shield.as_ref().is_some_and(|s| s.name == shielded.name));
    assert_eq!(left.and_then(|l| l.shield.clone()), Some(shielded.clone()), "{plan:?}");

    // Another time it goes where there is room, like the others.
    let mut undone = record(&items);
    undone.status.phase = Phase::Undone;
    undone.status.steps.iter_mut().for_each(|step| step.at = "2026-01-01T00:10:00Z".parse().unwrap());
    keep(&mut items, &undone);
    goes_on(&mut items);
    does(&mut items, &confirmed(), &Policy::default());
    let plan = record(&items).spec.plan;
    assert!(plan.pods.iter().any(|p| p.name == shielded.name && !p.taken), "{plan:?}");
}

#[test]
fn a_node_that_is_gone_leaves_no_shield() {
    let mut items = outage();
    items.push(pod("large-0", "a"));
    find(&mut items, "Pod", "large-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100".into();
    does(&mut items, &confirmed(), &Policy::default());
    goes_on(&mut items);
    find(&mut items, "Node", "a")["metadata"]["uid"] = "another".into();
    let lowers = then(&items);
    assert!(matches!(&lowers.deed, Some(Deed::Pod { name, .. }) if name == "large-0"), "{lowers:?}");
    done(&mut items, lowers.deed);
    assert_eq!(written(then(&items)).status.phase, Phase::Void);
}

/// What is waited for when pods and volumes are free.
fn waits(owner: &str, more: Vec<Value>) -> Vec<String> {
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["ownerReferences"][0] =
        json!({ "apiVersion": "x/v1", "kind": owner, "name": "o", "uid": "o", "controller": true });
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:30Z".into();
    items.extend(more);
    come_to(&mut items, Phase::Fenced);
    gone(&mut items, "Pod", "db-0");
    gone(&mut items, "VolumeAttachment", "va-v");
    for _ in 0..10 {
        let step = then(&items);
        if step.end == Some(End::Recovered) {
            return Vec::new();
        }
        if record(&items).status.phase == Phase::Released && !step.waits.is_empty() {
            return step.waits.into_iter().map(|w| format!("{}: {}", w.what, w.how)).collect();
        }
        done(&mut items, step.deed);
    }
    panic!("it does not come to an end: {:?}", record(&items).status);
}

fn made_by(kind: &str, name: &str, ready: bool, created: &str) -> Value {
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
fn nobody_waits_for_what_never_comes() {
    let (before, after) = ("2026-01-01T00:10:00Z", "2026-01-01T00:58:00Z");
    let job = |conditions: Value| vec![controller("Job", "o", json!({}), conditions)];
    assert_eq!(waits("Job", job(json!([]))), ["a pod of Job x/o: not made yet"]);
    assert_eq!(waits("Job", job(json!([{ "type": "Failed", "status": "True" }]))), [""; 0]);
    assert_eq!(waits("Job", Vec::new()), [""; 0], "it was deleted");
    assert_eq!(waits("Custom", Vec::new()), [""; 0]);
    let waiting = vec![made_by("Custom", "next", false, after)];
    assert_eq!(waits("Custom", waiting), ["a pod of Custom x/o: on b, not ready yet"]);

    let set = |replicas: i64| controller("ReplicaSet", "o", json!({ "replicas": replicas }), json!([]));
    assert_eq!(waits("ReplicaSet", vec![set(1)]), ["a pod of ReplicaSet x/o: not made yet"]);
    let broken = made_by("ReplicaSet", "broken", false, before);
    let next = |ready| made_by("ReplicaSet", "next", ready, after);
    assert_eq!(waits("ReplicaSet", vec![set(2), broken.clone(), next(true)]), [""; 0], "it was broken before");
    let not_yet = waits("ReplicaSet", vec![set(2), broken, next(false)]);
    assert_eq!(not_yet, ["a pod of ReplicaSet x/o: on b, not ready yet"]);

    // An update is under way: the old ReplicaSet wants none, and the Deployment one.
    let above = json!([{ "kind": "Deployment", "name": "d", "uid": "d", "controller": true }]);
    let mut old = set(0);
    old["metadata"]["ownerReferences"] = above.clone();
    let mut new = controller("ReplicaSet", "o2", json!({ "replicas": 1 }), json!([]));
    new["metadata"]["ownerReferences"] = above;
    let deployment = controller("Deployment", "d", json!({ "replicas": 1 }), json!([]));
    let all = |more: Vec<Value>| [vec![old.clone(), new.clone(), deployment.clone()], more].concat();
    assert_eq!(waits("ReplicaSet", all(Vec::new())), ["a pod of ReplicaSet x/o: not made yet"]);
    let mut successor = made_by("ReplicaSet", "next", true, after);
    successor["metadata"]["ownerReferences"][0]["uid"] = "o2".into();
    assert_eq!(waits("ReplicaSet", all(vec![successor])), [""; 0]);
}

#[test]
fn one_that_waits_for_its_successors_holds_nobody_up() {
    let mut items = outage();
    come_to(&mut items, Phase::Fenced);
    let mut released = record(&items);
    released.metadata.insert("name".into(), "b-1".into());
    (released.spec.node.name, released.spec.node.uid) = ("b".into(), "uid-b".into());
    let begins = |phase: Phase| {
        let mut items = outage();
        let mut released = released.clone();
        released.status.phase = phase;
        keep(&mut items, &released);
        next(&items, &confirmed(), &Policy { at_once: 1, ..Policy::default() }).deed.is_some()
    };
    assert!(!begins(Phase::Fenced) && begins(Phase::Released));
}

/// Between the record and the taint anything may happen to the room that was there.
#[test]
fn the_taint_is_put_by_a_plan_of_now() {
    let mut items = outage();
    does(&mut items, &confirmed(), &Policy::default());
    assert_eq!(record(&items).spec.plan.pods.len(), 1);
    for node in ["b", "c"] {
        find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "0".into();
    }
    // No taint for nothing: it is undone.
    for _ in 0..3 {
        goes_on(&mut items);
    }
    let now = record(&items).status;
    assert_eq!(now.phase, Phase::Undone, "{now:?}");
    assert!(now.steps.last().unwrap().what.contains("nothing is left there that could be freed"), "{now:?}");
    assert_eq!(find(&mut items, "Node", "a")["spec"]["taints"].as_array().unwrap().len(), 2);

    // Of two, the one that has no room any more is left alone.
    let mut items = outage();
    items.push(pod("web-0", "a"));
    does(&mut items, &confirmed(), &Policy::default());
    assert_eq!(record(&items).spec.plan.pods.len(), 2);
    gone(&mut items, "Node", "c");
    find(&mut items, "Node", "b")["status"]["allocatable"]["cpu"] = "1".into();
    goes_on(&mut items);
    let plan = record(&items).spec.plan;
    assert_eq!(plan.pods.len(), 1, "{plan:?}");
    assert!(plan.left_alone[0].what == "pod x/web-0" && plan.left_alone[0].shield.is_some(), "{plan:?}");

    // Where successors would go may change without another plan.
    let mut items = outage();
    does(&mut items, &confirmed(), &Policy::default());
    gone(&mut items, "Node", "b");
    assert!(matches!(then(&items).deed, Some(Deed::Node { .. })));
}

/// What was true an hour ago is no reason to begin now.
#[test]
fn words_last_ten_minutes_until_the_taint_is_there() {
    let mut items = outage();
    does(&mut items, &confirmed(), &Policy::default());
    let later = |items: &[Value], request: &Request, minutes: i64| {
        let objects = Objects::from_items(items.to_vec());
        let now = now() + jiff::SignedDuration::from_mins(minutes);
        let view = View::new("a", &objects, None, now);
        step(&view, record_of(&objects, "a").as_ref(), request, &Policy::default())
    };
    assert!(matches!(later(&items, &nobody(), 10).deed, Some(Deed::Node { .. })));
    let refused = later(&items, &nobody(), 11);
    assert!(matches!(&refused.end, Some(End::Refused(why)) if why.contains("make sure again")), "{refused:?}");
    // The same words again are not new ones.
    assert!(matches!(later(&items, &confirmed(), 11).end, Some(End::Refused(_))));
    let mut again = confirmed();
    again.confirm_off.as_mut().unwrap().at = now() + jiff::SignedDuration::from_mins(11);
    let renewed = later(&items, &again, 11);
    done(&mut items, renewed.deed);
    assert_eq!(record(&items).spec.evidence.len(), 2);
    assert!(matches!(later(&items, &nobody(), 12).deed, Some(Deed::Node { .. })));
    // Once it is there, the taint does its work.
    let tainted = later(&items, &nobody(), 12);
    done(&mut items, tainted.deed);
    assert!(
        matches!(later(&items, &nobody(), 60).deed, Some(Deed::Record(record)) if record.status.phase == Phase::Fenced)
    );
}

/// A toleration of no time is one all the same: a pod that is evicted later by other taints is evicted then.
#[test]
fn one_that_tolerates_the_taint_for_no_time_is_deleted() {
    let mut items = outage();
    let none = json!({ "key": OUT_OF_SERVICE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 });
    find(&mut items, "Pod", "db-0")["spec"]["tolerations"].as_array_mut().unwrap().push(none);
    come_to(&mut items, Phase::Fenced);
    let deed = then(&items).deed;
    assert!(matches!(&deed, Some(Deed::DeletePod { uid, .. }) if uid == "uid-db-0"), "{deed:?}");
}

/// What has ended is no replica: the successor is still to come.
#[test]
fn pods_that_have_ended_are_no_successors() {
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
        come_to(&mut items, Phase::Fenced);
        gone(&mut items, "Pod", "db-0");
        gone(&mut items, "VolumeAttachment", "va-v");
        goes_on(&mut items);
        goes_on(&mut items);
        let step = then(&items);
        assert!(step.waits.iter().any(|wait| wait.how == "not made yet"), "{phase}: {step:?}");
    }
}

/// A kubelet that runs nothing any more may still have volumes mounted that were released.
#[test]
fn the_taint_stays_while_a_released_volume_is_in_use() {
    let unique = "kubernetes.io/csi/cinder.csi.openstack.org^v";
    let returned = |in_use: &[&str], attached: bool| {
        let mut items = outage();
        come_to(&mut items, Phase::Fenced);
        gone(&mut items, "Pod", "db-0");
        if !attached {
            gone(&mut items, "VolumeAttachment", "va-v");
        }
        goes_on(&mut items);
        back(&mut items);
        find(&mut items, "Node", "a")["status"]["volumesInUse"] = json!(in_use);
        items
    };
    let stays = |items: &[Value]| !matches!(then_running(items, &[]).deed, Some(Deed::Node { .. }));
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
    // The record is gone: what is mounted without being attached tells.
    let mut orphaned = returned(&[unique], false);
    orphaned.retain(|i| i["kind"] != "NodeRecovery");
    assert!(stays(&orphaned));
    find(&mut orphaned, "Node", "a")["status"]["volumesInUse"] = json!([]);
    assert!(!stays(&orphaned));
    // In another boot nothing of this one is mounted, and its taint goes at once.
    let mut rebooted = returned(&[unique], false);
    find(&mut rebooted, "Node", "a")["status"]["nodeInfo"]["bootID"] = "boot-2".into();
    assert!(!stays(&rebooted));
}

/// On storage that does not revoke access, pods are Terminating before the taint is there: no kubelet starts them again.
#[test]
fn pods_with_unrevoked_volumes_are_deleted_before_the_taint() {
    let mut items = outage();
    find(&mut items, "PersistentVolume", "v")["spec"]["csi"]["driver"] = "nfs.csi.k8s.io".into();
    let stated = Request { powered_off: true, ..confirmed() };
    does(&mut items, &stated, &Policy::default());
    let deed = then(&items).deed;
    let expected = |uid: &str, version: &str| uid == "uid-db-0" && version == "3";
    assert!(
        matches!(&deed, Some(Deed::DeletePod { uid, resource_version, .. }) if expected(uid, resource_version)),
        "{deed:?}"
    );
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:30Z".into();
    assert!(matches!(then(&items).deed, Some(Deed::Node { .. })));
}
