//! Volumes that are attached, wait, and are detached: when, in which order, and with which events.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::object::SimObject;
use crate::settings::{DriverSettings, DriverState, Settings, StorageSettings};
use crate::step::{DeleteOptions, Write};
use crate::{Choices, Happening, Simulation, World};

const UNIQUE: &str = "kubernetes.io/csi/d^h";

fn object(value: &Value) -> SimObject {
    SimObject::from_json(value).expect("an object")
}

fn create(sim: &mut Simulation, value: &Value) -> SimObject {
    sim.request(Write::Create(object(value))).expect("created").expect("an object")
}

fn run(sim: &mut Simulation, millis: i64) {
    sim.run_for(SignedDuration::from_millis(millis)).expect("a run");
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": { MANAGED: "true" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": { "nodeName": node, "containers": [],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] } })
}

/// Two nodes and a bound volume with these access modes, one second after the start. Drivers act at once.
fn cluster_with(settings: Settings, mode: &str) -> Simulation {
    let mut sim = Simulation::new(Timestamp::UNIX_EPOCH, settings.only_storage(), Choices::enumerated());
    ["a", "b"].iter().for_each(|name| drop(create(&mut sim, &node(name))));
    let (modes, size) = (json!([mode]), json!({ "storage": "1Gi" }));
    create(
        &mut sim,
        &json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
            "spec": { "accessModes": modes, "capacity": size, "csi": { "driver": "d", "volumeHandle": "h" } } }),
    );
    create(
        &mut sim,
        &json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "n" },
            "spec": { "accessModes": modes, "volumeName": "v", "storageClassName": "",
                "resources": { "requests": size } } }),
    );
    run(&mut sim, 1_000);
    sim
}

fn stand_in() -> Settings {
    Settings { storage: StorageSettings::stand_in(), ..Settings::default() }
}

fn cluster() -> Simulation {
    cluster_with(stand_in(), "ReadWriteOnce")
}

/// Changes the JSON of an object, status included.
fn edit(sim: &mut Simulation, key: &SimKey, change: impl FnOnce(&mut Value)) {
    let found = sim.store().object(key).expect("an object");
    let mut value = found.to_json();
    let entry = key.kind.entry();
    (value["apiVersion"], value["kind"]) = (json!(entry.api_version), json!(entry.kind));
    change(&mut value);
    value["metadata"]["resourceVersion"] = Value::Null;
    sim.request(Write::Replace(object(&value))).expect("written");
    sim.request(Write::Status(object(&value))).expect("written");
}

fn set_in_use(sim: &mut Simulation, node: &str, volumes: &[&str]) {
    edit(sim, &SimKey::node(node), |node| node["status"]["volumesInUse"] = json!(volumes));
}

fn set_ready(sim: &mut Simulation, node: &str, status: &str) {
    edit(sim, &SimKey::node(node), |node| node["status"]["conditions"][0]["status"] = json!(status));
}

fn force_delete(sim: &mut Simulation, key: &SimKey) {
    let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    sim.request(Write::Delete(key.clone(), options)).expect("deleted");
}

/// The nodes whose status lists the volume.
fn listed(sim: &Simulation) -> Vec<String> {
    let attached = |node: &&Arc<Node>| {
        let list = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
        list.is_some_and(|list| list.iter().any(|volume| volume.name == UNIQUE))
    };
    sim.store().all::<Node>().filter(attached).filter_map(|node| node.metadata.name.clone()).collect()
}

/// The nodes that have a VolumeAttachment.
fn requested(sim: &Simulation) -> Vec<String> {
    sim.store().all::<VolumeAttachment>().map(|attachment| attachment.spec.node_name.clone()).collect()
}

fn events(sim: &Simulation, namespace: &str, pod: &str) -> Vec<(String, u32)> {
    let key = SimKey::pod(namespace, pod);
    sim.events().about(&key).map(|event| (event.note.message.clone(), event.count)).collect()
}

const ATTACHED: &str = "AttachVolume.Attach succeeded for volume \"v\" ";

/// What happened to nodes and attachments, and what was reported: in milliseconds from the start.
fn journal(sim: &mut Simulation) -> Vec<(i64, String)> {
    let show = |happening: Happening| match happening {
        Happening::Changed(change) => match change.latest() {
            SimObject::Node(node) => {
                let status = node.status.clone().unwrap_or_default();
                let attached = status.volumes_attached.unwrap_or_default().len();
                Some(format!("{} attached {attached}", change.key))
            }
            SimObject::VolumeAttachment(attachment) => {
                let status = attachment.status.clone().unwrap_or_default();
                let word = match (&change.after, &attachment.metadata.deletion_timestamp) {
                    (None, _) => "gone",
                    (_, Some(_)) => "deleting",
                    _ if status.attached => "attached",
                    _ if attachment.metadata.finalizers.is_some() => "accepted",
                    _ => "new",
                };
                Some(format!("on {} {word}", attachment.spec.node_name))
            }
            _ => None,
        },
        Happening::Reported(event) => Some(event.note.reason.to_owned()),
    };
    let all = sim.take_journal().into_iter();
    all.filter_map(|(at, happening)| Some((at.as_millisecond(), show(happening)?))).collect()
}

#[test]
fn a_volume_follows_its_pod() {
    let mut sim = cluster();
    sim.follow();
    let old = create(&mut sim, &pod("n", "old", "a")).key();
    run(&mut sim, 2_000);
    // The loop runs every 100 ms; the operation looks after 500 ms; the next loop reports to the node.
    let expected = [
        (1_100, "on a new"),
        (1_102, "on a accepted"),
        (1_102, "on a attached"),
        (1_600, "SuccessfulAttachVolume"),
        (1_700, "node a attached 1"),
    ];
    let texts = |list: &[(i64, &str)]| list.iter().map(|(at, text)| (*at, (*text).to_owned())).collect::<Vec<_>>();
    assert_eq!(journal(&mut sim), texts(&expected));
    assert_eq!(events(&sim, "n", "old"), [(ATTACHED.to_owned(), 1)]);
    set_in_use(&mut sim, "a", &[UNIQUE]);
    create(&mut sim, &pod("n", "new", "b"));
    run(&mut sim, 1_000);
    force_delete(&mut sim, &old);
    run(&mut sim, 1_000);
    let waiting = "Waiting for detach for volume \"v\" Volume is already used by pod(s) old";
    assert_eq!(events(&sim, "n", "new"), [(waiting.to_owned(), 1)]);
    assert_eq!((listed(&sim), requested(&sim)), (vec!["a".to_owned()], vec!["a".to_owned()]));
    journal(&mut sim);
    // The kubelet has unmounted it, 5 seconds after the start.
    set_in_use(&mut sim, "a", &[]);
    run(&mut sim, 3_000);
    let expected = [
        (5_000, "node a attached 1"),
        // The node has to know before the volume goes.
        (5_100, "node a attached 0"),
        (5_100, "on a deleting"),
        (5_102, "on a deleting"),
        (5_102, "on a gone"),
        // The operation looks after 500 ms; the next loop attaches.
        (5_700, "on b new"),
        (5_702, "on b accepted"),
        (5_702, "on b attached"),
        (6_200, "SuccessfulAttachVolume"),
        (6_300, "node b attached 1"),
    ];
    assert_eq!(journal(&mut sim), texts(&expected));
    assert_eq!(sim.next_at(), None, "nothing is pending");
}

#[test]
fn a_pod_that_ends_or_stops_frees_its_volume() {
    // The status of the pod, whether it is being deleted, whether its volume is detached.
    let container = |state: Value| {
        json!([{ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
    };
    let (running, ended) = (json!({ "running": {} }), json!({ "terminated": { "exitCode": 0 } }));
    for (phase, state, deleted, detached) in [
        ("Running", &running, false, false),
        ("Running", &running, true, false),
        ("Running", &ended, false, false),
        ("Running", &ended, true, true),
        ("Failed", &running, false, true),
        ("Succeeded", &ended, false, true),
    ] {
        let mut sim = cluster();
        let key = create(&mut sim, &pod("n", "p", "a")).key();
        run(&mut sim, 1_000);
        edit(&mut sim, &key, |pod| {
            pod["status"] = json!({ "phase": "Running", "containerStatuses": container(running.clone()) });
        });
        if deleted {
            sim.request(Write::Delete(key.clone(), DeleteOptions::default())).expect("deleted");
        }
        edit(&mut sim, &key, |pod| {
            pod["status"] = json!({ "phase": phase, "containerStatuses": container(state.clone()) });
        });
        run(&mut sim, 2_000);
        assert_eq!(requested(&sim).is_empty(), detached, "{phase} {state} {deleted}");
    }
}

/// What happens to the node, and how many seconds after the pod is gone the volume is detached.
#[test]
fn a_mounted_volume_is_detached_by_force_only() {
    enum What {
        Nothing,
        Unmounted,
        NotReady,
        NotReadyAfter(i64),
        Deleted,
        OutOfService,
    }
    for (what, force, expected) in [
        (What::Nothing, true, None),
        (What::Unmounted, true, Some(0)),
        (What::NotReady, true, Some(360)),
        (What::NotReady, false, None),
        // The clock runs while the node is Ready.
        (What::NotReadyAfter(100), true, Some(360)),
        (What::NotReadyAfter(500), true, Some(500)),
        (What::Deleted, true, Some(360)),
        (What::OutOfService, true, Some(0)),
        (What::OutOfService, false, Some(0)),
    ] {
        let mut settings = stand_in();
        if !force {
            settings.timers.force_detach = None;
        }
        let mut sim = cluster_with(settings, "ReadWriteOnce");
        let key = create(&mut sim, &pod("n", "p", "a")).key();
        run(&mut sim, 1_000);
        set_in_use(&mut sim, "a", &[UNIQUE]);
        run(&mut sim, 1_000);
        let start = sim.now();
        force_delete(&mut sim, &key);
        match what {
            What::Nothing => {}
            What::Unmounted => set_in_use(&mut sim, "a", &[]),
            What::NotReady => set_ready(&mut sim, "a", "Unknown"),
            What::NotReadyAfter(seconds) => {
                run(&mut sim, seconds * 1_000);
                set_ready(&mut sim, "a", "Unknown");
            }
            What::Deleted => {
                sim.request(Write::Delete(SimKey::node("a"), DeleteOptions::default())).expect("deleted");
            }
            What::OutOfService => {
                let taint = json!([{ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" }]);
                edit(&mut sim, &SimKey::node("a"), |node| node["spec"]["taints"] = taint);
            }
        }
        let until = start + SignedDuration::from_secs(900);
        let detached = sim.run_until_holds(until, |sim| requested(sim).is_empty()).expect("a run");
        let found = detached.then(|| sim.now().duration_since(start).as_secs());
        assert_eq!(found, expected);
        assert_eq!(sim.next_at().is_none(), !detached, "only a detach that ends is waited for");
    }
}

#[test]
fn a_pod_that_comes_back_stops_the_clock() {
    let mut sim = cluster();
    let key = create(&mut sim, &pod("n", "p", "a")).key();
    run(&mut sim, 1_000);
    set_in_use(&mut sim, "a", &[UNIQUE]);
    set_ready(&mut sim, "a", "Unknown");
    force_delete(&mut sim, &key);
    run(&mut sim, 350_000);
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 1_000);
    force_delete(&mut sim, &key);
    let start = sim.now();
    let until = start + SignedDuration::from_secs(900);
    assert_eq!(sim.run_until_holds(until, |sim| requested(sim).is_empty()), Ok(true));
    assert_eq!(sim.now().duration_since(start).as_secs(), 360);
}

#[test]
fn waiting_pods_are_told_once_and_in_the_words_of_the_version() {
    let used = "Volume is already used by pod(s) old";
    let attached = "Volume is already exclusively attached to one node";
    let (new, before) = ("Waiting for detach for volume \"v\"", "Multi-Attach error for volume \"v\"");
    let waiting = ", waiting on detach before it can be attached to another node";
    for (minor, patch, gone, expected) in [
        (36, 4, false, format!("{new} {used}")),
        (36, 4, true, format!("{new} {attached}{waiting}")),
        (36, 3, false, format!("{before} {used}")),
        (36, 3, true, format!("{before} {attached} and can't be attached to another")),
        (35, 9, true, format!("{before} {attached} and can't be attached to another")),
    ] {
        let version = stead_model::KubernetesVersion::minor(minor);
        let settings = Settings { patch, storage: StorageSettings::stand_in(), ..Settings::of(version) };
        let mut sim = cluster_with(settings, "ReadWriteOnce");
        let old = create(&mut sim, &pod("n", "old", "a")).key();
        run(&mut sim, 1_000);
        set_in_use(&mut sim, "a", &[UNIQUE]);
        if gone {
            force_delete(&mut sim, &old);
        }
        create(&mut sim, &pod("n", "new", "b"));
        run(&mut sim, 60_000);
        assert_eq!(events(&sim, "n", "new"), [(expected, 1)], "1.{minor}.{patch}");
    }
}

#[test]
fn a_volume_for_many_is_attached_everywhere() {
    let mut sim = cluster_with(stand_in(), "ReadWriteMany");
    create(&mut sim, &pod("n", "p", "a"));
    create(&mut sim, &pod("n", "q", "b"));
    run(&mut sim, 1_000);
    assert_eq!(listed(&sim), ["a", "b"]);
}

#[test]
fn of_two_waiting_nodes_one_gets_the_volume() {
    let mut sim = cluster();
    let mut firsts = Vec::new();
    create(&mut sim, &pod("n", "p", "a"));
    create(&mut sim, &pod("n", "q", "b"));
    let mut choices = Choices::enumerated();
    loop {
        let mut fork = sim.clone();
        fork.set_choices(choices);
        run(&mut fork, 1_000);
        firsts.extend(listed(&fork));
        match fork.choices().next_path() {
            Some(next) => choices = next,
            None => break,
        }
    }
    assert_eq!(firsts, ["a", "b"]);
}

#[test]
fn a_failed_attach_is_reported_and_repeated() {
    let mut sim = cluster();
    let set_error = |sim: &mut Simulation, error: Option<&str>| {
        sim.change_world(|world, now| {
            let disk = crate::Disk { needs_attach: true, exclusive: true, ..world.disk("v").cloned().unwrap_or_default() };
            world.set_disk("v", crate::Disk { attach_error: error.map(str::to_owned), ..disk }, now);
        });
    };
    set_error(&mut sim, Some("no such disk"));
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 10_000);
    // It looks at 1.6 s; the delay is 0.5 s, then 1, 2 and 4 s, each with a look after 0.5 s: 2.7, 4.3, 6.9 s.
    let failed = ("AttachVolume.Attach failed for volume \"v\" : no such disk".to_owned(), 4);
    assert_eq!(events(&sim, "n", "p"), std::slice::from_ref(&failed));
    assert!(listed(&sim).is_empty());
    set_error(&mut sim, None);
    run(&mut sim, 2_000);
    assert_eq!((events(&sim, "n", "p"), listed(&sim)), (vec![failed, (ATTACHED.to_owned(), 1)], vec!["a".to_owned()]));
}

#[test]
fn a_driver_that_does_not_answer_times_out() {
    let drivers = [("d".to_owned(), DriverSettings { state: DriverState::Stopped, ..DriverSettings::default() })].into();
    let storage = StorageSettings { drivers, ..StorageSettings::stand_in() };
    let mut sim = cluster_with(Settings { storage, ..Settings::default() }, "ReadWriteOnce");
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 119_000);
    assert!(events(&sim, "n", "p").is_empty());
    run(&mut sim, 2_000);
    let message = "AttachVolume.Attach failed for volume \"v\" : timed out waiting for external-attacher of d CSI driver to \
        attach volume h";
    assert_eq!(events(&sim, "n", "p"), [(message.to_owned(), 1)]);
}

#[test]
fn a_volume_that_does_not_detach_does_not_block_the_attach_elsewhere() {
    let mut sim = cluster();
    let old = create(&mut sim, &pod("n", "old", "a")).key();
    run(&mut sim, 1_000);
    sim.change_world(|world, now| {
        let disk = world.disk("v").expect("a disk").clone();
        world.set_disk("v", crate::Disk { detach_error: Some("busy".into()), ..disk }, now);
    });
    force_delete(&mut sim, &old);
    create(&mut sim, &pod("n", "new", "b"));
    sim.follow();
    run(&mut sim, 6_000);
    assert!(listed(&sim).is_empty());
    // Detach and attach take turns, and each resets the delay of the other: half a second, the next loop, half a second,
    // the next loop. Kubernetes 1.36.4 does so.
    let failures = journal(&mut sim).into_iter().filter(|(_, text)| text == "FailedAttachVolume");
    assert_eq!(failures.map(|(at, _)| at).collect::<Vec<_>>(), [3_200, 4_400, 5_600, 6_800, 8_000]);
    // The attachment is uncertain now, and only the storage itself prevents a second one.
    assert_eq!(requested(&sim).len(), 2);
    let failed = "AttachVolume.Attach failed for volume \"v\" : disk v is attached to a different instance (a)";
    assert_eq!(events(&sim, "n", "new").last().map(|(message, _)| message.as_str()), Some(failed));
    sim.change_world(|world, now| {
        let disk = world.disk("v").expect("a disk").clone();
        world.set_disk("v", crate::Disk { detach_error: None, ..disk }, now);
    });
    run(&mut sim, 30_000);
    assert_eq!((listed(&sim), requested(&sim)), (vec!["b".to_owned()], vec!["b".to_owned()]));
    assert!(sim.world().violations().is_empty());
}

#[test]
fn an_attachment_that_somebody_deletes_is_made_again_after_a_check() {
    let mut sim = cluster();
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 9_000);
    let attachment = sim.store().all::<VolumeAttachment>().next().expect("an attachment").clone();
    sim.follow();
    sim.request(Write::delete(&SimObject::VolumeAttachment(attachment))).expect("deleted");
    run(&mut sim, 80_000);
    let found: Vec<(i64, String)> = journal(&mut sim).into_iter().filter(|(at, _)| *at > 11_000).collect();
    // The check comes with the first loop after a minute, the list is written by the next one, which also attaches.
    let expected = [
        (60_200, "on a new"),
        (60_200, "node a attached 0"),
        (60_202, "on a accepted"),
        (60_202, "on a attached"),
        (60_700, "SuccessfulAttachVolume"),
        (60_800, "node a attached 1"),
    ];
    assert_eq!(found, expected.map(|(at, text)| (at, text.to_owned())));
}

#[test]
fn a_node_that_registers_again_gets_its_list() {
    let mut sim = cluster();
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 1_000);
    sim.request(Write::Delete(SimKey::node("a"), DeleteOptions::default())).expect("deleted");
    run(&mut sim, 1_000);
    create(&mut sim, &node("a"));
    run(&mut sim, 1_000);
    assert_eq!(listed(&sim), ["a"]);
}

#[test]
fn a_pod_on_a_node_that_is_not_managed_waits_for_the_populator() {
    let mut sim = cluster();
    edit(&mut sim, &SimKey::node("a"), |node| node["metadata"]["annotations"] = json!({}));
    let mut other = node("c");
    other["metadata"]["annotations"] = json!({});
    create(&mut sim, &other);
    create(&mut sim, &pod("n", "p", "c"));
    run(&mut sim, 10_000);
    assert!(requested(&sim).is_empty());
    edit(&mut sim, &SimKey::node("c"), |node| node["metadata"]["annotations"] = json!({ MANAGED: "true" }));
    let until = sim.now() + SignedDuration::from_secs(600);
    assert_eq!(sim.run_until_holds(until, |sim| !requested(sim).is_empty()), Ok(true));
    assert_eq!(sim.now().as_second(), 180, "every third minute");
}

/// A cluster in mid-outage: the volume is on node a, which is not Ready, and a new pod on node b waits for it. Gives how
/// many seconds after the snapshot the volume is detached, and the events after it.
fn resumed(change: impl FnOnce(&mut Vec<Value>)) -> (Option<i64>, Vec<(String, u32)>) {
    let mut sim = cluster();
    create(&mut sim, &pod("n", "old", "a"));
    run(&mut sim, 1_000);
    set_in_use(&mut sim, "a", &[UNIQUE]);
    set_ready(&mut sim, "a", "Unknown");
    force_delete(&mut sim, &SimKey::pod("n", "old"));
    run(&mut sim, 8_000);
    // Created at 10 s; the snapshot is taken at 110 s.
    create(&mut sim, &pod("n", "new", "b"));
    run(&mut sim, 100_000);
    let mut values: Vec<Value> = Vec::new();
    for (key, object) in sim.store().iter() {
        let mut value = object.to_json();
        let entry = key.kind.entry();
        (value["apiVersion"], value["kind"]) = (json!(entry.api_version), json!(entry.kind));
        values.push(value);
    }
    change(&mut values);
    let objects: Vec<SimObject> = values.iter().map(object).collect();
    let now = sim.now();
    let settings = stand_in().only_storage();
    let mut sim = Simulation::resume(now, settings, Choices::enumerated(), objects, World::default());
    let until = now + SignedDuration::from_secs(900);
    let detached = sim.run_until_holds(until, |sim| !requested(sim).contains(&"a".to_owned())).expect("a run");
    (detached.then(|| sim.now().duration_since(now).as_secs()), events(&sim, "n", "new"))
}

fn waiting_event(text: &str, second: i64) -> Value {
    let at = Timestamp::from_second(second).expect("a time").to_string();
    json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "n" },
        "reason": "FailedAttachVolume", "message": format!("Waiting for detach for volume \"v\" {text}"),
        "firstTimestamp": at, "lastTimestamp": at,
        "involvedObject": { "kind": "Pod", "namespace": "n", "name": "new" } })
}

#[test]
fn a_snapshot_says_how_far_the_clock_is() {
    let attached = "Volume is already exclusively attached to one node, waiting on detach before it can be attached to \
        another node";
    // Without events, the volume is assumed to be free since the new pod was created, 100 seconds ago.
    let (seconds, events) = resumed(|_| {});
    assert_eq!((seconds, events.len()), (Some(260), 0));
    let (seconds, events) = resumed(|values| values.push(waiting_event(attached, 50)));
    assert_eq!((seconds, events.len()), (Some(300), 0));
    // The old pod needed it then; nobody knows since when it does not: half of the 60 seconds since then is expected.
    let used = "Volume is already used by pod(s) old";
    let (seconds, events) = resumed(|values| values.push(waiting_event(used, 50)));
    assert_eq!((seconds, events.len()), (Some(330), 0));
    // Its ReplicaSet no longer counted the old pod when its status changed last, at 90 s.
    let (seconds, _) = resumed(|values| {
        values.push(waiting_event(used, 50));
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }]);
        let is_new = |value: &&mut Value| value["kind"] == "Pod" && value["metadata"]["name"] == "new";
        let new = values.iter_mut().find(is_new).expect("the new pod");
        new["metadata"]["ownerReferences"] = owner;
        let changed = json!([{ "subresource": "status", "time": "1970-01-01T00:01:30Z" }]);
        values.push(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": "r", "namespace": "n", "uid": "r", "managedFields": changed },
            "spec": { "selector": {}, "template": {} } }));
    });
    assert_eq!(seconds, Some(340));
    // The controller has been running for 20 seconds only; what was said before is said again.
    let (seconds, events) = resumed(|values| {
        values.push(waiting_event(attached, 50));
        values.push(json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "kube-controller-manager", "namespace": "kube-system" },
            "spec": { "acquireTime": "1970-01-01T00:01:30.000000Z" } }));
    });
    assert_eq!((seconds, events.len()), (Some(340), 1));
    // The node is declared to be out of service.
    let (seconds, _) = resumed(|values| {
        let node = values.iter_mut().find(|value| value["kind"] == "Node").expect("node a");
        node["spec"]["taints"] = json!([{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }]);
    });
    assert_eq!(seconds, Some(0));
}

/// The Node was deleted shortly before the snapshot; its pod is still there, so its volume stays.
#[test]
fn a_node_that_is_gone_keeps_the_volumes_of_its_pods() {
    let mut sim = cluster();
    create(&mut sim, &pod("n", "p", "a"));
    run(&mut sim, 1_000);
    let is_node = |object: &SimObject| object.key() == SimKey::node("a");
    let objects: Vec<SimObject> = sim.store().iter().map(|(_, object)| object.clone()).collect();
    let objects = objects.into_iter().filter(|object| !is_node(object));
    let (now, settings) = (sim.now(), stand_in().only_storage());
    let mut sim = Simulation::resume(now, settings, Choices::enumerated(), objects, World::default());
    run(&mut sim, 2_000);
    assert_eq!(sim.store().all::<VolumeAttachment>().count(), 1);
    force_delete(&mut sim, &SimKey::pod("n", "p"));
    run(&mut sim, 2_000);
    assert_eq!(sim.store().all::<VolumeAttachment>().count(), 1, "until the six minutes are over");
    run(&mut sim, 400_000);
    assert_eq!(sim.store().all::<VolumeAttachment>().count(), 0);
}

#[test]
fn operations_go_on_after_a_snapshot() {
    let base = |change: &dyn Fn(&mut Simulation)| {
        let mut sim = cluster();
        create(&mut sim, &pod("n", "p", "a"));
        change(&mut sim);
        let objects: Vec<SimObject> = sim.store().iter().map(|(_, object)| object.clone()).collect();
        let (now, settings) = (sim.now(), stand_in().only_storage());
        let mut sim = Simulation::resume(now, settings, Choices::enumerated(), objects, World::default());
        run(&mut sim, 2_000);
        assert_eq!(sim.next_at(), None, "nothing is pending");
        sim
    };
    // The attachment is there, but the node does not list it yet.
    let sim = base(&|sim| run(sim, 200));
    assert_eq!((listed(&sim), events(&sim, "n", "p")), (vec!["a".to_owned()], vec![(ATTACHED.to_owned(), 1)]));
    // All is done.
    let sim = base(&|sim| run(sim, 1_000));
    assert_eq!((listed(&sim), events(&sim, "n", "p")), (vec!["a".to_owned()], vec![]));
    // A detach has begun, and the pod is wanted again.
    let sim = base(&|sim| {
        run(sim, 1_000);
        force_delete(sim, &SimKey::pod("n", "p"));
        run(sim, 101);
        create(sim, &pod("n", "p", "a"));
    });
    assert_eq!(listed(&sim), ["a"]);
    // An attachment that nobody needs and no node lists.
    let sim = base(&|sim| {
        run(sim, 200);
        force_delete(sim, &SimKey::pod("n", "p"));
    });
    assert!(requested(&sim).is_empty());
}

#[test]
fn a_volume_that_may_be_attached_counts_as_mounted_until_the_kubelet_reports() {
    // Whether the node is Ready, and how many seconds after the pod is gone the volume is detached.
    for (ready, expected) in [("True", 10), ("Unknown", 360)] {
        let mut sim = cluster();
        sim.change_world(|world, now| {
            world.set_disk("v", crate::Disk { attach_error: Some("no such disk".into()), ..Default::default() }, now);
        });
        set_ready(&mut sim, "a", ready);
        let key = create(&mut sim, &pod("n", "p", "a")).key();
        // The attach fails after half a second; the attachment is uncertain from then on.
        run(&mut sim, 600);
        let start = sim.now();
        force_delete(&mut sim, &key);
        let until = start + SignedDuration::from_secs(900);
        assert_eq!(sim.run_until_holds(until, |sim| requested(sim).is_empty()), Ok(true));
        assert_eq!(sim.now().duration_since(start).as_secs(), expected, "{ready}");
    }
}

#[test]
fn a_pod_whose_claim_is_gone_first_is_removed_by_the_populator() {
    let mut sim = cluster();
    let key = create(&mut sim, &pod("n", "p", "a")).key();
    run(&mut sim, 9_000);
    let claim = SimKey::new(ObjectKind::PersistentVolumeClaim, "n", "c");
    edit(&mut sim, &claim, |claim| claim["metadata"]["finalizers"] = json!(null));
    sim.request(Write::Delete(claim, DeleteOptions::default())).expect("deleted");
    force_delete(&mut sim, &key);
    let until = sim.now() + SignedDuration::from_secs(900);
    assert_eq!(sim.run_until_holds(until, |sim| requested(sim).is_empty()), Ok(true));
    assert_eq!(sim.now().as_second(), 60);
}
