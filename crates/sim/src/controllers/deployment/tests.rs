use std::sync::Arc;

use expect_test::expect;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use stead_model::KubernetesVersion;

use super::replica_sets::{REVISION, ROLLBACK_TO, note_replicas};
use super::{Deployments, Sets, Sync};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{Context, Controller, Item, Write};
use crate::test_cluster::{TestCluster, WORKLOADS};
use crate::{Choices, Question, RecordedAnswers, Settings, Simulation, World};

fn deployment(replicas: i32, more: Value) -> Value {
    let mut deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "v1" }] } } } });
    for (field, value) in more.as_object().into_iter().flatten() {
        deployment["spec"][field] = value.clone();
    }
    deployment
}

/// A Deployment whose pods are ready.
fn running(replicas: i32, more: Value) -> TestCluster {
    let mut cluster = TestCluster::new();
    cluster.create(deployment(replicas, more));
    cluster.settle();
    cluster.start_all();
    cluster
}

fn spec(deployment: &mut Deployment) -> &mut DeploymentSpec {
    deployment.spec.as_mut().expect("a spec")
}

fn set_image(cluster: &mut TestCluster, image: &str) {
    cluster.edit::<Deployment>("web", |deployment| {
        let template = spec(deployment).template.spec.as_mut().expect("a pod spec");
        template.containers[0].image = Some(image.into());
    });
}

fn image_of(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref()?.spec.as_ref()).expect("a template");
    template.containers[0].image.clone().expect("an image")
}

/// Image, revision and size of each ReplicaSet, by image.
fn sets(cluster: &TestCluster) -> Vec<String> {
    let mut sets: Vec<String> = cluster
        .sim
        .store()
        .all_in::<ReplicaSet>("n")
        .map(|set| {
            let size = set.spec.as_ref().and_then(|spec| spec.replicas).expect("a size");
            let revision = set.metadata.annotations.as_ref().and_then(|all| all.get(REVISION)).expect("a revision");
            format!("{} #{revision}: {size}", image_of(set))
        })
        .collect();
    sets.sort();
    sets
}

fn conditions(cluster: &TestCluster) -> Vec<String> {
    cluster.conditions(ObjectKind::Deployment, "web")
}

fn status(cluster: &TestCluster) -> Value {
    let mut status = cluster.status(ObjectKind::Deployment, "web");
    status.as_object_mut().expect("a status").remove("conditions");
    status
}

fn events(cluster: &TestCluster) -> Vec<String> {
    // The hash is not what is tested here.
    let names: Vec<(String, String)> = cluster
        .sim
        .store()
        .all_in::<ReplicaSet>("n")
        .map(|set| (set.metadata.name.clone().expect("a name"), image_of(set)))
        .collect();
    let events = cluster.events(ObjectKind::Deployment, "web").into_iter();
    events.map(|event| names.iter().fold(event, |text, (name, image)| text.replace(name, image))).collect()
}

#[test]
fn a_new_deployment_comes_up() {
    let mut cluster = TestCluster::new();
    cluster.create(deployment(3, json!({})));
    cluster.settle();
    expect![[r#"{"observedGeneration":1,"replicas":3,"terminatingReplicas":0,"unavailableReplicas":3,"updatedReplicas":3}"#]]
        .assert_eq(&status(&cluster).to_string());
    assert_eq!(
        conditions(&cluster),
        ["Available=False MinimumReplicasUnavailable", "Progressing=True ReplicaSetUpdated"]
    );
    let set = cluster.sim.store().all_in::<ReplicaSet>("n").next().expect("a ReplicaSet").clone();
    let metadata = &set.metadata;
    let hash = metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash")).expect("a hash");
    assert_eq!(metadata.name.as_deref(), Some(format!("web-{hash}").as_str()));
    expect![[r#"{"deployment.kubernetes.io/desired-replicas":"3","deployment.kubernetes.io/max-replicas":"4","deployment.kubernetes.io/revision":"1"}"#]]
        .assert_eq(&json!(metadata.annotations).to_string());
    let selector = &set.spec.as_ref().expect("a spec").selector;
    assert_eq!(json!(selector.match_labels), json!({ "app": "web", "pod-template-hash": hash }));
    cluster.start_all();
    expect![[r#"{"availableReplicas":3,"observedGeneration":1,"readyReplicas":3,"replicas":3,"terminatingReplicas":0,"updatedReplicas":3}"#]]
        .assert_eq(&status(&cluster).to_string());
    assert_eq!(
        conditions(&cluster),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
    assert_eq!(events(&cluster), ["Normal ScalingReplicaSet: Scaled up replica set v1 from 0 to 3"]);
    let annotations = cluster.get::<Deployment>("web").metadata.annotations.clone();
    assert_eq!(json!(annotations), json!({ REVISION: "1" }));
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
}

#[test]
fn a_recording_gives_the_names() {
    let mut recorded = RecordedAnswers::default();
    recorded.add(Question::TemplateHash { workload: "deployment n/web".into() }, "5d89bdfbf9");
    recorded.add(Question::NameSuffix { prefix: "n/web-5d89bdfbf9-".into() }, "lpd7x");
    let start = "2026-01-01T00:00:00Z".parse().expect("a time");
    let sim = Simulation::new(start, Settings::default().with_components(&WORKLOADS), Choices::recorded(recorded));
    let mut cluster = TestCluster { sim };
    cluster.create(deployment(1, json!({})));
    cluster.settle();
    assert_eq!(cluster.pods(), ["web-5d89bdfbf9-lpd7x"]);
}

#[test]
fn the_first_two_status_writes_conflict() {
    // The status of the first sync has the condition but not the generation: the second write of that sync is refused.
    let mut cluster = TestCluster::new();
    cluster.create(deployment(1, json!({})));
    cluster.sim.run_step().expect("no limit");
    assert_eq!(conditions(&cluster), ["Progressing=True NewReplicaSetCreated"]);
    assert_eq!(status(&cluster), json!({}));
}

#[test]
fn a_rolling_update_keeps_within_its_limits() {
    let mut cluster = running(10, json!({}));
    set_image(&mut cluster, "v2");
    cluster.settle();
    assert_eq!(sets(&cluster), ["v1 #1: 8", "v2 #2: 5"]);
    assert_eq!(cluster.get::<Deployment>("web").metadata.annotations.as_ref().expect("annotations")[REVISION], "2");
    let mut rounds = Vec::new();
    while sets(&cluster) != ["v1 #1: 0", "v2 #2: 10"] {
        cluster.start_all();
        cluster.end_terminating();
        rounds.push(sets(&cluster).join(", "));
        assert!(rounds.len() < 20, "{rounds:?}");
    }
    assert_eq!(rounds, ["v1 #1: 3, v2 #2: 10", "v1 #1: 0, v2 #2: 10"]);
    cluster.start_all();
    cluster.end_terminating();
    assert_eq!(
        conditions(&cluster),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
    expect![[r#"
        [
            "Normal ScalingReplicaSet: Scaled up replica set v1 from 0 to 10",
            "Normal ScalingReplicaSet: Scaled up replica set v2 from 0 to 3",
            "Normal ScalingReplicaSet: Scaled down replica set v1 from 10 to 8",
            "Normal ScalingReplicaSet: Scaled up replica set v2 from 3 to 5",
            "Normal ScalingReplicaSet: Scaled down replica set v1 from 8 to 3",
            "Normal ScalingReplicaSet: Scaled up replica set v2 from 5 to 10",
            "Normal ScalingReplicaSet: Scaled down replica set v1 from 3 to 0",
        ]
    "#]]
    .assert_debug_eq(&events(&cluster));
}

#[test]
fn going_back_to_an_old_template_uses_its_replica_set() {
    let mut cluster = running(1, json!({}));
    set_image(&mut cluster, "v2");
    cluster.settle();
    cluster.start_all();
    cluster.end_terminating();
    set_image(&mut cluster, "v1");
    cluster.settle();
    cluster.start_all();
    cluster.end_terminating();
    assert_eq!(sets(&cluster), ["v1 #3: 1", "v2 #2: 0"]);
    let set = cluster.sim.store().all_in::<ReplicaSet>("n").find(|set| image_of(set) == "v1").expect("the set").clone();
    let history = set.metadata.annotations.as_ref().and_then(|all| all.get("deployment.kubernetes.io/revision-history"));
    assert_eq!(history.map(String::as_str), Some("1"));
    assert_eq!(cluster.get::<Deployment>("web").metadata.annotations.as_ref().expect("annotations")[REVISION], "3");
}

#[test]
fn old_replica_sets_beyond_the_history_limit_are_deleted() {
    let mut cluster = running(1, json!({ "revisionHistoryLimit": 1 }));
    for image in ["v2", "v3"] {
        set_image(&mut cluster, image);
        cluster.settle();
        cluster.start_all();
        cluster.end_terminating();
    }
    assert_eq!(sets(&cluster), ["v2 #2: 0", "v3 #3: 1"]);
}

#[test]
fn recreate_waits_until_the_old_pods_are_gone() {
    let mut cluster = running(2, json!({ "strategy": { "type": "Recreate" } }));
    set_image(&mut cluster, "v2");
    cluster.settle();
    assert_eq!(sets(&cluster), ["v1 #1: 0"]);
    assert!(cluster.pods().iter().all(|pod| pod.starts_with('-')), "{:?}", cluster.pods());
    cluster.run(3600);
    assert_eq!(sets(&cluster), ["v1 #1: 0"], "a pod that is being deleted may still run");
    cluster.end_terminating();
    assert_eq!(sets(&cluster), ["v1 #1: 0", "v2 #2: 2"]);
}

#[test]
fn a_rollout_that_makes_no_progress_times_out() {
    let mut cluster = running(1, json!({ "progressDeadlineSeconds": 60 }));
    set_image(&mut cluster, "v2");
    cluster.run(60);
    assert_eq!(conditions(&cluster)[1], "Progressing=True ReplicaSetUpdated");
    cluster.run(2);
    assert_eq!(conditions(&cluster)[1], "Progressing=False ProgressDeadlineExceeded");
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
    cluster.start_all();
    cluster.end_terminating();
    assert_eq!(conditions(&cluster)[1], "Progressing=True NewReplicaSetAvailable");
    // Once complete, only the availability falls.
    let pod = cluster.pods().remove(0);
    cluster.break_pod(&pod);
    cluster.run(3600);
    assert_eq!(
        conditions(&cluster),
        ["Progressing=True NewReplicaSetAvailable", "Available=False MinimumReplicasUnavailable"]
    );
}

#[test]
fn a_paused_deployment_is_scaled_but_not_rolled_out() {
    let mut cluster = running(1, json!({}));
    cluster.edit::<Deployment>("web", |deployment| spec(deployment).paused = Some(true));
    cluster.settle();
    assert_eq!(conditions(&cluster)[1], "Progressing=Unknown DeploymentPaused");
    set_image(&mut cluster, "v2");
    cluster.edit::<Deployment>("web", |deployment| spec(deployment).replicas = Some(4));
    cluster.settle();
    assert_eq!(sets(&cluster), ["v1 #1: 4"]);
    cluster.edit::<Deployment>("web", |deployment| spec(deployment).paused = None);
    cluster.settle();
    assert_eq!(sets(&cluster).len(), 2);
    assert_eq!(cluster.sim.store().all_in::<Pod>("n").count(), 5);
}

#[test]
fn a_deployment_that_is_being_deleted_only_reports() {
    let mut cluster = running(1, json!({}));
    cluster.edit::<Deployment>("web", |deployment| deployment.metadata.finalizers = Some(vec!["x/y".into()]));
    cluster.delete(ObjectKind::Deployment, "web");
    set_image(&mut cluster, "v2");
    cluster.settle();
    assert_eq!(sets(&cluster), ["v1 #1: 1"]);
    let generation = cluster.get::<Deployment>("web").metadata.generation;
    assert_eq!(status(&cluster)["observedGeneration"], json!(generation));
    assert_eq!(status(&cluster)["updatedReplicas"], Value::Null);
}

#[test]
fn a_rollback_by_annotation_restores_the_template() {
    let mut cluster = running(1, json!({}));
    set_image(&mut cluster, "v2");
    cluster.settle();
    for (wanted, event) in [
        ("7", "Warning DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to."),
        (
            "2",
            "Warning DeploymentRollbackTemplateUnchanged: The rollback revision contains the same template as current deployment \"web\"",
        ),
        ("0", "Normal DeploymentRollback: Rolled back deployment \"web\" to revision 1"),
    ] {
        cluster.edit::<Deployment>("web", |deployment| {
            let annotations = deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(ROLLBACK_TO.to_owned(), wanted.to_owned());
        });
        cluster.settle();
        assert!(events(&cluster).contains(&event.to_owned()), "{wanted}: {:?}", events(&cluster));
        assert!(!cluster.get::<Deployment>("web").metadata.annotations.as_ref().expect("some").contains_key(ROLLBACK_TO));
    }
    assert_eq!(sets(&cluster)[0], "v1 #3: 1");
}

#[test]
fn a_foreign_replica_set_of_the_same_name_is_a_collision() {
    let mut first = TestCluster::new();
    first.create(deployment(1, json!({})));
    first.settle();
    let name = first.sim.store().all_in::<ReplicaSet>("n").next().and_then(|set| set.metadata.name.clone());
    let mut cluster = TestCluster::new();
    cluster.create(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": name },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "x": "y" } }, "template": { "metadata": { "labels":
            { "x": "y" } }, "spec": { "containers": [{ "name": "c", "image": "other" }] } } } }));
    cluster.create(deployment(1, json!({})));
    cluster.settle();
    assert_eq!(status(&cluster)["collisionCount"], 1);
    assert_eq!(cluster.sim.store().all_in::<ReplicaSet>("n").count(), 2);
}

#[test]
fn events_of_older_versions() {
    let mut cluster = TestCluster::with(Settings::of(KubernetesVersion::minor(31)));
    cluster.create(deployment(1, json!({})));
    cluster.settle();
    cluster.edit::<Deployment>("web", |deployment| spec(deployment).replicas = Some(3));
    cluster.settle();
    assert_eq!(
        events(&cluster),
        [
            "Normal ScalingReplicaSet: Scaled up replica set v1 to 1",
            "Normal ScalingReplicaSet: Scaled up replica set v1 to 3 from 1"
        ]
    );
}

/// A ReplicaSet of this size, all of whose pods are available; younger ones have larger numbers.
fn sized(number: i64, size: i32, deployment: &Deployment) -> Arc<ReplicaSet> {
    let mut set: ReplicaSet = serde_json::from_value(json!({
        "metadata": { "name": format!("foo-v{number}"), "namespace": "n", "uid": format!("v{number}"),
            "creationTimestamp": format!("2016-05-20T0{number}:00:00Z") },
        "spec": { "replicas": size, "selector": {} }, "status": { "replicas": size, "availableReplicas": size } }))
    .expect("a ReplicaSet");
    note_replicas(&mut set, deployment);
    Arc::new(set)
}

/// Calls part of a sync, and gives the sizes that it writes, by name.
fn play(deployment: &Deployment, part: impl FnOnce(&mut Sync<'_>)) -> Vec<(String, i32)> {
    let (mut choices, mut world) = (Choices::seeded(1), World::default());
    let (settings, store) = (Settings::default(), crate::Store::default());
    let now = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cx = Context { store: &store, now, started: now, settings: &settings, choices: &mut choices, world: &mut world };
    let key = SimKey::new(ObjectKind::Deployment, "n", "foo");
    let mut sync = Sync {
        store: &store,
        settings: &settings,
        choices: cx.choices,
        now,
        key: &key,
        deployment: Arc::new(deployment.clone()),
        sets: Vec::new(),
        writes: Vec::new(),
        again: None,
    };
    part(&mut sync);
    let sizes = sync.writes.iter().filter_map(|write| match write {
        Write::Replace(SimObject::ReplicaSet(set)) => {
            Some((set.metadata.name.clone()?, set.spec.as_ref().and_then(|spec| spec.replicas)?))
        }
        Write::Delete(key, _) => Some((key.name.to_string(), -1)),
        _ => None,
    });
    sizes.collect()
}

fn foo(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
    serde_json::from_value(json!({ "metadata": { "name": "foo" }, "spec": { "replicas": replicas, "selector": {},
        "template": {}, "strategy": { "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } }))
    .expect("a Deployment")
}

#[test]
fn scale() {
    // From how many replicas to how many, maxSurge before and after, and the sizes of the sets: new one, older, oldest.
    // The first of them is none if no set has the template.
    type Sizes = [Option<i32>; 3];
    type Case = ((i32, i32), (i32, i32), Sizes, Sizes);
    let cases: [Case; 14] = [
        ((10, 12), (0, 0), [Some(10), None, None], [Some(12), None, None]),
        ((10, 5), (0, 0), [Some(10), None, None], [Some(5), None, None]),
        ((5, 10), (0, 0), [Some(2), Some(3), None], [Some(4), Some(6), None]),
        ((5, 3), (0, 0), [Some(2), Some(3), None], [Some(1), Some(2), None]),
        ((9, 4), (0, 0), [Some(8), Some(1), None], [Some(4), Some(0), None]),
        ((7, 10), (0, 0), [Some(2), Some(3), Some(2)], [Some(3), Some(4), Some(3)]),
        ((13, 8), (0, 0), [Some(2), Some(8), Some(3)], [Some(1), Some(5), Some(2)]),
        ((3, 4), (0, 0), [Some(1), Some(1), Some(1)], [Some(2), Some(1), Some(1)]),
        ((3, 2), (0, 0), [Some(1), Some(1), Some(1)], [Some(1), Some(1), Some(0)]),
        ((4, 5), (0, 0), [None, Some(2), Some(2)], [None, Some(3), Some(2)]),
        ((6, 0), (0, 0), [Some(3), Some(2), Some(1)], [Some(0), Some(0), Some(0)]),
        ((6, 6), (0, 0), [Some(0), Some(0), Some(0)], [Some(6), Some(0), Some(0)]),
        ((10, 20), (2, 2), [Some(6), Some(6), None], [Some(11), Some(11), None]),
        ((10, 50), (3, 6), [Some(5), Some(8), None], [Some(22), Some(34), None]),
    ];
    for (replicas, surge, before, after) in cases {
        let (old, new) = (foo(replicas.0, surge.0, 1), foo(replicas.1, surge.1, 1));
        let sized: Vec<_> =
            before.iter().enumerate().map(|(i, size)| size.map(|size| sized(3 - i as i64, size, &old))).collect();
        let mut found = before;
        let sets = Sets { new: sized[0].clone(), old: sized[1..].iter().rev().flatten().cloned().collect() };
        for (name, size) in play(&new, |sync| sync.scale(&sets)) {
            let number: usize = name.trim_start_matches("foo-v").parse().expect("a number");
            found[3 - number] = Some(size);
        }
        assert_eq!(found, after, "{replicas:?} {surge:?} {before:?}");
    }
}

#[test]
fn scale_with_a_broken_new_replica_set() {
    let foo = foo(2, 1, 1);
    let mut new = sized(2, 2, &foo);
    Arc::make_mut(&mut new).status.as_mut().expect("a status").available_replicas = None;
    let sets = Sets { new: Some(new), old: vec![sized(1, 1, &foo)] };
    assert_eq!(play(&foo, |sync| sync.scale(&sets)), [], "the old pods stay");
}

#[test]
fn cleanup_deployment_order() {
    // Limit, and revision and size of each set, older ones first; which ones are deleted.
    type Case<'a> = (i32, &'a [(&'a str, i32)], &'a [&'a str]);
    let cases: [Case<'_>; 7] = [
        (1, &[("1", 0), ("2", 0)], &["foo-v1"]),
        (1, &[("2", 0), ("1", 0)], &["foo-v2"]),
        (1, &[("1", 0), ("", 0)], &["foo-v2"]),
        (1, &[("", 0), ("2", 0)], &["foo-v1"]),
        (1, &[("1", 1), ("2", 0), ("3", 0)], &["foo-v2"]),
        (1, &[("1", 1), ("2", 1), ("3", 0)], &[]),
        (2, &[("3", 0), ("1", 0), ("4", 0), ("2", 0)], &["foo-v2", "foo-v4"]),
    ];
    for (limit, sets, deleted) in cases {
        let mut foo = foo(1, 1, 1);
        spec(&mut foo).revision_history_limit = Some(limit);
        let sized: Vec<_> = sets
            .iter()
            .enumerate()
            .map(|(i, (revision, size))| {
                let mut set = sized(i as i64 + 1, *size, &foo);
                if !revision.is_empty() {
                    let annotations = Arc::make_mut(&mut set).metadata.annotations.get_or_insert_default();
                    annotations.insert(REVISION.to_owned(), (*revision).to_owned());
                }
                set
            })
            .collect();
        let found: Vec<String> = play(&foo, |sync| sync.clean_up(&sized)).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, deleted, "{sets:?}");
    }
}

#[test]
fn reconcile_old_replica_sets() {
    // Desired, maxUnavailable, size and available pods of the old and of the new set; the sizes that the old one gets.
    for (desired, unavailable, old, new, expected) in [
        (10, 0, (10, 10), (0, 0), vec![9]),
        (10, 2, (10, 10), (0, 0), vec![8]),
        (10, 2, (10, 8), (0, 0), vec![8]),
        (10, 2, (10, 9), (0, 0), vec![9, 8]),
        (10, 2, (8, 8), (2, 0), vec![]),
        (10, 2, (8, 9), (2, 2), vec![]),
    ] {
        let foo = foo(desired, 0, unavailable);
        let with = |number: i64, (size, available): (i32, i32)| {
            let mut set = sized(number, size, &foo);
            Arc::make_mut(&mut set).status.as_mut().expect("a status").available_replicas = Some(available);
            set
        };
        let new = with(2, new);
        let sets = Sets { new: Some(Arc::clone(&new)), old: vec![with(1, old)] };
        let mut scaled = false;
        let sizes: Vec<i32> =
            play(&foo, |sync| scaled = sync.scale_down_old(&sets, &new)).into_iter().map(|(_, size)| size).collect();
        assert_eq!((&sizes, scaled), (&expected, !expected.is_empty()), "{desired} {unavailable} {old:?}");
    }
}

#[test]
fn a_refused_replica_set_is_reported() {
    let mut cluster = TestCluster::new();
    cluster.create(deployment(1, json!({})));
    let (mut choices, mut world, settings) = (Choices::seeded(1), World::default(), Settings::default());
    let (store, now) = (cluster.sim.store(), cluster.sim.now());
    let mut cx = Context { store, now, started: now, settings: &settings, choices: &mut choices, world: &mut world };
    let item = Item::Object(SimKey::new(ObjectKind::Deployment, "n", "web"));
    let step = Deployments::default().step(&mut cx, &item);
    let Write::Create(set) = &step.writes[0] else { panic!("{step:?}") };
    let name = set.metadata().name.clone().expect("a name");
    let error = crate::ApiError::Forbidden { key: set.key(), message: "no".into() };
    let answer = Deployments::default().refused(&mut cx, &item, &step.writes[0], &error);
    let [Write::Status(SimObject::Deployment(web)), Write::Event(event)] = &answer[..] else { panic!("{answer:?}") };
    let text = format!("Failed to create new replica set \"{name}\": replicasets.apps \"{name}\" is forbidden: no");
    assert_eq!((event.reason, &event.message), ("ReplicaSetCreateError", &text));
    let conditions = web.status.as_ref().and_then(|status| status.conditions.as_ref()).expect("conditions");
    assert_eq!((&*conditions[0].status, conditions[0].message.as_ref()), ("False", Some(&text)));
}

#[test]
fn a_resumed_rollout_goes_on() {
    let mut cluster = running(2, json!({ "progressDeadlineSeconds": 60 }));
    let resume = |cluster: &TestCluster| {
        // As they come from a real cluster.
        let objects: Vec<SimObject> = cluster
            .sim
            .store()
            .iter()
            .map(|(_, object)| SimObject::from_json(&object.to_json()).expect("an object"))
            .collect();
        let (now, settings) = (cluster.sim.now(), Settings::default());
        let mut sim = Simulation::resume(now, settings.with_components(&WORKLOADS), Choices::enumerated(), objects, World::default());
        sim.follow();
        TestCluster { sim }
    };
    let mut resumed = resume(&cluster);
    resumed.settle();
    assert_eq!(resumed.sim.take_journal(), [], "nothing to do");
    set_image(&mut cluster, "v2");
    cluster.run(10);
    let mut resumed = resume(&cluster);
    resumed.run(49);
    assert_eq!(resumed.sim.take_journal(), []);
    resumed.run(3);
    assert_eq!(conditions(&resumed)[1], "Progressing=False ProgressDeadlineExceeded");
}
