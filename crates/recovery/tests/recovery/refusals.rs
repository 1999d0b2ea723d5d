//! What is said where nothing is done: a table of situations and words.

use serde_json::{Value, json};
use stead_recovery::{EvidenceKind, Phase, Policy, Request};

use crate::cluster::{
    confirmed, find, keep, lease, next, next_of, node, now, outage, pod, refusal, said, set, silent, with_volume,
    written,
};

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

/// Two of three nodes are unreachable.
fn two_of_three() -> Vec<Value> {
    let mut items = outage();
    *find(&mut items, "Node", "b") = silent("b", "z2");
    items.push(lease("b", "2026-01-01T00:49:10Z"));
    items.extend(with_volume(pod("web-0", "b"), "w"));
    items.push(set("web", 1));
    items
}

#[test]
fn most_nodes_are_unreachable() {
    let words = "node a: 2 of 3 nodes are not Ready: when most nodes are unreachable, the cause is usually the network or the \
                 control plane; each of them needs its own proof that it is off, and b has none: stead recover node/b \
                 --confirm-off \"REASON\"";
    let mut items = two_of_three();
    assert_eq!(refusal(&items, &nobody(), &Policy::default()), words);
    // A confirmation is recorded: it is this node's own proof. Nothing is done by it alone.
    let record = written(next(&items, &confirmed(), &Policy::default()));
    assert_eq!((record.status.phase, record.status.message.as_str()), (Phase::Held, words));
    keep(&mut items, &record);
    assert_eq!(refusal(&items, &confirmed(), &Policy::default()), words);

    let mut all = two_of_three();
    *find(&mut all, "Node", "c") = silent("c", "z2");
    let words = "node a: 3 of 3 nodes are not Ready: the cause is the network or the control plane, or no node is left to \
                 recover to";
    assert_eq!(refusal(&all, &nobody(), &Policy::default()), words);
}

#[test]
fn most_nodes_are_unreachable_and_each_has_its_own_proof() {
    let mut items = two_of_three();
    let held = written(next(&items, &confirmed(), &Policy::default()));
    keep(&mut items, &held);
    let of_b = written(next_of("b", &items, &confirmed(), &Policy::default()));
    assert_eq!(of_b.status.phase, Phase::Planned, "{:?}", of_b.status);

    let refused = |items: &[Value]| {
        let record = written(next_of("b", items, &confirmed(), &Policy::default()));
        assert_eq!(record.status.phase, Phase::Held, "{:?}", record.status);
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

    // What its cloud says now is proof without any record.
    let mut cloud = two_of_three();
    let shutdown = json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
    find(&mut cloud, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().push(shutdown);
    refused(&cloud);
    let accepting = Policy { accept: [EvidenceKind::Person, EvidenceKind::CloudShutdown].into(), ..Policy::default() };
    let of_b = written(next_of("b", &cloud, &confirmed(), &accepting));
    assert_eq!(of_b.status.phase, Phase::Planned, "{:?}", of_b.status);
}

/// On storage that goes on serving a machine, a suspended machine does not count as off.
#[test]
fn the_power_is_not_stated_to_be_off() {
    let words = |driver: &str| {
        format!(
            "node a: volume v ({driver}) of pod x/db-0: detaching does not stop the machine from writing to it, so a suspended \
             machine does not count as off; state that the machine is powered off with --powered-off"
        )
    };
    for driver in ["example.com", "nfs.csi.k8s.io", "rook-ceph.rbd.csi.ceph.com", "driver.longhorn.io"] {
        let mut items = outage();
        find(&mut items, "PersistentVolume", "v")["spec"]["csi"]["driver"] = driver.into();
        assert_eq!(refusal(&items, &confirmed(), &Policy::default()), words(driver));
        let stated = Request { powered_off: true, ..confirmed() };
        let record = written(next(&items, &stated, &Policy::default()));
        assert!(record.spec.evidence[0].powered_off);
        // Somebody who knows how their driver is configured can say so.
        let known = Policy { detach_revokes: [driver.to_owned()].into(), ..Policy::default() };
        assert!(!written(next(&items, &confirmed(), &known)).spec.evidence[0].powered_off);
        // A record of an earlier version does not have the statement.
        let mut before = record.clone();
        before.spec.evidence[0].powered_off = false;
        keep(&mut items, &before);
        assert_eq!(refusal(&items, &nobody(), &Policy::default()), words(driver));
        assert_eq!(written(next(&items, &stated, &Policy::default())).spec.evidence.len(), 2);
    }
    // In-tree NFS, a file volume of vSphere, and a volume that is only read.
    let source = |change: &dyn Fn(&mut Value)| {
        let mut items = outage();
        change(&mut find(&mut items, "PersistentVolume", "v")["spec"]);
        next(&items, &confirmed(), &Policy::default()).end
    };
    assert!(source(&|spec| *spec = json!({ "nfs": { "server": "s", "path": "/" } })).is_some());
    let vsphere = |handle: &str| json!({ "driver": "csi.vsphere.vmware.com", "volumeHandle": handle });
    assert!(source(&|spec| spec["csi"] = vsphere("file:1")).is_some());
    assert!(source(&|spec| spec["csi"] = vsphere("1")).is_none());
    assert!(source(&|spec| spec["accessModes"] = json!(["ReadOnlyMany"])).is_none());
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
    *find(&mut items, "Lease", "a") = lease("a", "2026-01-01T00:49:10Z");
    let before = |items: &mut Vec<Value>| {
        find(items, "Node", "a")["spec"]["taints"].as_array_mut().unwrap().insert(0, shutdown);
    };
    check(before, &nobody(), &cloud, words);
}

/// What the cloud says has the time at which it said so, and expires as everything else does.
#[test]
fn what_the_cloud_said_long_ago() {
    let cloud = Policy { accept: [EvidenceKind::CloudShutdown].into(), ..Policy::default() };
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
    // The cloud's controller was the last to change the taints: that is when it did.
    let record = written(next(&items(Some(early), ccm, late), &nobody(), &cloud));
    assert_eq!(record.spec.evidence[0].said.at.to_string(), late);
    assert!(record.spec.evidence[0].powered_off);
    let words = "node a: nothing proves that its machine is off; node a has the taint \
                 node.cloudprovider.kubernetes.io/shutdown since 2026-01-01T00:49:59Z, which is more than 10 minutes ago: the \
                 machine may have been started since; the policy accepts: CloudShutdown";
    assert_eq!(refusal(&items(Some(late), ccm, early), &nobody(), &cloud), words);
    // Somebody else was: it was set after the taints before it, at the earliest.
    let record = written(next(&items(Some(late), "kubectl-taint", early), &nobody(), &cloud));
    assert_eq!(record.spec.evidence[0].said.at.to_string(), late);
    assert_eq!(refusal(&items(Some(early), "kubectl-taint", late), &nobody(), &cloud), words);
    // Nobody can tell.
    let words = "node a: nothing proves that its machine is off; node a has the taint \
                 node.cloudprovider.kubernetes.io/shutdown, and neither metadata.managedFields nor the taints before it say \
                 when it was set; the policy accepts: CloudShutdown";
    assert_eq!(refusal(&items(None, "kubectl-taint", late), &nobody(), &cloud), words);
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
