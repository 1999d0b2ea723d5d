use super::*;
use crate::controllers::alone::Alone;
use crate::controllers::revisions::hash_of;
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::{Value, json};

type Cluster = Alone<DaemonSets>;

fn cluster(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::new();
    for node in nodes {
        cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }));
    }
    cluster
}

fn create_set(cluster: &mut Cluster, more: Value) -> SimKey {
    let labels = json!({ "app": "d" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "1" }] } });
    let mut spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    let fields = spec.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    let key = cluster.create(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "d", "namespace": "n" }, "spec": spec }));
    cluster.run(10);
    key
}

fn set_image(cluster: &mut Cluster, key: &SimKey, image: &str) {
    cluster.change::<DaemonSet>(key, |set| {
        let template = set.spec.as_mut().expect("a spec").template.spec.as_mut().expect("a spec");
        template.containers[0].image = Some(image.into());
    });
    cluster.run(10);
}

/// Binds the pods that are not bound, and makes them ready.
fn start_pods(cluster: &mut Cluster) {
    for key in cluster.pods() {
        let pod = Arc::clone(cluster.store().at::<Pod>(&key).expect("a pod"));
        if pod.spec.as_ref().expect("a spec").node_name.is_none() {
            let node = target_node(&pod).expect("a node").to_owned();
            let uid = pod.metadata.uid.clone().expect("a uid");
            cluster.request(Write::Bind { pod: key.clone(), uid, node }).expect("bound");
            set_ready(cluster, &key, true);
        }
    }
    cluster.run(10);
}

fn set_ready(cluster: &mut Cluster, key: &SimKey, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let since = json!(crate::api::whole_seconds(cluster.now));
    let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": since });
    cluster.set_pod(key, json!({ "phase": "Running", "conditions": [condition] }));
}

/// The pod of a node that is not being deleted.
fn pod_on(cluster: &Cluster, node: &str) -> SimKey {
    let is_there = |key: &&SimKey| {
        let pod = cluster.store().at::<Pod>(key).expect("a pod");
        target_node(pod) == Some(node) && !is_terminating(pod)
    };
    cluster.pods().iter().find(is_there).expect("a pod").clone()
}

/// Node and image of each pod, with a mark for those that are being deleted.
fn pods(cluster: &Cluster) -> Vec<String> {
    let mut pods: Vec<String> = cluster
        .store()
        .all::<Pod>()
        .map(|pod| {
            let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
            let mark = if is_terminating(pod) { " deleted" } else { "" };
            format!("{} {}{mark}", target_node(pod).unwrap_or_default(), image.unwrap_or_default())
        })
        .collect();
    pods.sort();
    pods
}

/// Desired, current, misscheduled, ready, updated, available, unavailable.
fn counters(cluster: &Cluster, key: &SimKey) -> [i32; 7] {
    let set = cluster.store().at::<DaemonSet>(key).expect("a DaemonSet");
    let status = set.status.clone().unwrap_or_default();
    [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
        status.number_ready,
        status.updated_number_scheduled.unwrap_or_default(),
        status.number_available.unwrap_or_default(),
        status.number_unavailable.unwrap_or_default(),
    ]
}

fn set_taint(cluster: &mut Cluster, node: &str, taints: Value) {
    cluster.change::<Node>(&SimKey::node(node), |node| {
        node.spec.get_or_insert_default().taints = serde_json::from_value(taints).expect("taints");
    });
    cluster.run(10);
}

#[test]
fn every_node_gets_a_pod() {
    let mut cluster = cluster(&["a", "b"]);
    let set = create_set(&mut cluster, json!({}));
    assert_eq!(pods(&cluster), ["a 1", "b 1"]);
    let events = cluster.take_events();
    let expected = cluster.pods().into_iter().map(|key| format!("Normal SuccessfulCreate Created pod: {}", key.name));
    assert_eq!(events.iter().collect::<BTreeSet<_>>(), expected.collect::<Vec<_>>().iter().collect());
    assert_eq!(counters(&cluster, &set), [2, 2, 0, 0, 2, 0, 2]);
    start_pods(&mut cluster);
    assert_eq!(counters(&cluster, &set), [2, 2, 0, 2, 2, 2, 0]);
    assert_eq!(cluster.json(&set, "/status/observedGeneration"), 1);
    let revisions: Vec<&Arc<ControllerRevision>> = cluster.store().all().collect();
    let [revision] = revisions[..] else { panic!("one revision") };
    let hash = hash_of(&revision.metadata);
    assert_eq!(revision.metadata.name.as_deref(), Some(&*format!("d-{hash}")));
    let pod = cluster.store().at::<Pod>(&cluster.pods()[0]).expect("a pod");
    assert_eq!((hash_of(&pod.metadata), &*labels(&pod.metadata)["pod-template-generation"]), (hash, "1"));
    cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "c" } }));
    cluster.run(10);
    assert_eq!(pods(&cluster), ["a 1", "b 1", "c 1"]);
    assert_eq!(cluster.next_at(), None);
}

#[test]
fn taints_move_pods_and_counters() {
    let unreachable = json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" });
    let out_of_service = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
    let mut cluster = cluster(&["a", "b"]);
    let set = create_set(&mut cluster, json!({}));
    start_pods(&mut cluster);
    // The pod may stay: the set is not even looked at until something else happens.
    set_taint(&mut cluster, "a", json!([unreachable]));
    assert_eq!(counters(&cluster, &set), [2, 2, 0, 2, 2, 2, 0]);
    let on_a = pod_on(&cluster, "a");
    set_ready(&mut cluster, &on_a, false);
    cluster.run(10);
    assert_eq!(counters(&cluster, &set), [1, 1, 1, 1, 1, 1, 0]);
    set_taint(&mut cluster, "a", json!([]));
    assert_eq!(counters(&cluster, &set), [2, 2, 0, 1, 2, 1, 1]);
    set_taint(&mut cluster, "a", json!([unreachable, out_of_service]));
    assert_eq!(pods(&cluster), ["a 1 deleted", "b 1"]);
    cluster.delete(&on_a, Some(0));
    cluster.run(10);
    assert_eq!(pods(&cluster), ["b 1"]);
    assert_eq!(counters(&cluster, &set), [1, 1, 0, 1, 1, 1, 0]);
}

#[test]
fn a_pod_that_is_being_deleted_keeps_its_place() {
    let mut cluster = cluster(&["a"]);
    create_set(&mut cluster, json!({}));
    start_pods(&mut cluster);
    let key = pod_on(&cluster, "a");
    cluster.delete(&key, None);
    cluster.run(60_000);
    assert_eq!(pods(&cluster), ["a 1 deleted"]);
    cluster.set_pod(&key, json!({ "phase": "Succeeded" }));
    cluster.run(10);
    assert_eq!(pods(&cluster), ["a 1", "a 1 deleted"]);
}

#[test]
fn a_failed_pod_is_deleted_with_back_off() {
    let mut cluster = cluster(&["a"]);
    create_set(&mut cluster, json!({}));
    let begin = cluster.now;
    let mut deleted = Vec::new();
    for _ in 0..4 {
        start_pods(&mut cluster);
        let key = pod_on(&cluster, "a");
        cluster.take_events();
        cluster.set_pod(&key, json!({ "phase": "Failed" }));
        while cluster.store().object(&key).is_some() {
            cluster.run(100);
        }
        let event = format!("Warning FailedDaemonPod Found failed daemon pod n/{} on node a, will try to kill it", key.name);
        assert_eq!(cluster.take_events()[0], event);
        deleted.push((cluster.now - begin).get_seconds());
    }
    // After 0, 1, 2 and 4 seconds.
    assert_eq!(deleted, [0, 1, 3, 7]);
}

#[test]
fn a_rolling_update_makes_only_so_many_pods_unavailable() {
    let nodes = ["a", "b", "c", "d", "e"];
    for (max_unavailable, unready, expected) in [
        (json!(1), vec![], 1),
        (json!(3), vec![], 3),
        (json!("30%"), vec![], 2),
        // Old pods that are not available are replaced at once, and use up the budget.
        (json!(1), vec!["b"], 1),
        (json!(1), vec!["b", "c"], 2),
        (json!(3), vec!["b", "c"], 3),
    ] {
        let mut cluster = cluster(&nodes);
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": max_unavailable } });
        let set = create_set(&mut cluster, json!({ "updateStrategy": strategy }));
        start_pods(&mut cluster);
        for node in &unready {
            let key = pod_on(&cluster, node);
            set_ready(&mut cluster, &key, false);
        }
        cluster.run(10);
        set_image(&mut cluster, &set, "2");
        let deleted: Vec<String> = pods(&cluster).into_iter().filter(|pod| pod.ends_with("deleted")).collect();
        assert_eq!(deleted.len(), expected, "{max_unavailable} {unready:?}: {deleted:?}");
        assert!(unready.iter().all(|node| deleted.iter().any(|pod| pod.starts_with(node))), "{deleted:?}");
    }
}

#[test]
fn a_rolling_update_ends() {
    let mut cluster = cluster(&["a", "b", "c"]);
    let set = create_set(&mut cluster, json!({}));
    start_pods(&mut cluster);
    set_image(&mut cluster, &set, "2");
    for _ in 0..3 {
        let old: Vec<SimKey> = cluster.pods();
        let deleted = |key: &&SimKey| cluster.store().at::<Pod>(key).is_some_and(|pod| is_terminating(pod));
        let key = old.iter().find(deleted).expect("a pod that is being deleted").clone();
        cluster.delete(&key, Some(0));
        cluster.run(10);
        start_pods(&mut cluster);
    }
    assert_eq!(pods(&cluster), ["a 2", "b 2", "c 2"]);
    assert_eq!(counters(&cluster, &set), [3, 3, 0, 3, 3, 3, 0]);
    assert_eq!(cluster.next_at(), None);
    // The first template again: its revision becomes the newest one.
    set_image(&mut cluster, &set, "1");
    let revisions: BTreeSet<i64> = cluster.store().all::<ControllerRevision>().map(|it| it.revision).collect();
    assert_eq!(revisions, BTreeSet::from([2, 3]));
}

#[test]
fn an_update_with_surge_replaces_a_pod_when_the_new_one_is_available() {
    let mut cluster = cluster(&["a", "b"]);
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    let set = create_set(&mut cluster, json!({ "updateStrategy": strategy, "minReadySeconds": 10 }));
    start_pods(&mut cluster);
    cluster.run(15_000);
    set_image(&mut cluster, &set, "2");
    assert_eq!(pods(&cluster).iter().filter(|pod| pod.ends_with('2')).count(), 1);
    assert_eq!(pods(&cluster).len(), 3);
    start_pods(&mut cluster);
    cluster.run(8_000);
    assert_eq!(pods(&cluster).len(), 3);
    cluster.run(5_000);
    // The old pod goes, and the next node gets a new one.
    assert_eq!(pods(&cluster).iter().filter(|pod| pod.ends_with("deleted")).count(), 1);
    assert_eq!(pods(&cluster).iter().filter(|pod| pod.ends_with('2')).count(), 2);
}

#[test]
fn on_delete_replaces_only_what_is_deleted() {
    let mut cluster = cluster(&["a", "b"]);
    let set = create_set(&mut cluster, json!({ "updateStrategy": { "type": "OnDelete" } }));
    start_pods(&mut cluster);
    set_image(&mut cluster, &set, "2");
    cluster.run(60_000);
    assert_eq!(pods(&cluster), ["a 1", "b 1"]);
    assert_eq!(counters(&cluster, &set), [2, 2, 0, 2, 0, 2, 0]);
    let key = pod_on(&cluster, "b");
    cluster.delete(&key, Some(0));
    cluster.run(10);
    assert_eq!(pods(&cluster), ["a 1", "b 2"]);
}

#[test]
fn a_pod_is_available_after_its_minimum_ready_time() {
    let mut cluster = cluster(&["a"]);
    let set = create_set(&mut cluster, json!({ "minReadySeconds": 10 }));
    start_pods(&mut cluster);
    cluster.run(9_900);
    assert_eq!(counters(&cluster, &set), [1, 1, 0, 1, 1, 0, 1]);
    cluster.run(200);
    assert_eq!(counters(&cluster, &set), [1, 1, 0, 1, 1, 1, 0]);
    assert_eq!(cluster.next_at(), None);
}

#[test]
fn the_history_is_limited_but_pods_keep_their_revision() {
    let mut cluster = cluster(&["a"]);
    let strategy = json!({ "type": "OnDelete" });
    let set = create_set(&mut cluster, json!({ "updateStrategy": strategy, "revisionHistoryLimit": 1 }));
    for image in ["2", "3", "4"] {
        set_image(&mut cluster, &set, image);
    }
    // The one of the pod, and the present one.
    let kept: Vec<i64> = cluster.store().all::<ControllerRevision>().map(|it| it.revision).collect();
    assert_eq!(kept.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 4]));
}

#[test]
fn orphans_are_adopted_and_strangers_released() {
    let mut cluster = cluster(&["a"]);
    let set = create_set(&mut cluster, json!({ "updateStrategy": { "type": "OnDelete" } }));
    start_pods(&mut cluster);
    let key = pod_on(&cluster, "a");
    // Released, and replaced.
    cluster.change::<Pod>(&key, |pod| pod.metadata.labels = None);
    cluster.run(10);
    assert_eq!(cluster.json(&key, "/metadata/ownerReferences"), Value::Null);
    assert_eq!(cluster.pods().len(), 2);
    // Adopted, and the newer of two pods deleted.
    let newer = cluster.pods().into_iter().find(|other| *other != key).expect("a pod");
    cluster.change::<Pod>(&key, |pod| pod.metadata.labels = Some([("app".to_owned(), "d".to_owned())].into()));
    cluster.run(10);
    assert_eq!(cluster.json(&key, "/metadata/ownerReferences/0/kind"), "DaemonSet");
    assert!(cluster.store().object(&newer).is_none());
    assert_eq!(counters(&cluster, &set)[..2], [1, 1]);
}

#[test]
fn a_pod_for_a_node_that_is_gone_is_deleted_if_it_is_not_bound() {
    let mut cluster = cluster(&["a", "b"]);
    create_set(&mut cluster, json!({}));
    let on_a = pod_on(&cluster, "a");
    let uid = cluster.json(&on_a, "/metadata/uid").as_str().expect("a uid").to_owned();
    cluster.request(Write::Bind { pod: on_a.clone(), uid, node: "a".into() }).expect("bound");
    cluster.delete(&SimKey::node("a"), None);
    cluster.delete(&SimKey::node("b"), None);
    cluster.run(10);
    assert_eq!(cluster.pods(), [on_a]);
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut cluster = cluster(&["a"]);
    let namespace = cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" },
        "spec": { "finalizers": ["kubernetes"] } }));
    create_set(&mut cluster, json!({}));
    cluster.delete(&namespace, None);
    let key = pod_on(&cluster, "a");
    cluster.delete(&key, Some(0));
    cluster.run(10_000);
    assert!(cluster.pods().is_empty());
    assert_eq!(cluster.next_at(), None);
}

#[test]
fn a_resumed_controller_changes_nothing_that_is_in_order() {
    let mut cluster = cluster(&["a", "b"]);
    create_set(&mut cluster, json!({}));
    start_pods(&mut cluster);
    cluster.take_writes();
    cluster.resume();
    cluster.run(1_000);
    assert_eq!(cluster.take_writes(), []);
}

/// A step looks at the nodes that something happened to; a resumed controller looks at all of them.
#[test]
fn looking_at_some_nodes_is_as_good_as_looking_at_all() {
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).expect("a number") % limit
        };
        let names = ["a", "b", "c", "d"];
        let mut cluster = cluster(&names);
        let rolling = [json!({ "maxUnavailable": 1 }), json!({ "maxUnavailable": 0, "maxSurge": 1 })][below(2)].clone();
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        let minimum = [0, 3][below(2)];
        let set = create_set(&mut cluster, json!({ "updateStrategy": strategy, "minReadySeconds": minimum }));
        for round in 0..60 {
            let node = names[below(names.len())];
            let exists = cluster.store().object(&SimKey::node(node)).is_some();
            let pods = cluster.pods();
            let pod = pods.get(below(pods.len().max(1))).cloned();
            match (below(9), pod) {
                (0, _) if exists => cluster.delete(&SimKey::node(node), None),
                (0, _) => {
                    cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }));
                }
                (1, _) if exists => {
                    let effect = ["NoSchedule", "NoExecute"][below(2)];
                    let taints = [json!([]), json!([{ "key": "mine", "effect": effect }])][below(2)].clone();
                    set_taint(&mut cluster, node, taints);
                }
                (2, _) => set_image(&mut cluster, &set, &round.to_string()),
                (3, Some(pod)) => cluster.delete(&pod, [None, Some(0)][below(2)]),
                (4, Some(pod)) => {
                    let phase = ["Failed", "Succeeded"][below(2)];
                    cluster.set_pod(&pod, json!({ "phase": phase }));
                }
                (5, Some(pod)) => set_ready(&mut cluster, &pod, below(2) == 0),
                _ => start_pods(&mut cluster),
            }
            cluster.run([1, 10, 5_000][below(3)]);
        }
        cluster.run(3_600_000);
        start_pods(&mut cluster);
        cluster.run(3_600_000);
        // Not every change of a node is looked at, but the next look includes it.
        cluster.change::<DaemonSet>(&set, |set| set.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
        cluster.run(10);
        cluster.take_writes();
        cluster.resume();
        cluster.run(10);
        assert_eq!(cluster.take_writes(), [], "seed {seed}");
    }
}
