//! VolumeAttachments from their creation to the detach.

use super::*;
use crate::{Choices, DeleteOptions, Happening, Settings, Simulation, StorageSettings};
use serde_json::{Value, json};

fn create(sim: &mut Simulation, value: &Value) -> SimObject {
    let object = SimObject::from_json(value).expect("an object");
    sim.request(Write::Create(object)).expect("created").expect("an object")
}

/// A volume with these access modes, and nodes that its driver knows.
fn cluster(storage: StorageSettings, modes: &[&str]) -> Simulation {
    let settings = Settings { storage, ..Settings::default() }.only_storage();
    let mut sim = Simulation::new(Timestamp::UNIX_EPOCH, settings, Choices::enumerated());
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": { "accessModes": modes, "capacity": { "storage": "1Gi" },
            "csi": { "driver": "disk.example.org", "volumeHandle": "h" } } });
    create(&mut sim, &volume);
    for node in ["a", "b"] {
        let driver = json!([{ "name": "disk.example.org", "nodeID": format!("id-{node}") }]);
        let node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": node },
            "spec": { "drivers": driver } });
        create(&mut sim, &node);
    }
    sim
}

fn attachment(node: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": format!("on-{node}") }, "spec": { "attacher": "disk.example.org",
            "nodeName": node, "source": { "persistentVolumeName": "v" } } })
}

fn run(sim: &mut Simulation, millis: i64) {
    sim.run_for(SignedDuration::from_millis(millis)).expect("a run");
}

/// Whether it is attached, and the errors.
fn status(sim: &Simulation, node: &str) -> Option<(bool, String, String)> {
    let status = sim.store().get::<VolumeAttachment>("", &format!("on-{node}"))?.status.clone().unwrap_or_default();
    let message = |error: Option<VolumeError>| error.and_then(|error| error.message).unwrap_or_default();
    Some((status.attached, message(status.attach_error), message(status.detach_error)))
}

const HELD: &str = "disk v is attached to a different instance (a)";

#[test]
fn an_attachment_gets_finalizer_and_status_and_goes_after_the_detach() {
    for (storage, id, volume_finalizers) in
        [(StorageSettings::default(), Some("id-a"), 2), (StorageSettings::stand_in(), None, 1)]
    {
        let delay = storage.attach.as_millis() as i64;
        let mut sim = cluster(storage, &["ReadWriteOnce"]);
        let key = create(&mut sim, &attachment("a")).key();
        run(&mut sim, 50);
        let found = sim.store().object(&key).expect("an attachment").metadata().clone();
        assert_eq!(found.finalizers, Some(vec!["external-attacher/disk-example-org".into()]));
        assert_eq!(annotation(&found, NODE_ID), id);
        assert_eq!(status(&sim, "a").map(|status| status.0), Some(delay == 0));
        run(&mut sim, 1_000);
        assert_eq!(status(&sim, "a"), Some((true, String::new(), String::new())));
        assert!(sim.world().disk("v").is_some_and(|disk| disk.attached_to.contains("a")));
        let volume = sim.store().get::<PersistentVolume>("", "v").expect("a volume");
        assert_eq!(volume.metadata.finalizers.as_ref().map(Vec::len), Some(volume_finalizers));
        sim.request(Write::Delete(key.clone(), DeleteOptions::default())).expect("deleted");
        run(&mut sim, 1_000);
        assert_eq!(status(&sim, "a"), None);
        assert!(sim.world().disk("v").is_some_and(|disk| disk.attached_to.is_empty()));
        assert_eq!(sim.next_at(), None, "nothing is pending");
    }
}

#[test]
fn a_disk_is_attached_to_one_machine_and_the_other_waits() {
    // How long after the detach the other machine gets the disk.
    let nodesim = StorageSettings {
        retry_on_change: false,
        retry: SignedDuration::from_secs(10),
        retry_max: SignedDuration::from_secs(10),
        finalizer_after_attach: true,
        ..StorageSettings::stand_in()
    };
    for (storage, modes, error, finalizers, second_at) in [
        (StorageSettings::stand_in(), ["ReadWriteOnce"], HELD, 1, 20),
        (nodesim, ["ReadWriteOnce"], HELD, 0, 21),
        // 1 + 2 + 4 + 8 seconds after the first try.
        (StorageSettings::default(), ["ReadWriteOnce"], HELD, 1, 31),
        (StorageSettings::default(), ["ReadWriteMany"], "", 1, 1),
    ] {
        let mut sim = cluster(storage, &modes);
        let first = create(&mut sim, &attachment("a")).key();
        run(&mut sim, 1_000);
        let second = create(&mut sim, &attachment("b")).key();
        run(&mut sim, 500);
        assert_eq!(status(&sim, "b"), Some((error.is_empty(), error.to_owned(), String::new())));
        let found = sim.store().object(&second).expect("an attachment").metadata().finalizers.clone();
        assert_eq!(found.unwrap_or_default().len(), finalizers);
        run(&mut sim, 18_500);
        sim.request(Write::Delete(first, DeleteOptions::default())).expect("deleted");
        let until = sim.now() + SignedDuration::from_secs(60);
        let attached = |sim: &Simulation| status(sim, "b") == Some((true, String::new(), String::new()));
        assert_eq!(sim.run_until_holds(until, attached), Ok(true), "{modes:?}");
        let at = if error.is_empty() { 1 } else { sim.now().as_second() };
        // The delay of the storage is less than a second.
        assert_eq!(at, second_at, "{modes:?}");
    }
}

#[test]
fn a_disk_that_does_not_detach_is_tried_again() {
    for (storage, tries) in [(StorageSettings::default(), 4), (StorageSettings::stand_in(), 1)] {
        let mut sim = cluster(storage, &["ReadWriteOnce"]);
        let key = create(&mut sim, &attachment("a")).key();
        run(&mut sim, 1_000);
        let set = |sim: &mut Simulation, error: Option<&str>| {
            sim.change_world(|world, now| {
                let mut disk = world.disk("v").expect("a disk").clone();
                disk.detach_error = error.map(str::to_owned);
                world.set_disk("v", disk, now);
            });
        };
        set(&mut sim, Some("the hypervisor does not answer"));
        sim.follow();
        sim.request(Write::Delete(key, DeleteOptions::default())).expect("deleted");
        run(&mut sim, 8_000);
        assert_eq!(status(&sim, "a").map(|status| status.2).as_deref(), Some("the hypervisor does not answer"));
        // At once, and after 1, 3 and 7 seconds. The first change is the deletion.
        let changes = sim.take_journal().into_iter();
        let changes = changes.filter(|(_, happening)| matches!(happening, Happening::Changed(_))).count() - 1;
        assert_eq!(changes, tries);
        set(&mut sim, None);
        run(&mut sim, 10_000);
        assert_eq!(status(&sim, "a"), None);
    }
}

#[test]
fn what_the_sidecar_cannot_find_is_an_error() {
    let mut sim = cluster(StorageSettings::default(), &["ReadWriteOnce"]);
    create(&mut sim, &attachment("c"));
    let mut other = attachment("a");
    other["spec"]["source"]["persistentVolumeName"] = json!("w");
    create(&mut sim, &other);
    run(&mut sim, 100);
    let error = |node: &str| status(&sim, node).map(|status| status.1);
    assert_eq!(error("c").as_deref(), Some("csinode.storage.k8s.io \"c\" not found"));
    assert_eq!(error("a").as_deref(), Some("persistentvolume \"w\" not found"));
}
