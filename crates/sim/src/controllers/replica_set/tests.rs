use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use stead_model::{KubernetesVersion, controller_of};

use super::ReplicaSets;
use super::tally::Tallies;
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{Context, Controller, Item, Step, Write};
use crate::test_cluster::TestCluster;
use crate::{Choices, Question, Settings, World};

fn replica_set(replicas: i32, more: Value) -> Value {
    let mut set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web" }, "spec": {
        "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
        "template": { "metadata": { "labels": { "app": "web", "tier": "x" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    for (field, value) in more.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

fn with(replicas: i32, more: Value) -> TestCluster {
    let mut cluster = TestCluster::new();
    cluster.create(replica_set(replicas, more));
    cluster.settle();
    cluster
}

fn status(cluster: &TestCluster) -> Value {
    cluster.status(ObjectKind::ReplicaSet, "web")
}

#[test]
fn pods_are_created_and_counted() {
    let mut cluster = TestCluster::new();
    cluster.create(replica_set(2, json!({})));
    cluster.sim.run_step().expect("no limit");
    assert_eq!(
        status(&cluster),
        json!({ "replicas": 0, "observedGeneration": 1, "terminatingReplicas": 0 }),
        "the status after the creation is that of before"
    );
    cluster.settle();
    let counted = json!({ "replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1, "terminatingReplicas": 0 });
    assert_eq!(status(&cluster), counted);
    let pods = cluster.pods();
    let events: Vec<String> = pods.iter().map(|pod| format!("Normal SuccessfulCreate: Created pod: {pod}")).collect();
    let mut reported = cluster.events(ObjectKind::ReplicaSet, "web");
    reported.sort();
    assert_eq!(reported, events);
    let pod = cluster.get::<Pod>(&pods[0]);
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("web-"));
    assert_eq!(controller_of(&pod.metadata).map(|owner| owner.kind.as_str()), Some("ReplicaSet"));
    cluster.start_all();
    assert_eq!((&status(&cluster)["readyReplicas"], &status(&cluster)["availableReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
}

#[test]
fn a_pod_that_is_being_deleted_is_replaced_at_once() {
    let mut cluster = with(1, json!({}));
    cluster.start_all();
    let first = cluster.pods().remove(0);
    cluster.delete(ObjectKind::Pod, &first);
    cluster.settle();
    assert_eq!(cluster.pods().len(), 2);
    let expected = json!({ "replicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 1, "terminatingReplicas": 1 });
    assert_eq!(status(&cluster), expected);
    cluster.end_terminating();
    assert_eq!(status(&cluster)["terminatingReplicas"], 0);
    let failed = cluster.pods().remove(0);
    cluster.set_phase(&failed, "Failed");
    cluster.settle();
    assert_eq!(cluster.pods().len(), 2, "a failed pod stays and is replaced");
    assert_eq!(status(&cluster)["replicas"], 1);
}

#[test]
fn terminating_replicas_are_reported_since_1_35() {
    let mut cluster = TestCluster::with(Settings::of(KubernetesVersion::minor(34)));
    cluster.create(replica_set(1, json!({})));
    cluster.settle();
    assert_eq!(status(&cluster)["terminatingReplicas"], Value::Null);
}

#[test]
fn surplus_pods_are_deleted_those_that_are_not_ready_first() {
    let mut cluster = with(3, json!({}));
    cluster.start_all();
    let broken = cluster.pods().remove(1);
    cluster.break_pod(&broken);
    cluster.edit::<ReplicaSet>("web", |set| set.spec.as_mut().expect("a spec").replicas = Some(2));
    cluster.settle();
    assert!(cluster.pods().contains(&format!("-{broken}")));
    let events = cluster.events(ObjectKind::ReplicaSet, "web");
    assert_eq!(events.last(), Some(&format!("Normal SuccessfulDelete: Deleted pod: {broken}")));
    assert_eq!((&status(&cluster)["replicas"], &status(&cluster)["observedGeneration"]), (&json!(2), &json!(2)));
}

#[test]
fn availability_waits_for_min_ready_seconds() {
    let mut cluster = with(1, json!({ "minReadySeconds": 10 }));
    cluster.start_all();
    assert_eq!((&status(&cluster)["readyReplicas"], &status(&cluster)["availableReplicas"]), (&json!(1), &Value::Null));
    cluster.run(9);
    assert_eq!(status(&cluster)["availableReplicas"], Value::Null);
    cluster.run(1);
    assert_eq!(status(&cluster)["availableReplicas"], 1);
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
}

#[test]
fn orphans_are_adopted_and_others_released() {
    let mut cluster = TestCluster::new();
    let pod = |name: &str, labels: Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } })
    };
    cluster.create(pod("orphan", json!({ "app": "web" })));
    cluster.create(replica_set(2, json!({})));
    cluster.settle();
    assert_eq!(cluster.pods().len(), 2);
    let expected = json!({ "replicas": 2, "fullyLabeledReplicas": 1, "observedGeneration": 1, "terminatingReplicas": 0 });
    assert_eq!(status(&cluster), expected, "the adopted pod does not have all labels of the template");
    cluster.edit::<Pod>("orphan", |pod| pod.metadata.labels = None);
    cluster.settle();
    assert_eq!(cluster.get::<Pod>("orphan").metadata.owner_references, None);
    assert_eq!((cluster.pods().len(), &status(&cluster)["fullyLabeledReplicas"]), (3, &json!(2)));
    cluster.edit::<Pod>("orphan", |pod| pod.metadata.labels = Some([("app".into(), "web".into())].into()));
    cluster.settle();
    assert_eq!(cluster.pods().len(), 2, "one pod too many was adopted");
}

#[test]
fn a_refused_pod_is_reported_and_tried_again() {
    let mut cluster = TestCluster::new();
    cluster.create(replica_set(2, json!({})));
    let item = Item::Object(SimKey::new(ObjectKind::ReplicaSet, "n", "web"));
    let mut world = World::default();
    let mut choices = Choices::seeded(1);
    let settings = Settings::default();
    let mut cx = Context {
        store: cluster.sim.store(),
        now: cluster.sim.now(),
        started: cluster.sim.now(),
        settings: &settings,
        choices: &mut choices,
        world: &mut world,
    };
    let mut sets = ReplicaSets::default();
    let names = |step: &Step| -> Vec<Option<String>> {
        let created = step.writes.iter().filter_map(|write| match write {
            Write::Create(pod) => Some(pod.metadata().name.clone()),
            _ => None,
        });
        created.collect()
    };
    let step = sets.step(&mut cx, &item);
    let message = "no PriorityClass with name high was found".to_owned();
    let error = ApiError::Forbidden { key: SimKey::pod("n", "web-xxxxx"), message };
    let answer = sets.refused(&mut cx, &item, &step.writes[0], &error);
    let text = "pods \"web-\" is forbidden: no PriorityClass with name high was found";
    let [Write::Event(event), Write::Status(SimObject::ReplicaSet(set))] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!((event.reason, event.message.as_str()), ("FailedCreate", format!("Error creating: {text}").as_str()));
    let conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).expect("a condition");
    let condition = (&*conditions[0].type_, conditions[0].reason.as_deref(), conditions[0].message.as_deref());
    assert_eq!(condition, ("ReplicaFailure", Some("FailedCreate"), Some(text)));
    assert_eq!(names(&sets.step(&mut cx, &item)), names(&step), "a recorded name is used by the pod that is created");
}

#[test]
fn counts_follow_the_changes_of_pods() {
    for seed in 0..20 {
        let mut choices = Choices::seeded(seed);
        let mut pick = |options: usize| {
            let names = vec![""; options];
            choices.pick(Question::Jitter { what: "test" }, &names)
        };
        let mut cluster = with(3, json!({}));
        for _ in 0..60 {
            let pods: Vec<String> = cluster.pods().into_iter().filter(|name| !name.starts_with('-')).collect();
            let pod = pods.get(pick(pods.len().max(1))).cloned();
            match (pick(8), pod) {
                (0, Some(pod)) => cluster.break_pod(&pod),
                (1, Some(pod)) => cluster.set_phase(&pod, "Failed"),
                (2, Some(pod)) => cluster.delete(ObjectKind::Pod, &pod),
                (3, Some(pod)) => {
                    let label = ["app", "tier"][pick(2)];
                    cluster.edit::<Pod>(&pod, |pod| {
                        let labels = pod.metadata.labels.get_or_insert_default();
                        if labels.remove(label).is_none() {
                            labels.insert(label.to_owned(), "web".to_owned());
                        }
                    });
                }
                (4, _) => {
                    let replicas = i32::try_from(pick(6)).expect("few");
                    cluster.edit::<ReplicaSet>("web", |set| set.spec.as_mut().expect("a spec").replicas = Some(replicas));
                }
                (5, _) => cluster.end_terminating(),
                (_, Some(pod)) => cluster.start(&pod),
                _ => {}
            }
            if pick(2) == 0 {
                cluster.settle();
            }
        }
        cluster.settle();
        let set = cluster.get::<ReplicaSet>("web");
        let tally = Tallies::default().get(cluster.sim.store(), set).expect("a valid selector").tally;
        let status = set.status.clone().expect("a status");
        let counts = [Some(status.replicas), status.fully_labeled_replicas, status.ready_replicas];
        let counts = counts.map(Option::unwrap_or_default);
        assert_eq!(counts, [tally.active, tally.labeled, tally.ready], "seed {seed}");
        assert_eq!(status.terminating_replicas, Some(tally.terminating), "seed {seed}");
        assert_eq!((tally.active, tally.unmatched), (set.spec.as_ref().and_then(|spec| spec.replicas).expect("a size"), 0));
        assert_eq!(cluster.sim.next_at(), None, "seed {seed}: the cluster is at rest");
    }
}
