//! What is said where nothing is done: a table of situations and words.

use serde_json::{Value, json};
use stead_recovery::{EvidenceKind, Phase, Policy, Request};

use crate::cluster::{confirmed, find, keep, lease, next, node, now, outage, pod, refusal, said, silent, written};

/// The outage with a change, and what is said of it.
fn check(change: impl FnOnce(&mut Vec<Value>), request: &Request, policy: &Policy, words: &str) {
    let mut items = outage();
    change(&mut items);
    assert_eq!(refusal(&items, request, policy), words);
}

fn nobody() -> Request {
    Request { who: "anna".into(), ..Request::default() }
}

#[test]
fn a_node_that_is_not_there() {
    let words = "node a: not found";
    check(|items| items.retain(|i| i["kind"] != "Node"), &confirmed(), &Policy::default(), words);
}

#[test]
fn a_node_that_is_alive() {
    let policy = Policy::default();
    let ready = |items: &mut Vec<Value>| *find(items, "Node", "a") = node("a", "z1");
    check(ready, &confirmed(), &policy, "node a: its condition Ready is True: its kubelet is alive");
    let fresh = |items: &mut Vec<Value>| *find(items, "Lease", "a") = lease("a", "2026-01-01T00:59:30Z");
    let words = "node a: lease kube-node-lease/a was renewed at 2026-01-01T00:59:30Z, which is good for 40 s: its kubelet \
                 is alive";
    check(fresh, &confirmed(), &policy, words);
    let says = |items: &mut Vec<Value>| find(items, "Node", "a")["status"]["conditions"][0]["status"] = "False".into();
    let words = "node a: its condition Ready is False: its kubelet says so itself, and is alive; once it is silent, the node \
                 controller makes that Unknown";
    check(says, &confirmed(), &policy, words);
}

#[test]
fn most_nodes_are_silent() {
    let words = "node a: 2 of 3 nodes are not Ready: where most are silent it is the network or the control plane, and not \
                 the nodes";
    let change = |items: &mut Vec<Value>| *find(items, "Node", "b") = silent("b", "z1");
    check(change, &confirmed(), &Policy::default(), words);
}

#[test]
fn no_evidence() {
    let words = "node a: nothing proves that its machine is off; the policy accepts: Person; where you have made sure that the \
                 machine is off, say so with --confirm-off \"REASON\"";
    check(|_| {}, &nobody(), &Policy::default(), words);

    let nothing = Policy { accept: [].into(), ..Policy::default() };
    let words = "node a: nothing proves that its machine is off; there is evidence of kind Person, which the policy's accept does \
                 not list; the policy accepts no kind of evidence: its accept is empty";
    check(|_| {}, &confirmed(), &nothing, words);

    let empty = Request { confirm_off: said(" "), ..nobody() };
    let words = "node a: nothing proves that its machine is off; --confirm-off has no reason: say how it is known that the machine \
                 is off; the policy accepts: Person";
    check(|_| {}, &empty, &Policy::default(), words);

    let cloud = Policy { accept: [EvidenceKind::CloudShutdown].into(), ..Policy::default() };
    let words = "node a: nothing proves that its machine is off; node a has the taint \
                 node.cloudprovider.kubernetes.io/shutdown and no spec.providerID; the policy accepts: CloudShutdown";
    let change = |items: &mut Vec<Value>| {
        let node = find(items, "Node", "a");
        node["spec"]["taints"] =
            json!([{ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" }]);
        node["spec"]["providerID"] = Value::Null;
    };
    check(change, &nobody(), &cloud, words);
}

#[test]
fn words_that_are_too_old() {
    let mut request = confirmed();
    request.confirm_off.as_mut().unwrap().at = "2026-01-01T00:40:00Z".parse().unwrap();
    let words = "node a: nothing proves that its machine is off; anna said at 2026-01-01T00:40:00Z that the machine is off, and \
                 node a was heard of, or went silent, at 2026-01-01T00:50:00Z, after that: say it again; the policy accepts: \
                 Person";
    check(|_| {}, &request, &Policy::default(), words);

    // It spoke once more, and the node controller has nothing to say to that: the node is silent as it was.
    request.confirm_off.as_mut().unwrap().at = "2026-01-01T00:51:00Z".parse().unwrap();
    let change = |items: &mut Vec<Value>| *find(items, "Lease", "a") = lease("a", "2026-01-01T00:52:00Z");
    let words = "node a: nothing proves that its machine is off; anna said at 2026-01-01T00:51:00Z that the machine is off, and \
                 node a was heard of, or went silent, at 2026-01-01T00:52:00Z, after that: say it again; the policy accepts: \
                 Person";
    check(change, &request, &Policy::default(), words);
}

#[test]
fn what_the_cloud_said_of_an_earlier_silence() {
    let cloud = Policy { accept: [EvidenceKind::CloudShutdown].into(), ..Policy::default() };
    let shutdown = json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
    let mut items = outage();
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().push(shutdown.clone());
    let record = written(next(&items, &nobody(), &cloud));
    assert_eq!(record.spec.evidence[0].kind, EvidenceKind::CloudShutdown);

    let words = "node a: nothing proves that its machine is off; node a has the taint \
                 node.cloudprovider.kubernetes.io/shutdown, which is older than its silence: its cloud takes it away only when \
                 the node is Ready again, and the machine may have been started since; the policy accepts: CloudShutdown";
    *find(&mut items, "Lease", "a") = lease("a", "2026-01-01T00:52:00Z");
    assert_eq!(refusal(&items, &nobody(), &cloud), words);
    let before = |items: &mut Vec<Value>| {
        find(items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().insert(0, shutdown);
    };
    check(before, &nobody(), &cloud, words);
}

#[test]
fn nothing_to_do() {
    let words = "node a: no pod and no volume there is to be freed";
    check(
        |items| items.retain(|i| i["kind"] != "Pod" && i["kind"] != "VolumeAttachment"),
        &confirmed(),
        &Policy::default(),
        words,
    );
}

#[test]
fn no_place_for_a_pod_that_cannot_be_kept() {
    let words = "pod x/db-0: it is Terminating, which the taint would end at once, and its successor would find no place: 0/3 \
                 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to deallocate, \
                 preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.; make room first, or allow it \
                 (allowPending)";
    let change = |items: &mut Vec<Value>| {
        find(items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:00Z".into();
        find(items, "Pod", "db-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9".into();
    };
    check(change, &confirmed(), &Policy::default(), words);
}

#[test]
fn others_come_first() {
    let mut items = outage();
    let mut other = written(next(&items, &confirmed(), &Policy::default()));
    other.metadata.insert("name".into(), "b-1".into());
    other.spec.node.name = "b".into();
    other.status.phase = Phase::Fenced;
    keep(&mut items, &other);
    let words =
        "node a: the policy's atOncePerZone is 1, and a recovery of b is under way: finish it, or end it with --abort";
    assert_eq!(refusal(&items, &confirmed(), &Policy::default()), words);
    let one = Policy { at_once: 1, ..Policy::default() };
    let words = "node a: the policy's atOnce is 1, and a recovery of b is under way: finish it, or end it with --abort";
    assert_eq!(refusal(&items, &confirmed(), &one), words);
}

#[test]
fn an_abort_that_is_too_early_or_too_late() {
    let abort = Request { abort: said("it is back"), ..nobody() };
    check(|_| {}, &abort, &Policy::default(), "node a: there is no recovery that could be ended");

    let mut items = outage();
    let mut record = written(next(&items, &confirmed(), &Policy::default()));
    record.status.phase = Phase::Fenced;
    record.status.no_return_since = Some(now());
    keep(&mut items, &record);
    let words = "node a: there is no way back since 2026-01-01T01:00:00Z: pods or volumes of it were taken; the taint goes when the node \
                 is back";
    assert_eq!(refusal(&items, &abort, &Policy::default()), words);
}

#[test]
fn somebody_has_taken_the_taint_away() {
    let mut items = outage();
    let mut record = written(next(&items, &confirmed(), &Policy::default()));
    record.status.phase = Phase::Fenced;
    keep(&mut items, &record);
    let stopped = written(next(&items, &nobody(), &Policy::default()));
    keep(&mut items, &stopped);
    let words = "node a: somebody has taken the taint node.kubernetes.io/out-of-service away before all was free: say --confirm-off \
                 again to go on, or --abort";
    assert_eq!(stopped.status.message, words);
    assert_eq!(refusal(&items, &nobody(), &Policy::default()), words);
}

#[test]
fn a_policy_that_became_stricter() {
    let mut items = outage();
    let record = written(next(&items, &confirmed(), &Policy::default()));
    keep(&mut items, &record);
    let cloud = Policy { accept: [EvidenceKind::CloudShutdown].into(), ..Policy::default() };
    let words = "node a: the policy's accept does not list Person, by which this was begun";
    assert_eq!(refusal(&items, &nobody(), &cloud), words);
}

#[test]
fn a_machine_that_was_started_anew_proves_little() {
    let policy = Policy { accept: [EvidenceKind::BootIdChanged].into(), ..Policy::default() };
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:00Z".into();
    let mut former = written(next(&items, &confirmed(), &Policy::default()));
    former.status.phase = Phase::Undone;
    keep(&mut items, &former);
    find(&mut items, "Node", "a")["status"]["nodeInfo"]["bootID"] = "boot-2".into();
    // What was being deleted in the former life does not run in this one.
    let record = written(next(&items, &nobody(), &policy));
    assert_eq!(record.spec.evidence[0].kind, EvidenceKind::BootIdChanged);
    assert_eq!(record.spec.evidence[0].pods.as_deref(), Some(["uid-db-0".to_owned()].as_slice()));
    // What is not being deleted may run: it is kept.
    items.push(pod("web-0", "a"));
    let record = written(next(&items, &nobody(), &policy));
    assert_eq!(record.spec.plan.pods.len(), 1);
    assert!(record.spec.plan.left_alone[0].shield.is_some());
    // What is being deleted since then may run, and cannot be kept.
    find(&mut items, "Pod", "web-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:56:00Z".into();
    let words = "pod x/web-0: the evidence (BootIdChanged) does not prove that it has ended, and it cannot be kept from the taint";
    assert_eq!(refusal(&items, &nobody(), &policy), words);
}

#[test]
fn a_policy_is_read_strictly() {
    let policy: Policy = serde_json::from_value(json!({ "accept": ["Person", "CloudShutdown"], "atOnce": 3 })).unwrap();
    assert_eq!((policy.at_once, policy.at_once_per_zone, policy.accept.len()), (3, 1, 2));
    let wrong = serde_json::from_value::<Policy>(json!({ "acept": [] })).unwrap_err().to_string();
    assert!(wrong.starts_with("unknown field `acept`"), "{wrong}");
}
