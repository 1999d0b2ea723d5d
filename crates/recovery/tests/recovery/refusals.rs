//! Refusals: the state of the cluster, and the message.

use serde_json::{Value, json};
use stead_recovery::{EvidenceKind, RecoveryPhase, RecoveryPolicy, RecoveryRequest};

use crate::cluster::{
    confirmed, find, lease, next, next_for, node, now, outage, pod, refusal, set, statement, store, unreachable,
    with_volume, written,
};

/// Checks the message for the outage with a change.
fn check(change: impl FnOnce(&mut Vec<Value>), request: &RecoveryRequest, policy: &RecoveryPolicy, words: &str) {
    let mut items = outage();
    change(&mut items);
    assert_eq!(refusal(&items, request, policy), words);
}

fn plain_request() -> RecoveryRequest {
    RecoveryRequest { who: "anna".into(), ..RecoveryRequest::default() }
}

#[test]
fn the_node_does_not_exist() {
    let words = "node a: not found";
    check(|items| items.retain(|i| i["kind"] != "Node"), &confirmed(), &RecoveryPolicy::default(), words);
}

/// A plan without a malformed pod would be wrong.
#[test]
fn a_pod_of_the_node_is_malformed() {
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["spec"]["containers"] = "none".into();
    let why = refusal(&items, &confirmed(), &RecoveryPolicy::default());
    assert!(why.starts_with("pod x/db-0: spec.containers: "), "{why}");
}

#[test]
fn the_node_is_alive() {
    let policy = RecoveryPolicy::default();
    let ready = |items: &mut Vec<Value>| *find(items, "Node", "a") = node("a", "z1");
    check(ready, &confirmed(), &policy, "node a: its condition Ready is True: its kubelet is alive");
    let fresh = |items: &mut Vec<Value>| *find(items, "Lease", "a") = lease("a", "2026-01-01T00:59:30Z");
    let words = "node a: lease kube-node-lease/a was renewed at 2026-01-01T00:59:30Z for 40 s: its kubelet is alive";
    check(fresh, &confirmed(), &policy, words);
    let says = |items: &mut Vec<Value>| find(items, "Node", "a")["status"]["conditions"][0]["status"] = "False".into();
    let words = "node a: its condition Ready is False, which its kubelet reports itself: its kubelet is alive; once \
                 it is unreachable, the node controller sets the condition to Unknown";
    check(says, &confirmed(), &policy, words);
}

/// Two of three nodes are unreachable.
fn two_of_three() -> Vec<Value> {
    let mut items = outage();
    *find(&mut items, "Node", "b") = unreachable("b", "z2");
    items.push(lease("b", "2026-01-01T00:49:10Z"));
    items.extend(with_volume(pod("web-0", "b"), "w"));
    items.push(set("web", 1));
    items
}

#[test]
fn most_nodes_are_unreachable() {
    let words = "node a: 2 of 3 nodes are not Ready: when most nodes are unreachable, the cause is usually the \
                 network or the control plane; each of them needs its own evidence that it is off, and b has none: \
                 stead recover node/b --confirm-off \"REASON\"";
    let mut items = two_of_three();
    assert_eq!(refusal(&items, &plain_request(), &RecoveryPolicy::default()), words);
    // The confirmation is recorded, because it is evidence for this node. Nothing else is done.
    let record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    assert_eq!((record.status.phase, record.status.message.as_str()), (RecoveryPhase::Held, words));
    store(&mut items, &record);
    assert_eq!(refusal(&items, &confirmed(), &RecoveryPolicy::default()), words);

    let mut all = two_of_three();
    *find(&mut all, "Node", "c") = unreachable("c", "z2");
    let words = "node a: 3 of 3 nodes are not Ready: the cause is the network or the control plane, or no node is \
                 left to recover to";
    assert_eq!(refusal(&all, &plain_request(), &RecoveryPolicy::default()), words);
}

#[test]
fn most_nodes_are_unreachable_and_each_has_its_own_evidence() {
    let mut items = two_of_three();
    let held = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    store(&mut items, &held);
    let of_b = written(next_for("b", &items, &confirmed(), &RecoveryPolicy::default()));
    assert_eq!(of_b.status.phase, RecoveryPhase::Planned, "{:?}", of_b.status);

    let refused = |items: &[Value]| {
        let record = written(next_for("b", items, &confirmed(), &RecoveryPolicy::default()));
        assert_eq!(record.status.phase, RecoveryPhase::Held, "{:?}", record.status);
    };
    // A sign of life since, evidence that is too old, an end, or another boot: no proof any more.
    let mut heard = items.clone();
    *find(&mut heard, "Lease", "a") = lease("a", "2026-01-01T00:52:00Z");
    refused(&heard);
    let mut old = items.clone();
    find(&mut old, "NodeRecovery", held.name())["spec"]["evidence"][0]["at"] = "2026-01-01T00:49:59Z".into();
    refused(&old);
    let mut over = items.clone();
    find(&mut over, "NodeRecovery", held.name())["status"]["phase"] = "Undone".into();
    refused(&over);
    let mut rebooted = items.clone();
    find(&mut rebooted, "Node", "a")["status"]["nodeInfo"]["bootID"] = "boot-2".into();
    refused(&rebooted);
    let mut not_read = items.clone();
    not_read.retain(|i| i["kind"] != "Lease" || i["metadata"]["name"] != "a");
    refused(&not_read);

    // The current report of the cloud is evidence without a record.
    let mut cloud = two_of_three();
    let shutdown = json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
    find(&mut cloud, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().push(shutdown);
    refused(&cloud);
    let accepting = RecoveryPolicy {
        accept: [EvidenceKind::Person, EvidenceKind::CloudShutdown].into(),
        ..RecoveryPolicy::default()
    };
    let of_b = written(next_for("b", &cloud, &confirmed(), &accepting));
    assert_eq!(of_b.status.phase, RecoveryPhase::Planned, "{:?}", of_b.status);
}

/// On storage that does not revoke access, a suspended machine does not count as off.
#[test]
fn the_machine_is_not_stated_to_be_powered_off() {
    let words = |driver: &str| {
        format!(
            "node a: volume v ({driver}) of pod x/db-0: detaching does not stop the machine from writing to it, so a suspended \
             machine does not count as off; state that the machine is powered off with --powered-off"
        )
    };
    for driver in ["example.com", "nfs.csi.k8s.io", "rook-ceph.rbd.csi.ceph.com", "driver.longhorn.io"] {
        let mut items = outage();
        find(&mut items, "PersistentVolume", "v")["spec"]["csi"]["driver"] = driver.into();
        assert_eq!(refusal(&items, &confirmed(), &RecoveryPolicy::default()), words(driver));
        let stated = RecoveryRequest { powered_off: true, ..confirmed() };
        let record = written(next(&items, &stated, &RecoveryPolicy::default()));
        assert!(record.spec.evidence[0].powered_off);
        // The policy can name drivers that revoke access in this cluster.
        let known = RecoveryPolicy { detach_revokes: [driver.to_owned()].into(), ..RecoveryPolicy::default() };
        assert!(!written(next(&items, &confirmed(), &known)).spec.evidence[0].powered_off);
        // A record of an earlier version does not have this field.
        let mut before = record.clone();
        before.spec.evidence[0].powered_off = false;
        store(&mut items, &before);
        assert_eq!(refusal(&items, &plain_request(), &RecoveryPolicy::default()), words(driver));
        assert_eq!(written(next(&items, &stated, &RecoveryPolicy::default())).spec.evidence.len(), 2);
    }
    // In-tree NFS, a file volume of vSphere, and a volume that is only read.
    let source = |change: &dyn Fn(&mut Value)| {
        let mut items = outage();
        change(&mut find(&mut items, "PersistentVolume", "v")["spec"]);
        next(&items, &confirmed(), &RecoveryPolicy::default()).end
    };
    assert!(source(&|spec| *spec = json!({ "nfs": { "server": "s", "path": "/" } })).is_some());
    let vsphere = |handle: &str| json!({ "driver": "csi.vsphere.vmware.com", "volumeHandle": handle });
    assert!(source(&|spec| spec["csi"] = vsphere("file:1")).is_some());
    assert!(source(&|spec| spec["csi"] = vsphere("1")).is_none());
    assert!(source(&|spec| spec["accessModes"] = json!(["ReadOnlyMany"])).is_none());
}

#[test]
fn no_evidence() {
    let words = "node a: no evidence that its machine is off; the policy accepts: Person; if you made sure that the \
                 machine is off, confirm it with --confirm-off \"REASON\"";
    check(|_| {}, &plain_request(), &RecoveryPolicy::default(), words);

    let nothing = RecoveryPolicy { accept: [].into(), ..RecoveryPolicy::default() };
    let words = "node a: no evidence that its machine is off; there is evidence of kind Person, which the policy does \
                 not accept; the policy accepts no evidence: its accept is empty";
    check(|_| {}, &confirmed(), &nothing, words);

    let empty = RecoveryRequest { confirm_off: statement(" "), ..plain_request() };
    let words = "node a: no evidence that its machine is off; --confirm-off has no reason: say how you know that the \
                 machine is off; the policy accepts: Person";
    check(|_| {}, &empty, &RecoveryPolicy::default(), words);

    let cloud = RecoveryPolicy { accept: [EvidenceKind::CloudShutdown].into(), ..RecoveryPolicy::default() };
    let words = "node a: no evidence that its machine is off; it has the taint \
                 node.cloudprovider.kubernetes.io/shutdown, but no spec.providerID; the policy accepts: CloudShutdown";
    let change = |items: &mut Vec<Value>| {
        let node = find(items, "Node", "a");
        node["spec"]["taints"] =
            json!([{ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" }]);
        node["spec"]["providerID"] = Value::Null;
    };
    check(change, &plain_request(), &cloud, words);
}

#[test]
fn a_confirmation_that_is_older_than_the_outage() {
    let mut request = confirmed();
    request.confirm_off.as_mut().unwrap().at = "2026-01-01T00:40:00Z".parse().unwrap();
    let words = "node a: no evidence that its machine is off; anna confirmed at 2026-01-01T00:40:00Z that the machine \
                 is off, but the node's last heartbeat, or the start of the outage, was later, at \
                 2026-01-01T00:50:00Z: confirm again; the policy accepts: Person";
    check(|_| {}, &request, &RecoveryPolicy::default(), words);

    // The Lease was renewed once more, and the condition of the node did not change.
    request.confirm_off.as_mut().unwrap().at = "2026-01-01T00:51:00Z".parse().unwrap();
    let change = |items: &mut Vec<Value>| *find(items, "Lease", "a") = lease("a", "2026-01-01T00:52:00Z");
    let words = "node a: no evidence that its machine is off; anna confirmed at 2026-01-01T00:51:00Z that the machine \
                 is off, but the node's last heartbeat, or the start of the outage, was later, at \
                 2026-01-01T00:52:00Z: confirm again; the policy accepts: Person";
    check(change, &request, &RecoveryPolicy::default(), words);
}

#[test]
fn a_shutdown_taint_of_an_earlier_outage() {
    let cloud = RecoveryPolicy { accept: [EvidenceKind::CloudShutdown].into(), ..RecoveryPolicy::default() };
    let shutdown = json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
    let mut items = outage();
    find(&mut items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().push(shutdown.clone());
    let record = written(next(&items, &plain_request(), &cloud));
    assert_eq!(record.spec.evidence[0].kind, EvidenceKind::CloudShutdown);

    let words = "node a: no evidence that its machine is off; its taint node.cloudprovider.kubernetes.io/shutdown is \
                 older than this outage: the cloud removes it only when the node is Ready again, and the machine may \
                 have been started since; the policy accepts: CloudShutdown";
    *find(&mut items, "Lease", "a") = lease("a", "2026-01-01T00:52:00Z");
    assert_eq!(refusal(&items, &plain_request(), &cloud), words);
    *find(&mut items, "Lease", "a") = lease("a", "2026-01-01T00:49:10Z");
    let before = |items: &mut Vec<Value>| {
        find(items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().insert(0, shutdown);
    };
    check(before, &plain_request(), &cloud, words);
}

/// The evidence of a cloud has the time of its source, and expires.
#[test]
fn a_shutdown_taint_that_has_expired() {
    let cloud = RecoveryPolicy { accept: [EvidenceKind::CloudShutdown].into(), ..RecoveryPolicy::default() };
    let items = |unreachable: Option<&str>, owner: &str, changed: &str| {
        let mut items = outage();
        let node = find(&mut items, "Node", "a");
        let shutdown = json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
        let taints = node["spec"]["taints"].as_array_mut().unwrap();
        taints.iter_mut().for_each(|taint| taint["timeAdded"] = json!(unreachable));
        taints.push(shutdown);
        node["metadata"]["managedFields"] = json!([
            { "manager": "kubelet", "time": "2026-01-01T00:59:59Z", "fieldsV1": { "f:status": {} } },
            { "manager": owner, "time": changed, "fieldsV1": { "f:spec": { "f:taints": {} } } },
        ]);
        items
    };
    let (early, late) = ("2026-01-01T00:49:59Z", "2026-01-01T00:50:00Z");
    let ccm = "openstack-cloud-controller-manager";
    // The cloud's controller was the last to change the taints.
    let record = written(next(&items(Some(early), ccm, late), &plain_request(), &cloud));
    assert_eq!(record.spec.evidence[0].statement.at.to_string(), late);
    assert!(record.spec.evidence[0].powered_off);
    let words = "node a: no evidence that its machine is off; its taint node.cloudprovider.kubernetes.io/shutdown was \
                 set at 2026-01-01T00:49:59Z, more than 10 minutes ago: the machine may have been started since; the \
                 policy accepts: CloudShutdown";
    assert_eq!(refusal(&items(Some(late), ccm, early), &plain_request(), &cloud), words);
    // Somebody else was: the taint was set after the taints before it, at the earliest.
    let record = written(next(&items(Some(late), "kubectl-taint", early), &plain_request(), &cloud));
    assert_eq!(record.spec.evidence[0].statement.at.to_string(), late);
    assert_eq!(refusal(&items(Some(early), "kubectl-taint", late), &plain_request(), &cloud), words);
    // The time is unknown.
    let words = "node a: no evidence that its machine is off; it has the taint \
                 node.cloudprovider.kubernetes.io/shutdown, but neither metadata.managedFields nor the taints before \
                 it say when it was set; the policy accepts: CloudShutdown";
    assert_eq!(refusal(&items(None, "kubectl-taint", late), &plain_request(), &cloud), words);
}

#[test]
fn nothing_to_release() {
    let words = "node a: no pod or volume to release";
    check(
        |items| items.retain(|i| i["kind"] != "Pod" && i["kind"] != "VolumeAttachment"),
        &confirmed(),
        &RecoveryPolicy::default(),
        words,
    );
}

#[test]
fn no_node_can_run_the_replacement_of_a_terminating_pod() {
    let words = "pod x/db-0: it is Terminating, so that the taint would remove it at once, and no node can run its \
                 replacement: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new \
                 claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for \
                 scheduling.; make room first, or allow it (allowPending)";
    let change = |items: &mut Vec<Value>| {
        find(items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:00Z".into();
        find(items, "Pod", "db-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9".into();
    };
    check(change, &confirmed(), &RecoveryPolicy::default(), words);
}

#[test]
fn as_many_nodes_as_allowed_are_being_recovered() {
    let mut items = outage();
    let mut other = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    other.metadata.insert("name".into(), "b-1".into());
    other.spec.node.name = "b".into();
    other.status.phase = RecoveryPhase::Fenced;
    store(&mut items, &other);
    let words = "node a: the policy's atOncePerZone is 1, and b is being recovered: finish that recovery, or undo it \
                 with --abort";
    assert_eq!(refusal(&items, &confirmed(), &RecoveryPolicy::default()), words);
    let one = RecoveryPolicy { at_once: 1, ..RecoveryPolicy::default() };
    let words = "node a: the policy's atOnce is 1, and b is being recovered: finish that recovery, or undo it with \
                 --abort";
    assert_eq!(refusal(&items, &confirmed(), &one), words);
}

#[test]
fn an_abort_before_or_too_late() {
    let abort = RecoveryRequest { abort: statement("it is back"), ..plain_request() };
    check(|_| {}, &abort, &RecoveryPolicy::default(), "node a: no recovery to abort");

    let mut items = outage();
    let mut record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    record.status.phase = RecoveryPhase::Fenced;
    record.status.no_return_since = Some(now());
    store(&mut items, &record);
    let words = "node a: too late to abort: pods or volumes were released at 2026-01-01T01:00:00Z; the taint is \
                 removed when the node is back";
    assert_eq!(refusal(&items, &abort, &RecoveryPolicy::default()), words);
}

#[test]
fn somebody_removed_the_taint() {
    let mut items = outage();
    let mut record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    record.status.phase = RecoveryPhase::Fenced;
    store(&mut items, &record);
    let stopped = written(next(&items, &plain_request(), &RecoveryPolicy::default()));
    store(&mut items, &stopped);
    let words = "node a: somebody removed the taint node.kubernetes.io/out-of-service before all pods and volumes \
                 were released: confirm again with --confirm-off to continue, or undo the recovery with --abort";
    assert_eq!(stopped.status.message, words);
    assert_eq!(refusal(&items, &plain_request(), &RecoveryPolicy::default()), words);
}

#[test]
fn a_policy_that_became_stricter() {
    let mut items = outage();
    let record = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    store(&mut items, &record);
    let cloud = RecoveryPolicy { accept: [EvidenceKind::CloudShutdown].into(), ..RecoveryPolicy::default() };
    let words = "node a: the policy no longer accepts Person, the evidence that this recovery was started with";
    assert_eq!(refusal(&items, &plain_request(), &cloud), words);
}

#[test]
fn a_restart_is_evidence_for_terminating_pods_only() {
    let policy = RecoveryPolicy { accept: [EvidenceKind::BootIdChanged].into(), ..RecoveryPolicy::default() };
    let mut items = outage();
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:00Z".into();
    let mut former = written(next(&items, &confirmed(), &RecoveryPolicy::default()));
    former.status.phase = RecoveryPhase::Undone;
    store(&mut items, &former);
    find(&mut items, "Node", "a")["status"]["nodeInfo"]["bootID"] = "boot-2".into();
    // A pod that was being deleted before the restart is not started again.
    let record = written(next(&items, &plain_request(), &policy));
    assert_eq!(record.spec.evidence[0].kind, EvidenceKind::BootIdChanged);
    assert_eq!(record.spec.evidence[0].pods.as_deref(), Some(["uid-db-0".to_owned()].as_slice()));
    // A pod that is not being deleted may run: it stays.
    items.push(pod("web-0", "a"));
    let record = written(next(&items, &plain_request(), &policy));
    assert_eq!(record.spec.plan.pods.len(), 1);
    assert!(record.spec.plan.left_alone[0].added_tolerations.is_some());
    // A pod that is being deleted since the restart may run, and the taint would remove it.
    find(&mut items, "Pod", "web-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:56:00Z".into();
    let words = "pod x/web-0: the evidence (BootIdChanged) does not prove that it has stopped, and the taint would \
                 remove it";
    assert_eq!(refusal(&items, &plain_request(), &policy), words);
}

#[test]
fn a_policy_is_read_strictly() {
    let policy: RecoveryPolicy =
        serde_json::from_value(json!({ "accept": ["Person", "CloudShutdown"], "atOnce": 3 })).unwrap();
    assert_eq!((policy.at_once, policy.at_once_per_zone, policy.accept.len()), (3, 1, 2));
    let wrong = serde_json::from_value::<RecoveryPolicy>(json!({ "acept": [] })).unwrap_err().to_string();
    assert!(wrong.starts_with("unknown field `acept`"), "{wrong}");
}
