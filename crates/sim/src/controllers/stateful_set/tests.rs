use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use stead_model::{KubernetesVersion, controller_of};

use super::StatefulSets;
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{Context, Controller, DeleteOptions, Item, Write};
use crate::test_cluster::{TestCluster, WORKLOADS};
use crate::{Choices, Settings, Simulation, World};

fn stateful_set(replicas: i32, more: Value) -> Value {
    let mut set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web" },
        "spec": { "replicas": replicas, "serviceName": "svc", "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "v1" }] } } } });
    for (field, value) in more.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

fn parallel() -> Value {
    json!({ "podManagementPolicy": "Parallel" })
}

fn data() -> Value {
    json!([{ "metadata": { "name": "data", "labels": { "kind": "disk" } }, "spec": { "accessModes": ["ReadWriteOnce"] } }])
}

fn with(replicas: i32, more: Value) -> TestCluster {
    let mut cluster = TestCluster::new();
    cluster.create(stateful_set(replicas, more));
    cluster.settle();
    cluster
}

/// A set whose pods are ready.
fn running(replicas: i32, more: Value) -> TestCluster {
    let mut cluster = with(replicas, more);
    for _ in 0..replicas {
        cluster.start_all();
    }
    cluster
}

fn change(cluster: &mut TestCluster, change: impl FnOnce(&mut StatefulSetSpec)) {
    cluster.edit::<StatefulSet>("web", |set| change(set.spec.as_mut().expect("a spec")));
    cluster.settle();
}

fn set_image(cluster: &mut TestCluster, image: &str) {
    change(cluster, |spec| {
        spec.template.spec.as_mut().expect("a pod spec").containers[0].image = Some(image.into());
    });
}

fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().expect("a spec").containers[0].image.clone().expect("an image")
}

fn force_delete(cluster: &mut TestCluster, pod: &str) {
    let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    cluster.sim.request(Write::Delete(SimKey::pod("n", pod), options)).expect("removed");
}

/// The pods with their images.
fn pods(cluster: &TestCluster) -> String {
    let pods = cluster.pods().into_iter().map(|name| {
        let image = image_of(cluster.get::<Pod>(name.trim_start_matches('-')));
        format!("{name} {image}")
    });
    pods.collect::<Vec<_>>().join(", ")
}

/// Replicas, ready, available, current and updated ones.
fn counters(cluster: &TestCluster) -> [i64; 5] {
    let status = cluster.status(ObjectKind::StatefulSet, "web");
    ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"]
        .map(|field| status[field].as_i64().unwrap_or_default())
}

fn revisions(cluster: &TestCluster) -> Vec<(i64, String)> {
    let image = |revision: &ControllerRevision| {
        let data = &revision.data.as_ref().expect("data").0;
        data["spec"]["template"]["spec"]["containers"][0]["image"].as_str().expect("an image").to_owned()
    };
    let mut all: Vec<_> =
        cluster.sim.store().all_in::<ControllerRevision>("n").map(|found| (found.revision, image(found))).collect();
    all.sort();
    all
}

fn events(cluster: &TestCluster) -> Vec<String> {
    cluster.events(ObjectKind::StatefulSet, "web")
}

fn last_event(cluster: &TestCluster) -> String {
    events(cluster).pop().expect("an event")
}

#[test]
fn ordered_pods_are_created_one_after_the_other() {
    let mut cluster = with(3, json!({ "volumeClaimTemplates": data() }));
    assert_eq!(pods(&cluster), "web-0 v1");
    let pod = cluster.get::<Pod>("web-0");
    let revision = cluster.sim.store().all_in::<ControllerRevision>("n").next().expect("a revision").clone();
    let name = revision.metadata.name.clone().expect("a name");
    assert_eq!(
        json!(pod.metadata.labels),
        json!({ "app": "web", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": name,
            "statefulset.kubernetes.io/pod-name": "web-0" })
    );
    let spec = pod.spec.as_ref().expect("a spec");
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-0"), Some("svc")));
    assert_eq!(json!(spec.volumes), json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } }]));
    let claim = cluster.get::<PersistentVolumeClaim>("data-web-0");
    assert_eq!(json!(claim.metadata.labels), json!({ "app": "web", "kind": "disk" }));
    let labels = revision.metadata.labels.as_ref().expect("labels");
    assert_eq!(name, format!("web-{}", labels["controller.kubernetes.io/hash"]));
    assert_eq!(revision.data.as_ref().expect("data").0["spec"]["template"]["$patch"], "replace");
    for expected in ["web-0 v1, web-1 v1", "web-0 v1, web-1 v1, web-2 v1"] {
        cluster.start_all();
        assert_eq!(pods(&cluster), expected);
    }
    cluster.start_all();
    assert_eq!(
        cluster.status(ObjectKind::StatefulSet, "web"),
        json!({ "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3,
            "updatedReplicas": 3, "currentRevision": name, "updateRevision": name, "collisionCount": 0 })
    );
    assert_eq!(
        events(&cluster)[..2],
        [
            "Normal SuccessfulCreate: Create Claim data-web-0 Pod web-0 in StatefulSet web success",
            "Normal SuccessfulCreate: Create Pod web-0 in StatefulSet web successful"
        ]
    );
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
}

#[test]
fn an_ordered_set_waits_for_the_first_pod_that_is_not_available() {
    let mut cluster = running(3, json!({}));
    cluster.delete(ObjectKind::Pod, "web-0");
    cluster.delete(ObjectKind::Pod, "web-2");
    cluster.settle();
    assert_eq!(counters(&cluster), [3, 3, 3, 1, 1], "pods that are being deleted count, but for no revision");
    force_delete(&mut cluster, "web-2");
    cluster.run(3600);
    assert_eq!(pods(&cluster), "-web-0 v1, web-1 v1", "web-2 waits for web-0");
    set_image(&mut cluster, "v2");
    change(&mut cluster, |spec| spec.replicas = Some(1));
    assert_eq!(pods(&cluster), "-web-0 v1, web-1 v1", "nothing is updated or scaled down");
    cluster.end_terminating();
    assert_eq!(pods(&cluster), "web-0 v2, web-1 v1");
    cluster.start("web-0");
    cluster.settle();
    assert_eq!(pods(&cluster), "web-0 v2, -web-1 v1");
    assert_eq!(last_event(&cluster), "Normal SuccessfulDelete: Delete Pod web-1 in StatefulSet web successful");
}

#[test]
fn a_parallel_set_creates_and_deletes_all_at_once() {
    let mut cluster = with(3, parallel());
    assert_eq!(pods(&cluster), "web-0 v1, web-1 v1, web-2 v1");
    cluster.start_all();
    cluster.delete(ObjectKind::Pod, "web-0");
    cluster.delete(ObjectKind::Pod, "web-1");
    force_delete(&mut cluster, "web-1");
    cluster.settle();
    assert_eq!(pods(&cluster), "-web-0 v1, web-1 v1, web-2 v1", "web-1 does not wait for web-0");
    change(&mut cluster, |spec| spec.replicas = Some(0));
    assert_eq!(pods(&cluster), "-web-0 v1, -web-2 v1", "web-1 was on no node");
}

#[test]
fn scaling_down_is_ordered() {
    let mut cluster = running(3, json!({}));
    cluster.break_pod("web-1");
    cluster.break_pod("web-2");
    change(&mut cluster, |spec| spec.replicas = Some(1));
    assert_eq!(cluster.pods(), ["web-0", "web-1", "web-2"], "only the lowest pod that is not ready could go");
    cluster.start("web-2");
    cluster.settle();
    assert_eq!(cluster.pods(), ["web-0", "web-1", "-web-2"], "one that is ready does not wait for it");
    cluster.end_terminating();
    assert_eq!(cluster.pods(), ["web-0", "-web-1"]);
}

#[test]
fn a_rolling_update_goes_down_to_the_partition() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut cluster = running(3, json!({ "podManagementPolicy": policy,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } } }));
        set_image(&mut cluster, "v2");
        assert_eq!(pods(&cluster), "web-0 v1, web-1 v1, -web-2 v1");
        cluster.end_terminating();
        assert_eq!(pods(&cluster), "web-0 v1, web-1 v1, web-2 v2", "web-1 waits for web-2");
        cluster.start_all();
        cluster.end_terminating();
        cluster.start_all();
        assert_eq!(pods(&cluster), "web-0 v1, web-1 v2, web-2 v2");
        assert_eq!(counters(&cluster), [3, 3, 3, 1, 2], "{policy}");
        cluster.delete(ObjectKind::Pod, "web-0");
        cluster.settle();
        cluster.end_terminating();
        cluster.start_all();
        assert_eq!(pods(&cluster), "web-0 v1, web-1 v2, web-2 v2", "below the partition the old template counts");
        change(&mut cluster, |spec| {
            let strategy = spec.update_strategy.as_mut().expect("a strategy");
            strategy.rolling_update.as_mut().expect("parameters").partition = Some(0);
        });
        cluster.end_terminating();
        cluster.start_all();
        let status = cluster.status(ObjectKind::StatefulSet, "web");
        assert_eq!(status["currentRevision"], status["updateRevision"]);
        assert_eq!(counters(&cluster), [3, 3, 3, 3, 3]);
        assert_eq!(revisions(&cluster), [(1, "v1".into()), (2, "v2".into())]);
    }
}

#[test]
fn a_broken_update_is_replaced_only_in_a_parallel_set() {
    for (policy, expected) in [("OrderedReady", "web-0 v1, web-1 v2"), ("Parallel", "web-0 v1, -web-1 v2")] {
        let mut cluster = running(2, json!({ "podManagementPolicy": policy }));
        set_image(&mut cluster, "v2");
        cluster.end_terminating();
        cluster.start("web-1");
        cluster.break_pod("web-1");
        cluster.settle();
        set_image(&mut cluster, "v1");
        assert_eq!(pods(&cluster), expected, "{policy}");
        assert_eq!(revisions(&cluster), [(2, "v2".into()), (3, "v1".into())], "an old revision gets a new number");
    }
}

#[test]
fn on_delete_updates_only_what_somebody_deletes() {
    let mut cluster = running(2, json!({ "updateStrategy": { "type": "OnDelete" } }));
    set_image(&mut cluster, "v2");
    assert_eq!(pods(&cluster), "web-0 v1, web-1 v1");
    cluster.delete(ObjectKind::Pod, "web-0");
    cluster.settle();
    cluster.end_terminating();
    cluster.start_all();
    assert_eq!(pods(&cluster), "web-0 v2, web-1 v1");
    cluster.delete(ObjectKind::Pod, "web-1");
    cluster.settle();
    cluster.end_terminating();
    cluster.start_all();
    let status = cluster.status(ObjectKind::StatefulSet, "web");
    assert_ne!(status["currentRevision"], status["updateRevision"], "an update by hand is never complete");
}

#[test]
fn an_update_over_an_unfinished_one_reports_no_negative_number() {
    let mut cluster = running(1, parallel());
    set_image(&mut cluster, "v2");
    cluster.end_terminating();
    assert_eq!(counters(&cluster), [1, 0, 0, 0, 1]);
    cluster.start("web-0");
    cluster.break_pod("web-0");
    cluster.settle();
    set_image(&mut cluster, "v3");
    assert_eq!(pods(&cluster), "-web-0 v2");
    assert_eq!(counters(&cluster), [1, 0, 0, 0, 0]);
}

#[test]
fn without_parameters_a_rolling_update_keeps_the_current_revision_of_lost_pods() {
    let mut cluster = running(2, json!({ "updateStrategy": { "type": "RollingUpdate" } }));
    set_image(&mut cluster, "v2");
    cluster.end_terminating();
    let mut gracefully = TestCluster { sim: cluster.sim.clone() };
    force_delete(&mut cluster, "web-0");
    cluster.settle();
    assert_eq!(pods(&cluster), "web-0 v1, web-1 v2");
    gracefully.delete(ObjectKind::Pod, "web-0");
    gracefully.settle();
    gracefully.end_terminating();
    assert_eq!(pods(&gracefully), "web-0 v2, web-1 v2", "no current pod was reported any more");
}

#[test]
fn ordinals_start_where_the_set_says() {
    let mut cluster = running(2, json!({ "ordinals": { "start": 5 } }));
    assert_eq!(cluster.pods(), ["web-5", "web-6"]);
    change(&mut cluster, |spec| spec.ordinals.as_mut().expect("ordinals").start = Some(6));
    assert_eq!(cluster.pods(), ["web-5", "web-6", "web-7"]);
    cluster.start_all();
    assert_eq!(cluster.pods(), ["-web-5", "web-6", "web-7"]);
}

#[test]
fn the_next_pod_waits_for_min_ready_seconds() {
    let mut cluster = with(2, json!({ "minReadySeconds": 10 }));
    cluster.start_all();
    assert_eq!((cluster.pods().len(), counters(&cluster)), (1, [1, 1, 0, 1, 1]));
    cluster.run(10);
    assert_eq!(cluster.pods().len(), 2);
    assert_eq!(counters(&cluster), [2, 1, 1, 2, 2]);
    cluster.start_all();
    cluster.run(10);
    assert_eq!(counters(&cluster), [2, 2, 2, 2, 2]);
    set_image(&mut cluster, "v2");
    cluster.end_terminating();
    cluster.start_all();
    cluster.run(5);
    assert_eq!(pods(&cluster), "web-0 v1, web-1 v2");
    cluster.run(5);
    assert_eq!(pods(&cluster), "-web-0 v1, web-1 v2");
    assert_eq!(cluster.sim.next_at(), None, "the cluster is at rest");
}

#[test]
fn a_pod_that_has_ended_is_replaced() {
    for (version, phase, expected) in [
        (36, "Failed", &["Normal SuccessfulDelete: Delete Pod web-0 in StatefulSet web successful"][..]),
        (
            30,
            "Failed",
            &[
                "Warning RecreatingFailedPod: StatefulSet n/web is recreating failed Pod web-0",
                "Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful",
            ],
        ),
        (
            30,
            "Succeeded",
            &[
                "Normal RecreatingTerminatedPod: StatefulSet n/web is recreating terminated Pod web-0",
                "Normal SuccessfulDelete: delete Pod web-0 in StatefulSet web successful",
            ],
        ),
    ] {
        let mut cluster = TestCluster::with(Settings::of(KubernetesVersion::minor(version)));
        cluster.create(stateful_set(1, json!({})));
        cluster.settle();
        cluster.start_all();
        let uid = cluster.get::<Pod>("web-0").metadata.uid.clone();
        cluster.set_phase("web-0", phase);
        cluster.settle();
        assert_ne!(cluster.get::<Pod>("web-0").metadata.uid, uid);
        assert_eq!(events(&cluster)[1..], *expected, "{version} {phase}");
    }
}

#[test]
fn history_beyond_the_limit_is_deleted() {
    let mut cluster = running(1, json!({ "revisionHistoryLimit": 1 }));
    for image in ["v2", "v3", "v4"] {
        set_image(&mut cluster, image);
        cluster.end_terminating();
        cluster.start_all();
    }
    assert_eq!(revisions(&cluster), [(3, "v3".into()), (4, "v4".into())]);
}

#[test]
fn pods_and_revisions_are_adopted_by_name() {
    let mut cluster = TestCluster::new();
    for name in ["web-0", "other-0"] {
        cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "v1" }] } }));
    }
    // A revision has the template with the defaults of the API server.
    let data = running(1, json!({})).sim.store().all::<ControllerRevision>().next().and_then(|it| it.data.clone());
    cluster.create(json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 4,
        "metadata": { "name": "web-old", "labels": { "app": "web" } }, "data": data }));
    cluster.create(stateful_set(1, json!({})));
    cluster.settle();
    cluster.start("web-0");
    cluster.settle();
    let owner = |object: &SimKey| {
        let object = cluster.sim.store().object(object).expect("the object exists");
        controller_of(object.metadata()).map(|owner| owner.name.clone())
    };
    assert_eq!(owner(&SimKey::pod("n", "web-0")).as_deref(), Some("web"));
    assert_eq!(owner(&SimKey::pod("n", "other-0")), None);
    assert_eq!(owner(&SimKey::new(ObjectKind::ControllerRevision, "n", "web-old")).as_deref(), Some("web"));
    assert_eq!(revisions(&cluster).len(), 1, "the adopted revision has the template of the set");
    assert!(
        events(&cluster).contains(&"Normal SuccessfulUpdate: Update Pod web-0 in StatefulSet web successful".into()),
        "the pod has its label now"
    );
    // The adopted pod is of no revision: it is replaced.
    assert_eq!(cluster.pods(), ["other-0", "-web-0"]);
}

#[test]
fn a_claim_that_is_being_deleted_blocks_its_pod() {
    let mut cluster = running(1, json!({ "volumeClaimTemplates": data() }));
    cluster.edit::<PersistentVolumeClaim>("data-web-0", |claim| {
        claim.metadata.finalizers = Some(vec!["kubernetes.io/pvc-protection".into()]);
    });
    cluster.delete(ObjectKind::PersistentVolumeClaim, "data-web-0");
    cluster.delete(ObjectKind::Pod, "web-0");
    cluster.end_terminating();
    assert_eq!(cluster.pods().len(), 0);
    assert_eq!(
        last_event(&cluster),
        "Warning FailedCreate: Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted"
    );
    cluster.edit::<PersistentVolumeClaim>("data-web-0", |claim| claim.metadata.finalizers = None);
    cluster.run(10);
    assert_eq!(cluster.pods(), ["web-0"], "it is tried again");
    assert_eq!(cluster.get::<PersistentVolumeClaim>("data-web-0").metadata.deletion_timestamp, None);
}

#[test]
fn claims_get_owners_by_the_retention_policy() {
    let owners = |cluster: &TestCluster, claim: &str| -> Vec<String> {
        let owners = cluster.get::<PersistentVolumeClaim>(claim).metadata.owner_references.clone();
        owners.into_iter().flatten().map(|owner| format!("{} {}", owner.kind, owner.name)).collect()
    };
    let mut cluster = running(2, json!({ "volumeClaimTemplates": data(),
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Delete" } }));
    assert_eq!(owners(&cluster, "data-web-1"), ["StatefulSet web"]);
    change(&mut cluster, |spec| spec.replicas = Some(1));
    assert_eq!(cluster.pods(), ["web-0", "-web-1"]);
    assert_eq!((owners(&cluster, "data-web-0"), owners(&cluster, "data-web-1")), (
        vec!["StatefulSet web".into()],
        vec!["Pod web-1".into()]
    ));
    cluster.end_terminating();
    change(&mut cluster, |spec| spec.replicas = Some(2));
    assert_eq!(cluster.pods(), ["web-0"], "the claim of the former web-1 is to be deleted first");
    change(&mut cluster, |spec| spec.persistent_volume_claim_retention_policy = None);
    assert_eq!(owners(&cluster, "data-web-0"), Vec::<String>::new());
    assert!(events(&cluster).contains(&"Normal SuccessfulUpdate: Update Pod web-0 in StatefulSet web successful".into()));
}

#[test]
fn max_unavailable_counts_in_the_first_releases_of_1_35() {
    for (patch, expected) in [(3, "web-0 v1, -web-1 v1, -web-2 v1"), (4, "web-0 v1, web-1 v1, -web-2 v1")] {
        let mut settings = Settings::of(KubernetesVersion::minor(35));
        settings.patch = patch;
        let mut cluster = TestCluster::with(settings);
        cluster.create(stateful_set(3, json!({ "podManagementPolicy": "Parallel",
            "updateStrategy": { "rollingUpdate": { "maxUnavailable": 2 } } })));
        cluster.settle();
        cluster.start_all();
        set_image(&mut cluster, "v2");
        assert_eq!(pods(&cluster), expected, "1.35.{patch}");
    }
}

#[test]
fn a_refused_pod_is_reported() {
    let mut cluster = TestCluster::new();
    cluster.create(stateful_set(1, json!({ "volumeClaimTemplates": data() })));
    let (mut choices, mut world, settings) = (Choices::seeded(1), World::default(), Settings::default());
    let (store, now) = (cluster.sim.store(), cluster.sim.now());
    let mut cx = Context { store, now, started: now, settings: &settings, choices: &mut choices, world: &mut world };
    let item = Item::Object(SimKey::new(ObjectKind::StatefulSet, "n", "web"));
    let mut sets = StatefulSets::default();
    for (kind, expected) in [
        (ObjectKind::Pod, vec!["Create Pod web-0 in StatefulSet web failed error: pods \"web-0\" is forbidden: no"]),
        (
            ObjectKind::PersistentVolumeClaim,
            vec![
                "Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: persistentvolumeclaims \
                 \"data-web-0\" is forbidden: no",
                "Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: \
                 persistentvolumeclaims \"data-web-0\" is forbidden: no",
            ],
        ),
    ] {
        let step = sets.step(&mut cx, &item);
        let refused = step.writes.iter().find(|write| matches!(write, Write::Create(object) if object.kind() == kind));
        let Some(Write::Create(object)) = refused else { panic!("{step:?}") };
        let error = ApiError::Forbidden { key: object.key(), message: "no".into() };
        let answer = sets.refused(&mut cx, &item, refused.expect("a write"), &error);
        let messages = answer.iter().filter_map(|write| match write {
            Write::Event(event) => Some(event.message.as_str()),
            _ => None,
        });
        assert_eq!(messages.collect::<Vec<_>>(), expected);
        let Some(Write::Status(SimObject::StatefulSet(set))) = answer.last() else { panic!("{answer:?}") };
        assert_eq!(set.status.as_ref().map(|status| status.replicas), Some(0));
    }
}

#[test]
fn a_resumed_set_has_nothing_to_do() {
    let cluster = running(2, json!({ "volumeClaimTemplates": data() }));
    let objects = cluster.sim.store().iter();
    let objects: Vec<SimObject> =
        objects.map(|(_, object)| SimObject::from_json(&object.to_json()).expect("an object")).collect();
    let now = cluster.sim.now();
    let mut sim = Simulation::resume(now, Settings::default().with_components(&WORKLOADS), Choices::enumerated(), objects, World::default());
    sim.follow();
    let mut resumed = TestCluster { sim };
    resumed.settle();
    assert_eq!(resumed.sim.take_journal(), []);
}
