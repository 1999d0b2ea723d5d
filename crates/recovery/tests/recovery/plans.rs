//! Which pods a plan releases, in which order, and what it leaves alone.

use serde_json::{Value, json};
use stead_model::Objects;
use stead_recovery::{RecoveryPlan, RecoveryPolicy, ReplacementTarget, plan};

use crate::cluster::{find, outage, pod, set, with_volume};

fn planned(items: &[Value], policy: &RecoveryPolicy) -> RecoveryPlan {
    plan(&Objects::from_items(items.to_vec()), "a", policy).unwrap()
}

fn names(plan: &RecoveryPlan) -> Vec<&str> {
    plan.pods.iter().map(|p| p.name.as_str()).collect()
}

fn left_alone(plan: &RecoveryPlan) -> Vec<(&str, &str, bool)> {
    plan.left_alone.iter().map(|l| (l.what.as_str(), l.why.as_str(), l.added_tolerations.is_some())).collect()
}

fn owned_by(mut pod: Value, kind: &str) -> Value {
    pod["metadata"]["ownerReferences"][0]["kind"] = kind.into();
    pod
}

fn tolerating(mut pod: Value) -> Value {
    pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    pod
}

#[test]
fn a_pod_is_released_with_its_volume() {
    let plan = planned(&outage(), &RecoveryPolicy::default());
    let pod = &plan.pods[0];
    assert_eq!((pod.owner.as_deref(), pod.volumes.as_slice()), (Some("StatefulSet/db"), ["v".to_owned()].as_slice()));
    assert_eq!(pod.target, ReplacementTarget::Nodes(vec!["b".into(), "c".into()]));
    assert!(plan.left_alone.is_empty() && plan.volumes.is_empty());
}

const DAEMON: &str = "it belongs to the node (DaemonSet agent); the taint evicts it, and it is recreated when the taint is \
                      removed";

/// A DaemonSet decides by its template: tolerations of a pod do not keep it.
#[test]
fn a_daemon_pod_is_expendable_unless_it_has_an_attached_volume() {
    let (plain, disk) = (pod("agent-0", "a"), with_volume(pod("agent-1", "a"), "w"));
    let mut items = outage();
    items.push(owned_by(plain, "DaemonSet"));
    items.extend(disk.into_iter().map(|i| if i["kind"] == "Pod" { owned_by(i, "DaemonSet") } else { i }));
    items.push(tolerating(owned_by(pod("agent-2", "a"), "DaemonSet")));
    let plan = planned(&items, &RecoveryPolicy::default());
    let expendable: Vec<(&str, bool)> = plan.left_alone.iter().map(|l| (l.what.as_str(), l.expendable)).collect();
    assert_eq!(expendable, [("pod x/agent-0", true), ("pod x/agent-1", false), ("pod x/agent-2", false)]);
    assert_eq!(plan.left_alone[2].why, "it belongs to the node (DaemonSet agent)");
}

#[test]
fn pods_that_belong_to_the_node_are_left_alone() {
    let mut items = outage();
    let mut mirror = pod("static-0", "a");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h" });
    let mut ended = pod("job-0", "a");
    ended["status"]["phase"] = "Succeeded".into();
    items.extend([owned_by(pod("agent-0", "a"), "DaemonSet"), mirror, ended, tolerating(pod("any-0", "a"))]);
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!(names(&plan), ["db-0"]);
    assert_eq!(
        left_alone(&plan),
        [
            ("pod x/agent-0", DAEMON, false),
            ("pod x/job-0", "it has ended", false),
            ("pod x/static-0", "static pod: it starts and stops with the machine", false),
            ("pod x/any-0", "it tolerates node.kubernetes.io/out-of-service", false),
        ]
    );
}

#[test]
fn pods_that_tolerate_the_taint_are_released_if_wanted_and_safe() {
    let mut items = outage();
    let mut this = pod("this-0", "a");
    let taint = json!({ "key": "node.kubernetes.io/out-of-service", "operator": "Exists", "effect": "NoExecute" });
    this["spec"]["tolerations"].as_array_mut().unwrap().push(taint);
    items.push(this);
    items.push(tolerating(pod("any-0", "a")));
    items.extend(with_volume(tolerating(pod("both-0", "a")), "w"));
    let plan = planned(&items, &RecoveryPolicy { include_tolerating: true, ..RecoveryPolicy::default() });
    assert_eq!(names(&plan), ["db-0", "this-0"]);
    assert!(!plan.pods[0].tolerates && plan.pods[1].tolerates);
    let back = "it tolerates all taints of this node, so that its replacement could be scheduled to this node";
    let why = "it tolerates node.kubernetes.io/out-of-service, so that its replacement could be scheduled to this node";
    assert_eq!(left_alone(&plan), [("pod x/any-0", back, false), ("pod x/both-0", why, false)]);
}

#[test]
fn a_pod_with_a_local_volume_is_left_alone() {
    let mut items = outage();
    find(&mut items, "PersistentVolume", "v")["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{
        "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] }] } });
    items.push(pod("web-0", "a"));
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!(names(&plan), ["web-0"]);
    let why = "claim claim-v: its volume v exists on this node only";
    assert_eq!(left_alone(&plan), [("pod x/db-0", why, true)]);
    // It also has to tolerate the taints of an unreachable node: a Terminating pod would be removed.
    let after = &plan.left_alone[0].added_tolerations.as_ref().unwrap().after;
    assert_eq!(
        json!(after),
        json!([
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/out-of-service", "operator": "Exists", "effect": "NoExecute" },
        ])
    );
}

#[test]
fn pods_of_higher_priority_are_placed_first() {
    let mut items = outage();
    // There is room for two of three pods.
    for node in ["b", "c"] {
        find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "1".into();
    }
    let mut urgent = pod("urgent-0", "a");
    urgent["spec"]["priority"] = 1000.into();
    let mut attacher = pod("zz-0", "a");
    attacher["spec"]["containers"][0]["image"] = "registry/csi-attacher:v4".into();
    items.extend([urgent, attacher]);
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!(names(&plan), ["zz-0", "urgent-0"]);
    assert_eq!(plan.pods[1].target, ReplacementTarget::Nodes(vec!["c".into()]));
    assert_eq!(plan.left_alone[0].what, "pod x/db-0");
    assert!(plan.left_alone[0].why.starts_with("0/3 nodes are available"), "{}", plan.left_alone[0].why);
}

#[test]
fn an_existing_replacement_is_used() {
    let mut items = outage();
    *find(&mut items, "Pod", "db-0") = owned_by(find(&mut items, "Pod", "db-0").clone(), "ReplicaSet");
    find(&mut items, "Pod", "db-0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:55:00Z".into();
    let mut next = owned_by(pod("db-1", "c"), "ReplicaSet");
    next["status"]["conditions"] = json!([]);
    items.push(next);
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!(plan.pods[0].target, ReplacementTarget::Nodes(vec!["c".into()]));
    assert!(plan.pods[0].terminating);
}

/// The kubelet reported the end of a StatefulSet's pod and died before it removed the object: only the taint removes it.
#[test]
fn a_terminating_pod_that_has_ended_is_released_if_it_blocks_its_replacement() {
    let planned = |kind: &str| {
        let mut items = outage();
        items.retain(|item| item["kind"] != "Pod");
        items.push(set("web", 1));
        let mut pod = owned_by(pod("web-0", "a"), kind);
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:54:30Z".into();
        pod["status"]["phase"] = "Succeeded".into();
        items.push(pod);
        let plan = plan(&Objects::from_items(items), "a", &RecoveryPolicy::default()).unwrap();
        plan.pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
    };
    assert_eq!(planned("StatefulSet"), ["web-0"]);
    assert_eq!(planned("ReplicaSet"), Vec::<String>::new());
}

/// A pod that is not recreated needs no room.
#[test]
fn pods_that_are_not_recreated_are_not_placed() {
    let replica_set = |replicas: i64| {
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": "web", "namespace": "x", "uid": "web" }, "spec": { "replicas": replicas } })
    };
    // This many Terminating pods on `a` since 00:54, and Ready pods on other nodes, created at these times.
    let with = |set: Value, old: usize, made: &[&str]| {
        let mut items = outage();
        items.retain(|i| i["kind"] != "Pod");
        for node in ["b", "c"] {
            find(&mut items, "Node", node)["status"]["allocatable"]["cpu"] = "1".into();
        }
        let kind = set["kind"].as_str().unwrap().to_owned();
        items.push(set);
        for n in 0..old {
            let mut pod = owned_by(pod(&format!("web-{n}"), "a"), &kind);
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:54:30Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
            items.push(pod);
        }
        for (n, made) in made.iter().enumerate() {
            let mut pod = owned_by(pod(&format!("web-{}", old + n), ["b", "c"][n]), &kind);
            pod["metadata"]["creationTimestamp"] = (*made).into();
            items.push(pod);
        }
        let plan = plan(&Objects::from_items(items), "a", &RecoveryPolicy::default());
        plan.map(|plan| plan.pods.into_iter().map(|p| p.target).collect::<Vec<_>>())
    };
    let (before, after) = ("2026-01-01T00:10:00Z", "2026-01-01T00:54:00Z");
    let on = |node: &str| ReplacementTarget::Nodes(vec![node.into()]);
    // It was replaced: there is no room for one more, and none is created.
    assert_eq!(with(replica_set(2), 1, &[before, after]), Ok(vec![on("c")]));
    assert_eq!(with(replica_set(2), 2, &[after, after]), Ok(vec![on("b"), on("c")]));
    // Scaled down in the meantime.
    assert_eq!(with(replica_set(1), 2, &[after]), Ok(vec![on("b"), ReplacementTarget::NotRecreated]));
    assert_eq!(with(replica_set(0), 1, &[]), Ok(vec![ReplacementTarget::NotRecreated]));
    assert_eq!(
        with(set("web", 1), 2, &[]),
        Ok(vec![ReplacementTarget::Nodes(vec!["b".into(), "c".into()]), ReplacementTarget::NotRecreated])
    );
    // Two of three are missing, and there is room for one.
    assert!(with(replica_set(3), 2, &[after]).is_err());
}

#[test]
fn an_attached_volume_that_no_pod_uses_is_released() {
    let mut items = outage();
    items.retain(|i| i["kind"] != "Pod");
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!((plan.pods.len(), plan.volumes.as_slice()), (0, ["v".to_owned()].as_slice()));
}

#[test]
fn taints_of_others_are_left_alone() {
    let mut items = outage();
    find(&mut items, "Node", "a")["spec"]["taints"] = json!([
        { "key": "example.com/maintenance", "effect": "NoSchedule" },
        { "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute" },
    ]);
    let plan = planned(&items, &RecoveryPolicy::default());
    assert_eq!(
        left_alone(&plan),
        [
            ("taint example.com/maintenance", "Stead did not apply it", false),
            (
                "taint node.kubernetes.io/out-of-service",
                "somebody else applied it: Stead uses it, and does not remove it",
                false
            ),
        ]
    );
}
