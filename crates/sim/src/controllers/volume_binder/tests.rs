//! Kubernetes' own table (`binder_test.go`), and the order and times of writes and events in a run.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::binding::{BIND_COMPLETED, BOUND_BY_CONTROLLER};
use super::*;
use crate::object::SimObject;
use crate::store::Store;
use crate::volumes::{PROVISIONED_BY, SELECTED_NODE};
use crate::{
    Choices, DriverSettings, DriverState, EventNote, Happening, Settings, Simulation, StorageSettings, World, Write,
};

fn object(value: &Value) -> SimObject {
    SimObject::from_json(value).expect("an object")
}

/// An object in short: its kind (`pv` or `pvc`) and name, then words: the phase, `size=1Gi`, `class=gold`, `claim=c#uid`,
/// `volume=v`, `policy=Delete`, `mode=Block`, `rwx`, `labels`, `selector`, and annotations.
fn read(text: &str) -> SimObject {
    let mut words = text.split_whitespace();
    let (kind, name) = (words.next().expect("a kind"), words.next().expect("a name"));
    let (mut spec, mut metadata, mut status) = (json!({}), json!({ "name": name }), json!({}));
    let (mut size, mut modes) = ("1Gi", json!(["ReadWriteOnce"]));
    for word in words {
        match word.split_once('=') {
            Some(("size", value)) => size = value,
            Some(("class", value)) => spec["storageClassName"] = json!(value),
            Some(("volume", value)) => spec["volumeName"] = json!(value),
            Some(("policy", value)) => spec["persistentVolumeReclaimPolicy"] = json!(value),
            Some(("mode", value)) => spec["volumeMode"] = json!(value),
            Some(("claim", value)) => {
                let (claim, uid) = value.split_once('#').unwrap_or((value, ""));
                spec["claimRef"] = json!({ "namespace": "n", "name": claim, "uid": uid });
            }
            Some((other, _)) => panic!("{other}"),
            None => match word {
                "rwx" => modes = json!(["ReadWriteOnce", "ReadWriteMany"]),
                "labels" => metadata["labels"] = json!({ "foo": "true" }),
                "selector" => spec["selector"] = json!({ "matchLabels": { "foo": "true" } }),
                "csi" => spec["csi"] = json!({ "driver": "d", "volumeHandle": name }),
                "by-controller" => metadata["annotations"][BOUND_BY_CONTROLLER] = json!("yes"),
                "completed" => metadata["annotations"][BIND_COMPLETED] = json!("yes"),
                "provisioned" => metadata["annotations"][PROVISIONED_BY] = json!("d"),
                "selected" => metadata["annotations"][SELECTED_NODE] = json!("a"),
                phase => status["phase"] = json!(phase),
            },
        }
    }
    spec["accessModes"] = modes;
    let kind = if kind == "pv" {
        spec["capacity"] = json!({ "storage": size });
        "PersistentVolume"
    } else {
        metadata["namespace"] = json!("n");
        metadata["uid"] = json!("u");
        spec["resources"] = json!({ "requests": { "storage": size } });
        "PersistentVolumeClaim"
    };
    object(&json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status }))
}

/// What a binding changes in an object, in the words of [`read`].
fn show(object: &SimObject) -> String {
    let value = object.to_json();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = if object.kind() == ObjectKind::PersistentVolume { "pv" } else { "pvc" };
    let mut words = vec![kind.to_owned(), text("/metadata/name"), text("/status/phase")];
    let (claim, uid, volume) = (text("/spec/claimRef/name"), text("/spec/claimRef/uid"), text("/spec/volumeName"));
    words.extend((!claim.is_empty()).then(|| format!("claim={claim}{}{uid}", if uid.is_empty() { "" } else { "#" })));
    words.extend((!volume.is_empty()).then(|| format!("volume={volume}")));
    for (annotation, word) in [(BOUND_BY_CONTROLLER, "by-controller"), (BIND_COMPLETED, "completed")] {
        words.extend(value["metadata"]["annotations"].get(annotation).map(|_| word.to_owned()));
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// Makes one step and gives the objects that it wrote, as they are afterwards, and the reasons of its events.
fn one_step(given: &[&str], item: &SimKey) -> (Vec<String>, Vec<String>) {
    let mut store = Store::default();
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "wait" },
        "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer" });
    store.put(object(&class));
    given.iter().for_each(|text| drop(store.put(read(text))));
    let (settings, mut choices, mut world) = (Settings::default(), Choices::enumerated(), World::default());
    let mut cx = Context {
        store: &store,
        now: Timestamp::UNIX_EPOCH,
        started: Timestamp::UNIX_EPOCH,
        settings: &settings,
        choices: &mut choices,
        world: &mut world,
    };
    let mut binder = VolumeBinder::default();
    binder.resume(&mut cx, &mut Wakes::default());
    let step = binder.step(&mut cx, &Item::Object(item.clone()));
    let (mut written, mut events) = (std::collections::BTreeMap::new(), Vec::new());
    for write in step.writes {
        match write {
            Write::Replace(object) | Write::Status(object) => drop(written.insert(object.key(), show(&object))),
            Write::Event(note) => events.push(note.reason.to_owned()),
            other => panic!("{other:?}"),
        }
    }
    (written.into_values().collect(), events)
}

#[test]
fn claims_as_in_kubernetes_own_table() {
    let key = SimKey::new(ObjectKind::PersistentVolumeClaim, "n", "c");
    for (case, given, written, events) in [
        (
            "1-1",
            &["pv v Available", "pvc c Pending"][..],
            &["pv v Bound claim=c#u by-controller", "pvc c Bound volume=v by-controller completed"][..],
            &[][..],
        ),
        ("1-2", &["pv v Available", "pvc c Pending size=10Gi"], &[], &["FailedBinding"]),
        ("1-3", &["pv v Available", "pvc c Bound size=10Gi"], &["pvc c Pending"], &["FailedBinding"]),
        (
            "1-4",
            &["pv a Available size=10Gi", "pv b Available", "pvc c Pending"],
            &["pv b Bound claim=c#u by-controller", "pvc c Bound volume=b by-controller completed"],
            &[],
        ),
        (
            "1-5",
            &["pv a Available size=10Gi claim=c", "pv b Available", "pvc c Pending"],
            &["pv a Bound claim=c#u", "pvc c Bound volume=a by-controller completed"],
            &[],
        ),
        ("1-7", &["pv v Available claim=c#x", "pvc c Pending"], &[], &["FailedBinding"]),
        (
            "1-8",
            &["pv v Available claim=c#u by-controller", "pvc c Pending"],
            &["pv v Bound claim=c#u by-controller", "pvc c Bound volume=v by-controller completed"],
            &[],
        ),
        (
            "1-10",
            &["pv v Bound claim=c#u by-controller", "pvc c Pending volume=v by-controller completed"],
            &["pvc c Bound volume=v by-controller completed"],
            &[],
        ),
        (
            "1-11",
            &["pv v Available labels", "pvc c Pending selector"],
            &["pv v Bound claim=c#u by-controller", "pvc c Bound volume=v by-controller completed"],
            &[],
        ),
        ("1-12", &["pv v Available", "pvc c Pending selector"], &[], &["FailedBinding"]),
        ("1-13", &["pv v Available class=wait", "pvc c Pending class=wait"], &[], &["WaitForFirstConsumer"]),
        (
            "1-14",
            &["pv v Available class=wait claim=c", "pvc c Pending class=wait"],
            &["pv v Bound claim=c#u", "pvc c Bound volume=v by-controller completed"],
            &[],
        ),
        (
            "1-15",
            &["pv a Available size=10Gi", "pv b Available", "pvc c Pending volume=a"],
            &["pv a Bound claim=c#u by-controller", "pvc c Bound volume=a completed"],
            &[],
        ),
        ("1-16", &["pv v Available", "pvc c Pending rwx volume=v"], &[], &["VolumeMismatch"]),
        ("1-17", &["pv a Pending", "pv b Failed", "pv d Released", "pvc c Pending"], &[], &["FailedBinding"]),
        ("2-1", &["pvc c Pending volume=v"], &[], &[]),
        (
            "2-4",
            &["pv v Pending claim=c", "pvc c Pending volume=v"],
            &["pv v Bound claim=c#u", "pvc c Bound volume=v completed"],
            &[],
        ),
        ("2-6", &["pv v Bound claim=other#o", "pvc c Pending volume=v"], &[], &["FailedBinding"]),
        ("2-9", &["pv v Available", "pvc c Pending size=2Gi volume=v"], &[], &["VolumeMismatch"]),
        ("2-10", &["pv v Available class=gold", "pvc c Pending volume=v"], &[], &["VolumeMismatch"]),
        ("3-1", &["pvc c Bound completed"], &["pvc c Lost completed"], &["ClaimLost"]),
        ("3-2", &["pvc c Bound volume=v completed"], &["pvc c Lost volume=v completed"], &["ClaimLost"]),
        (
            "3-3",
            &["pv v Available", "pvc c Bound volume=v completed"],
            &["pv v Bound claim=c#u by-controller", "pvc c Bound volume=v completed"],
            &[],
        ),
        (
            "3-6",
            &["pv v Bound claim=other#o", "pvc c Bound volume=v completed"],
            &["pvc c Lost volume=v completed"],
            &["ClaimMisbound"],
        ),
        (
            "fewer access modes first, a reserved volume notwithstanding",
            &["pv a Available rwx claim=c", "pv b Available size=5Gi", "pvc c Pending"],
            &["pv b Bound claim=c#u by-controller", "pvc c Bound volume=b by-controller completed"],
            &[],
        ),
        ("14-3", &["pv v Available", "pvc c Pending mode=Block"], &[], &["FailedBinding"]),
        ("missing class", &["pvc c Pending class=gold"], &[], &["ProvisioningFailed"]),
    ] {
        let (found, reasons) = one_step(given, &key);
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((found, reasons), (texts(written), texts(events)), "{case}");
    }
}

#[test]
fn volumes_as_in_kubernetes_own_table() {
    for (case, given, written, events) in [
        ("4-1", &["pv v Pending"][..], &["pv v Available"][..], &[][..]),
        ("4-2", &["pv v Pending claim=c"], &["pv v Available claim=c"], &[]),
        ("4-3", &["pv v Bound claim=c#u"], &["pv v Released claim=c#u"], &[]),
        ("4-4", &["pv v Bound claim=c#x", "pvc c Pending"], &["pv v Released claim=c#x"], &[]),
        ("4-5", &["pv v Available claim=c#u by-controller", "pvc c Pending"], &[], &[]),
        ("4-6", &["pv v Available claim=c#u", "pvc c Bound volume=v"], &["pv v Bound claim=c#u"], &[]),
        (
            "4-7",
            &["pv v Bound claim=c#u by-controller", "pvc c Bound volume=other"],
            &["pv v Available"],
            &[],
        ),
        ("4-8", &["pv v Bound claim=c#u", "pvc c Bound volume=other"], &["pv v Available claim=c"], &[]),
        (
            "4-9",
            &["pv v Bound claim=c#u policy=Delete provisioned", "pvc c Bound volume=other"],
            &["pv v Released claim=c#u"],
            &[],
        ),
        ("14-13", &["pv v Available claim=c#u", "pvc c Pending mode=Block"], &[], &["VolumeMismatch", "VolumeMismatch"]),
        ("a CSI driver deletes it", &["pv v Released claim=c#u policy=Delete csi"], &[], &[]),
        ("nobody can delete it", &["pv v Released claim=c#u policy=Delete"], &["pv v Failed claim=c#u"], &["VolumeFailedDelete"]),
    ] {
        let (found, reasons) = one_step(given, &volume_key("v"));
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((found, reasons), (texts(written), texts(events)), "{case}");
    }
}

/// A cluster whose drivers do not answer.
fn without_drivers() -> Simulation {
    let stopped = DriverSettings { state: DriverState::Stopped, ..DriverSettings::default() };
    let drivers = [("d".to_owned(), stopped)].into();
    let storage = StorageSettings { drivers, ..StorageSettings::default() };
    let settings = Settings { storage, ..Settings::default() }.only_storage();
    Simulation::new(Timestamp::UNIX_EPOCH, settings, Choices::enumerated())
}

fn create(sim: &mut Simulation, value: &Value) -> SimObject {
    sim.request(Write::Create(object(value))).expect("created").expect("an object")
}

fn events(sim: &Simulation, key: &SimKey) -> Vec<(String, u32)> {
    sim.events().about(key).map(|event| (event.note.message.clone(), event.count)).collect()
}

fn class(mode: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "s" },
        "provisioner": "d", "volumeBindingMode": mode })
}

fn claim(class: Option<&str>) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "n" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } } } })
}

#[test]
fn a_claim_is_bound_in_four_writes() {
    let mut sim = without_drivers();
    create(&mut sim, &claim(Some("")));
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    sim.follow();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" } } });
    create(&mut sim, &volume);
    sim.run_for(SignedDuration::from_secs(20)).expect("a run");
    let journal = sim.take_journal().into_iter().filter_map(|(at, happening)| match happening {
        Happening::Changed(change) => Some((at.as_second(), show(change.latest()))),
        Happening::Reported(_) => None,
    });
    // The claim is looked at again only by the resync, 15 seconds after the start.
    let expected = [
        (1, "pv v Pending"),
        (1, "pv v Available"),
        (15, "pv v Available claim=c#5ead0000-0000-4000-8000-000000000001 by-controller"),
        (15, "pv v Bound claim=c#5ead0000-0000-4000-8000-000000000001 by-controller"),
        (15, "pvc c Pending volume=v by-controller completed"),
        (15, "pvc c Bound volume=v by-controller completed"),
    ];
    assert_eq!(journal.collect::<Vec<_>>(), expected.map(|(at, text)| (at, text.to_owned())));
    let bound = sim.store().get::<PersistentVolumeClaim>("n", "c").expect("a claim").status.clone().expect("a status");
    let size = bound.capacity.and_then(|capacity| capacity.get("storage").cloned());
    assert_eq!((size.map(|size| size.0).as_deref(), bound.access_modes), (Some("2Gi"), Some(vec!["ReadWriteOnce".into()])));
    assert_eq!(sim.next_at(), None, "nothing is pending");
}

#[test]
fn a_pending_claim_repeats_its_event_until_a_pod_is_scheduled() {
    let mut sim = without_drivers();
    create(&mut sim, &class("WaitForFirstConsumer"));
    let key = create(&mut sim, &claim(Some("s"))).key();
    let pod = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "n" }, "spec": {
            "schedulerName": "nobody", "containers": [], "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] } })
    };
    let first = "waiting for first consumer to be created before binding".to_owned();
    // The pod is created in the same moment, but after the controller has seen the claim.
    create(&mut sim, &pod("p"));
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    assert_eq!(events(&sim, &key), [(first.clone(), 1)]);
    sim.run_for(SignedDuration::from_secs(30)).expect("a run");
    let waiting = ("waiting for pod p to be scheduled".to_owned(), 2);
    assert_eq!(events(&sim, &key), [(first, 1), waiting.clone()]);
    create(&mut sim, &pod("q"));
    sim.run_for(SignedDuration::from_secs(15)).expect("a run");
    assert_eq!(events(&sim, &key)[1..], [waiting, ("waiting for pods p,q to be scheduled".to_owned(), 1)]);
}

#[test]
fn a_provisioner_is_asked_and_the_event_is_repeated() {
    let mut sim = without_drivers();
    create(&mut sim, &class("Immediate"));
    let key = create(&mut sim, &claim(Some("s"))).key();
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    let found = sim.store().object(&key).expect("a claim").metadata().annotations.clone().unwrap_or_default();
    let asked = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
    assert!(asked.iter().all(|annotation| found.get(*annotation).is_some_and(|name| name == "d")));
    let message = "Waiting for a volume to be created either by the external provisioner 'd' or manually by the \
        system administrator. If volume creation is delayed, please verify that the provisioner is running and \
        correctly registered.";
    // The controller's own annotation makes it look at the claim a second time.
    assert_eq!(events(&sim, &key), [(message.to_owned(), 2)]);
    sim.run_for(SignedDuration::from_secs(30)).expect("a run");
    assert_eq!(events(&sim, &key), [(message.to_owned(), 4)]);
}

#[test]
fn a_claim_without_a_class_gets_the_default_class_when_there_is_one() {
    let mut sim = without_drivers();
    let key = create(&mut sim, &claim(None)).key();
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    let message = "no persistent volumes available for this claim and no storage class is set";
    assert_eq!(events(&sim, &key), [(message.to_owned(), 1)]);
    let mut default = class("Immediate");
    default["metadata"]["annotations"] = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    create(&mut sim, &default);
    sim.run_for(SignedDuration::from_secs(15)).expect("a run");
    let spec = sim.store().get::<PersistentVolumeClaim>("n", "c").expect("a claim").spec.clone();
    assert_eq!(spec.and_then(|spec| spec.storage_class_name).as_deref(), Some("s"));
    assert_eq!(events(&sim, &key).len(), 2, "the provisioner is asked");
    // A new claim gets it from the API server.
    let mut second = claim(None);
    second["metadata"]["name"] = json!("second");
    assert_eq!(create(&mut sim, &second).to_json()["spec"]["storageClassName"], json!("s"));
}

#[test]
fn a_deleted_claim_releases_its_volume_and_a_lost_volume_its_claim() {
    let mut sim = without_drivers();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" } } });
    let volume = create(&mut sim, &volume);
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    let claim = create(&mut sim, &claim(Some("")));
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    let mut fork = sim.clone();
    let phase = |sim: &Simulation, key: &SimKey| {
        sim.store().object(key).map(|object| object.to_json()["status"]["phase"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!((phase(&sim, &volume.key()), phase(&sim, &claim.key())), (Some("Bound".into()), Some("Bound".into())));
    sim.request(Write::delete(&claim)).expect("deleted");
    sim.run_for(SignedDuration::from_secs(1)).expect("a run");
    assert_eq!((phase(&sim, &volume.key()), phase(&sim, &claim.key())), (Some("Released".into()), None));
    // A bound volume is protected; without its finalizer it is gone at once.
    let mut unprotected = fork.store().object(&volume.key()).expect("a volume").clone();
    unprotected.metadata_mut().finalizers = None;
    fork.request(Write::delete(&volume)).expect("deleted");
    unprotected.metadata_mut().resource_version = None;
    fork.request(Write::Replace(unprotected)).expect("replaced");
    fork.run_for(SignedDuration::from_secs(1)).expect("a run");
    assert_eq!((phase(&fork, &volume.key()), phase(&fork, &claim.key())), (None, Some("Lost".into())));
    let lost = EventNote::warning(
        &claim.key(),
        "ClaimLost",
        "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
    );
    assert_eq!(fork.events().about(&claim.key()).map(|event| (*event.note).clone()).collect::<Vec<_>>(), [lost]);
}
