//! Volumes from their claim to their deletion.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::settings::{DriverSettings, Settings, StorageSettings};
use crate::{Choices, Simulation};

fn create(sim: &mut Simulation, value: &Value) -> SimObject {
    sim.request(Write::Create(SimObject::from_json(value).expect("an object"))).expect("created").expect("an object")
}

/// A node in zone z with the driver d, and a class of it.
fn cluster(storage: StorageSettings, mode: &str, policy: &str) -> Simulation {
    let settings = Settings { storage, ..Settings::default() }.only_storage();
    let mut sim = Simulation::new(Timestamp::UNIX_EPOCH, settings, Choices::enumerated());
    for value in [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a", "labels": { "zone": "z" } } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "a" },
            "spec": { "drivers": [{ "name": "d", "nodeID": "i-1", "topologyKeys": ["zone"] }] } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "d" }, "spec": {} }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "s" },
            "provisioner": "d", "volumeBindingMode": mode, "reclaimPolicy": policy }),
    ] {
        create(&mut sim, &value);
    }
    sim
}

fn claim(node: Option<&str>) -> Value {
    let annotations = node.map(|node| json!({ SELECTED_NODE: node }));
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "c", "namespace": "n", "annotations": annotations },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "s",
            "resources": { "requests": { "storage": "1G" } } } })
}

fn failing(reschedule: bool) -> StorageSettings {
    let state = DriverState::Failing { message: "rpc error: code = Internal desc = no".into(), reschedule };
    let drivers = [("d".to_owned(), DriverSettings { state, ..DriverSettings::default() })].into();
    StorageSettings { drivers, ..StorageSettings::default() }
}

fn run(sim: &mut Simulation, seconds: i64) {
    sim.run_for(SignedDuration::from_secs(seconds)).expect("a run");
}

fn the_volume(sim: &Simulation) -> Option<Value> {
    sim.store().all::<PersistentVolume>().next().map(|volume| SimObject::PersistentVolume(volume.clone()).to_json())
}

/// The driver's own events about an object.
fn events(sim: &Simulation, key: &SimKey) -> Vec<(&'static str, String, u32)> {
    let all = sim.events().about(key).filter(|event| event.component == Provisioner::COMPONENT);
    all.map(|event| (event.note.reason, event.note.message.clone(), event.count)).collect()
}

#[test]
fn a_volume_is_created_where_the_pod_will_be() {
    for (storage, size, annotations, finalizers, reported) in [
        (StorageSettings::default(), "1000000000", 3, 2, 2),
        (StorageSettings::stand_in(), "1G", 1, 1, 0),
    ] {
        let sidecars = storage.sidecars;
        let mut sim = cluster(storage, "WaitForFirstConsumer", "Delete");
        let key = create(&mut sim, &claim(Some("a"))).key();
        run(&mut sim, 1);
        let uid = sim.store().object(&key).expect("a claim").uid().to_owned();
        let volume = the_volume(&sim).expect("a volume");
        let name = format!("pvc-{uid}");
        assert_eq!(volume["metadata"]["name"], json!(name));
        assert_eq!(volume["spec"]["csi"], json!({ "driver": "d", "volumeHandle": name }));
        assert_eq!((&volume["spec"]["capacity"]["storage"], &volume["status"]["phase"]), (&json!(size), &json!("Bound")));
        let term = json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z"] }] }]);
        assert_eq!(volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"], term);
        let count = |list: &Value| list.as_object().map_or(0, |list| list.len()) + list.as_array().map_or(0, Vec::len);
        let added = (count(&volume["metadata"]["annotations"]), count(&volume["metadata"]["finalizers"]));
        assert_eq!(added, (annotations, finalizers), "sidecars: {sidecars}");
        let disk = sim.world().disk(&name).expect("a disk");
        assert!(disk.needs_attach && disk.exclusive && disk.detach_revokes);
        assert_eq!(events(&sim, &key).len(), reported);
        assert_eq!(sim.next_at(), None, "nothing is pending");
    }
}

#[test]
fn a_released_volume_is_deleted_after_it_is_detached() {
    for (storage, policy, deleted) in [
        (StorageSettings::default(), "Delete", true),
        (StorageSettings::stand_in(), "Delete", true),
        (StorageSettings::default(), "Retain", false),
        (StorageSettings::stand_in(), "Retain", false),
    ] {
        let events_expected = storage.events && policy == "Delete";
        let mut sim = cluster(storage, "Immediate", policy);
        let claim = create(&mut sim, &claim(None));
        run(&mut sim, 1);
        let name = the_volume(&sim).expect("a volume")["metadata"]["name"].as_str().expect("a name").to_owned();
        let key = SimKey::new(ObjectKind::PersistentVolume, "", &name);
        // Somebody has attached it by hand.
        let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": "csi-1" },
            "spec": { "attacher": "d", "nodeName": "a", "source": { "persistentVolumeName": name } } });
        let attachment = create(&mut sim, &attachment);
        run(&mut sim, 1);
        sim.request(Write::delete(&claim)).expect("deleted");
        run(&mut sim, 2);
        assert_eq!(the_volume(&sim).expect("a volume")["status"]["phase"], json!("Released"));
        sim.request(Write::delete(&attachment)).expect("deleted");
        run(&mut sim, 10);
        assert_eq!((the_volume(&sim).is_none(), sim.world().disk(&name).is_none()), (deleted, deleted), "{policy}");
        let message = format!("persistentvolume {name} is still attached to node a");
        let expected = events_expected.then_some(("VolumeFailedDelete", message, 2));
        assert_eq!(events(&sim, &key), Vec::from_iter(expected), "{policy}");
        assert_eq!(sim.next_at(), None, "nothing is pending");
    }
}

#[test]
fn a_failing_driver_is_asked_again_and_may_send_the_pod_elsewhere() {
    let mut sim = cluster(failing(false), "WaitForFirstConsumer", "Delete");
    let key = create(&mut sim, &claim(Some("a"))).key();
    run(&mut sim, 8);
    let provisioning = "External provisioner is provisioning volume for claim \"n/c\"".to_owned();
    let failed = "rpc error: code = Internal desc = no".to_owned();
    // At once, and after 1, 3 and 7 seconds.
    assert_eq!(events(&sim, &key), [("Provisioning", provisioning, 4), ("ProvisioningFailed", failed, 4)]);
    let mut sim = cluster(failing(true), "WaitForFirstConsumer", "Delete");
    create(&mut sim, &claim(Some("a")));
    run(&mut sim, 8);
    let annotations = sim.store().object(&key).expect("a claim").metadata().annotations.clone().unwrap_or_default();
    assert!(!annotations.contains_key(SELECTED_NODE));
    assert_eq!(events(&sim, &key).iter().map(|(.., count)| *count).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_node_that_the_driver_does_not_know_is_not_used() {
    let mut sim = cluster(StorageSettings::default(), "WaitForFirstConsumer", "Delete");
    let key = create(&mut sim, &claim(Some("b"))).key();
    run(&mut sim, 1);
    let messages: Vec<String> = events(&sim, &key).into_iter().map(|(_, message, _)| message).collect();
    assert_eq!(messages[1], "failed to get selected CSINode b: csinode.storage.k8s.io \"b\" not found");
    let annotations = sim.store().object(&key).expect("a claim").metadata().annotations.clone().unwrap_or_default();
    assert!(!annotations.contains_key(SELECTED_NODE));
}

#[test]
fn volumes_of_a_stateful_set_are_spread_over_zones() {
    let mut sim = cluster(StorageSettings::default(), "Immediate", "Delete");
    for zone in ["x", "y"] {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": zone, "labels": { "zone": zone } } });
        create(&mut sim, &node);
    }
    for ordinal in 0..3 {
        let mut claim = claim(None);
        claim["metadata"]["name"] = json!(format!("data-web-{ordinal}"));
        create(&mut sim, &claim);
    }
    run(&mut sim, 1);
    let zone = |volume: &Arc<PersistentVolume>| {
        let affinity = volume.spec.clone().unwrap_or_default().node_affinity.and_then(|affinity| affinity.required);
        let term = affinity.expect("an affinity").node_selector_terms.remove(0);
        term.match_expressions.unwrap_or_default().remove(0).values.unwrap_or_default().remove(0)
    };
    let zones: std::collections::BTreeSet<String> = sim.store().all::<PersistentVolume>().map(zone).collect();
    assert_eq!(zones.len(), 3);
}
