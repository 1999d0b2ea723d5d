//! Pods on nodes that run, fail and come back.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::{Value, json};

use super::*;
use crate::choices::Choices;
use crate::controllers::ControllerId;
use crate::machines::MachineSpec;
use crate::object::SimObject;
use crate::pods;
use crate::settings::{Settings, ShutdownGrace};
use crate::simulation::{Happening, Simulation};
use crate::step::DeleteOptions;
use crate::workload::Behaviour;
use crate::world::{Disk, MachineState};

/// The components that run: the tests do what the others would do.
const COMPONENTS: [ControllerId; 4] =
    [ControllerId::NodeLifecycle, ControllerId::TaintEviction, ControllerId::PodGc, ControllerId::Kubelet];

const START: i64 = 1_767_225_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).expect("a time")
}

/// Three nodes that have run for a while.
fn cluster(settings: Settings) -> Simulation {
    let mut simulation = Simulation::new(at(0), settings.with_components(&COMPONENTS), Choices::enumerated());
    for name in ["a", "b", "c"] {
        simulation.add_machine(MachineSpec::named(name).with_driver("disk.csi", &[])).expect("added");
    }
    simulation.run_until(at(100)).expect("runs");
    assert_eq!(simulation.next_at(), None, "a healthy cluster is at rest");
    simulation.follow();
    simulation
}

fn pod(name: &str, node: &str, spec: Value) -> SimObject {
    let of = |key: &str| json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    let mut object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "n" },
        "spec": { "nodeName": node, "restartPolicy": "Always", "containers": [{ "name": "c", "image": "i" }],
            "terminationGracePeriodSeconds": 30, "tolerations": [of("not-ready"), of("unreachable")] } });
    if let (Some(all), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
        all.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    SimObject::from_json(&object).expect("a pod")
}

fn create(simulation: &mut Simulation, object: SimObject) {
    simulation.request(Write::Create(object)).expect("created");
}

fn delete(simulation: &mut Simulation, name: &str, grace: Option<i64>) {
    let options = DeleteOptions { grace, ..DeleteOptions::default() };
    simulation.request(Write::Delete(SimKey::pod("n", name), options)).expect("deleted");
}

fn state(status: &ContainerStatus) -> String {
    let Some(state) = status.state.as_ref() else { return "-".into() };
    let word = match (&state.waiting, &state.running, &state.terminated) {
        (Some(waiting), _, _) => waiting.reason.clone().unwrap_or_default(),
        (_, Some(_), _) => if status.ready { "ready" } else { "running" }.into(),
        (_, _, Some(end)) => format!("{}={}", end.reason.as_deref().unwrap_or_default(), end.exit_code),
        _ => "-".into(),
    };
    if status.restart_count > 0 { format!("{word}+{}", status.restart_count) } else { word }
}

fn row(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let mut containers: Vec<String> = status.init_container_statuses.iter().flatten().map(state).collect();
    containers.extend(status.container_statuses.iter().flatten().map(state));
    let ready = pods::condition(pod, "Ready").map_or("-", |ready| ready.status.as_str());
    let reason = status.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let deleted = if pods::is_terminating(pod) { " terminating" } else { "" };
    format!("{} Ready={ready} [{}]{reason}{deleted}", pods::phase(pod), containers.join(" "))
}

/// What happened: seconds and tenths, then the pod as it became, an event, or the volumes in use on a node.
fn history(simulation: &mut Simulation) -> String {
    let mut rows = String::new();
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for (at, happening) in simulation.take_journal() {
        let since = at.as_millisecond() - START * 1000;
        let (key, text) = match &happening {
            Happening::Changed(change) if change.key.kind == ObjectKind::Pod => {
                let text = change.of::<Pod>().1.map_or("gone".into(), |pod| row(pod));
                (change.key.to_string(), format!("{}: {text}", change.key.name))
            }
            Happening::Changed(change) if change.key.kind == ObjectKind::Node => {
                let Some(node) = change.of::<Node>().1 else { continue };
                let status = node.status.clone().unwrap_or_default();
                let ready = crate::nodes::condition(node, "Ready").map_or("-", |ready| ready.status.as_str());
                let in_use = status.volumes_in_use.unwrap_or_default().join(" ");
                (change.key.to_string(), format!("{} Ready={ready} in use [{in_use}]", change.key.name))
            }
            Happening::Changed(_) => continue,
            Happening::Reported(event) => (String::new(), format!("  {}: {}", event.note.reason, event.note.message)),
        };
        if last.insert(key.clone(), text.clone()).as_ref() != Some(&text) || key.is_empty() {
            rows.push_str(&format!("{}.{} {text}\n", since / 1000, since % 1000 / 100));
        }
    }
    rows
}

fn check(simulation: &mut Simulation, expected: Expect) {
    expected.assert_eq(&history(simulation));
}

fn writers(simulation: &Simulation, volume: &str) -> Vec<String> {
    simulation.world().writers(volume).keys().map(ToString::to_string).collect()
}

#[test]
fn a_pod_starts_and_ends() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "a", json!({})));
    simulation.run_until(at(120)).expect("runs");
    assert_eq!(simulation.next_at(), None);
    delete(&mut simulation, "p", None);
    simulation.run_until(at(200)).expect("runs");
    assert_eq!(simulation.next_at(), None);
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [ContainerCreating]
        101.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        101.0   Created: Container created
        101.0   Started: Container started
        101.0 p: Running Ready=True [ready]
        120.0 p: Running Ready=True [ready] terminating
        120.0   Killing: Stopping container c
        121.0 p: Succeeded Ready=False [Completed=0] terminating
        121.3 p: gone
    "#]]);
    assert!(simulation.world().process("").is_none());
}

/// `IsPodKnownTerminated`: the scheduler sees as well that the first pod has ended, and may place the next one.
#[test]
fn a_pod_that_has_ended_takes_no_room_while_its_volumes_are_unmounted() {
    let mut simulation = cluster(Settings::default());
    let large = || json!({ "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "10" } } }] });
    create(&mut simulation, pod("p", "a", large()));
    simulation.run_until(at(105)).expect("runs");
    delete(&mut simulation, "p", None);
    let ended = |simulation: &Simulation| {
        simulation.store().get::<Pod>("n", "p").is_none_or(|pod| pods::has_ended(pod))
    };
    assert!(simulation.run_until_holds(at(140), ended).expect("runs"));
    assert!(simulation.store().get::<Pod>("n", "p").is_some(), "its object is still there");
    create(&mut simulation, pod("q", "a", large()));
    simulation.run_until(at(150)).expect("runs");
    let next = simulation.store().get::<Pod>("n", "q").expect("it exists");
    assert!(pods::is_ready(next), "{next:?}");
}

#[test]
fn init_containers_and_probes_take_their_time() {
    let mut simulation = cluster(Settings::default());
    let probe = json!({ "readinessProbe": { "httpGet": { "port": 80 } }, "name": "c", "image": "i" });
    let init = json!([{ "name": "one", "image": "i" }, { "name": "side", "image": "i", "restartPolicy": "Always" }]);
    create(&mut simulation, pod("p", "a", json!({ "containers": [probe], "initContainers": init })));
    simulation.run_until(at(120)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [PodInitializing PodInitializing PodInitializing]
        100.5   Pulled: Container image "i" already present on machine and can be accessed by the pod
        100.5   Created: Container created
        100.5   Started: Container started
        100.5 p: Pending Ready=False [running PodInitializing PodInitializing]
        101.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        101.0   Created: Container created
        101.0   Started: Container started
        101.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        101.0   Created: Container created
        101.0   Started: Container started
        101.0 p: Running Ready=False [Completed=0 ready running]
        102.0 p: Running Ready=True [Completed=0 ready ready]
    "#]]);
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let kinds: Vec<&str> = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
}

/// What somebody else writes into the status is corrected when the kubelet compares, with the old time.
#[test]
fn a_kubelet_puts_its_status_back() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "a", json!({})));
    simulation.run_until(at(111)).expect("runs");
    let mut changed = Pod::clone(simulation.store().get::<Pod>("n", "p").expect("a pod"));
    for condition in changed.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        if condition.type_ == "Ready" {
            (condition.status, condition.last_transition_time) = ("False".into(), pods::reported(at(111)));
        }
    }
    let target = json!({ "type": "DisruptionTarget", "status": "True" });
    let target = serde_json::from_value(target).expect("a condition");
    changed.status.get_or_insert_default().conditions.get_or_insert_default().push(target);
    simulation.request(Write::Status(changed.into())).expect("written");
    simulation.take_journal();
    simulation.run_until(at(200)).expect("runs");
    check(&mut simulation, expect![[r#"
        115.0 p: Running Ready=True [ready]
    "#]]);
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let ready = pods::condition(pod, "Ready").expect("a condition");
    assert_eq!(ready.last_transition_time, pods::reported(at(101)));
    assert!(pods::condition(pod, "DisruptionTarget").is_some(), "conditions of others stay");
    assert_eq!(simulation.next_at(), None);
}

/// A claim that is bound to an attachable volume.
fn volume(simulation: &mut Simulation) {
    let mut claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "n", "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": "v", "accessModes": ["ReadWriteOnce"] } });
    let created = simulation.request(Write::Create(SimObject::from_json(&claim).expect("a claim"))).expect("created");
    let uid = created.map(|claim| claim.uid().to_owned()).unwrap_or_default();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": { "accessModes": ["ReadWriteOnce"], "csi": { "driver": "disk.csi", "volumeHandle": "h" },
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": "n", "name": "data", "uid": uid } },
        "status": { "phase": "Bound" } });
    create(simulation, SimObject::from_json(&volume).expect("a volume"));
    simulation.request(Write::Status(SimObject::from_json(&volume).expect("a volume"))).expect("bound");
    claim["status"] = json!({ "phase": "Bound" });
    simulation.request(Write::Status(SimObject::from_json(&claim).expect("a claim"))).expect("bound");
}

/// What the attach/detach controller and the storage do.
fn attach(simulation: &mut Simulation, node: &str, attached: bool) {
    let mut object = Node::clone(simulation.store().get::<Node>("", node).expect("a node"));
    let volume = json!([{ "name": "kubernetes.io/csi/disk.csi^h", "devicePath": "" }]);
    let volumes = serde_json::from_value(volume).expect("volumes");
    object.status.get_or_insert_default().volumes_attached = Some(volumes).filter(|_| attached);
    simulation.change_world(|world, now| {
        let attached_to = attached.then(|| Arc::from(node)).into_iter().collect();
        let disk = Disk { attached_to, needs_attach: true, exclusive: true, ..Disk::default() };
        world.set_disk("v", disk, now);
    });
    simulation.request(Write::Status(object.into())).expect("attached");
}

fn with_volume() -> Value {
    json!({ "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] })
}

#[test]
fn an_attachable_volume_is_reported_attached_mounted_and_released() {
    let mut simulation = cluster(Settings::default());
    simulation.run_until(at(101)).expect("runs");
    create(&mut simulation, pod("p", "a", with_volume()));
    simulation.run_until(at(103)).expect("runs");
    volume(&mut simulation);
    simulation.run_until(at(115)).expect("runs");
    attach(&mut simulation, "a", true);
    simulation.run_until(at(120)).expect("runs");
    assert_eq!(writers(&simulation, "v"), ["a"]);
    delete(&mut simulation, "p", None);
    simulation.run_until(at(200)).expect("runs");
    assert!(writers(&simulation, "v").is_empty());
    check(&mut simulation, expect![[r#"
        101.0 p: Pending Ready=- []
        101.0 p: Pending Ready=False [ContainerCreating]
        101.0   FailedMount: Unable to attach or mount volumes: unmounted volumes=[d], unattached volumes=[], failed to process volumes=[d]: error processing PVC n/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found
        110.0 a Ready=True in use [kubernetes.io/csi/disk.csi^h]
        116.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        116.0   Created: Container created
        116.0   Started: Container started
        116.0 p: Running Ready=True [ready]
        120.0 p: Running Ready=True [ready] terminating
        120.0   Killing: Stopping container c
        121.0 p: Succeeded Ready=False [Completed=0] terminating
        121.3 p: gone
        130.0 a Ready=True in use []
    "#]]);
}

#[test]
fn crashing_containers_back_off() {
    let mut simulation = cluster(Settings::default());
    let crash = crate::workload::Workload { behaviour: Behaviour::CrashLoop, ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "p"), crash));
    create(&mut simulation, pod("p", "a", json!({})));
    simulation.run_until(at(180)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [ContainerCreating]
        101.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        101.0   Created: Container created
        101.0   Started: Container started
        101.0 p: Running Ready=True [ready]
        102.0 p: Running Ready=False [Error=1]
        103.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        103.0   Created: Container created
        103.0   Started: Container started
        103.0 p: Running Ready=True [ready+1]
        104.0   BackOff: Back-off restarting failed container c in pod p_n(5ead0000-0000-4000-8000-00000000000a)
        104.0 p: Running Ready=False [CrashLoopBackOff+1]
        114.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        114.0   Created: Container created
        114.0   Started: Container started
        114.0 p: Running Ready=True [ready+2]
        115.0   BackOff: Back-off restarting failed container c in pod p_n(5ead0000-0000-4000-8000-00000000000a)
        115.0 p: Running Ready=False [CrashLoopBackOff+2]
        135.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        135.0   Created: Container created
        135.0   Started: Container started
        135.0 p: Running Ready=True [ready+3]
        136.0   BackOff: Back-off restarting failed container c in pod p_n(5ead0000-0000-4000-8000-00000000000a)
        136.0 p: Running Ready=False [CrashLoopBackOff+3]
        176.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        176.0   Created: Container created
        176.0   Started: Container started
        176.0 p: Running Ready=True [ready+4]
        177.0   BackOff: Back-off restarting failed container c in pod p_n(5ead0000-0000-4000-8000-00000000000a)
        177.0 p: Running Ready=False [CrashLoopBackOff+4]
    "#]]);
    simulation.run_until(at(5000)).expect("runs");
    assert_eq!(simulation.next_at(), None, "a crash loop comes to rest");
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "p"), Default::default()));
    simulation.take_journal();
    simulation.run_until(at(5010)).expect("runs");
    check(&mut simulation, expect![[r#"
        5000.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        5000.0   Created: Container created
        5000.0   Started: Container started
        5000.0 p: Running Ready=True [ready+7]
    "#]]);
}

#[test]
fn an_image_that_cannot_be_pulled() {
    let mut simulation = cluster(Settings::default());
    let missing = crate::workload::Workload { behaviour: Behaviour::MissingImage, ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "p"), missing));
    create(&mut simulation, pod("p", "a", json!({})));
    simulation.run_until(at(125)).expect("runs");
    delete(&mut simulation, "p", None);
    simulation.run_until(at(200)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [ContainerCreating]
        101.0   Pulling: Pulling image "i"
        101.0   Failed: Failed to pull image "i": rpc error: code = NotFound desc = failed to pull and unpack image "i": failed to resolve reference "i": i: not found
        101.0   Failed: Error: ErrImagePull
        101.0 p: Pending Ready=False [ErrImagePull]
        102.0   BackOff: Back-off pulling image "i"
        102.0   Failed: Error: ImagePullBackOff
        102.0 p: Pending Ready=False [ImagePullBackOff]
        111.0   Pulling: Pulling image "i"
        111.0   Failed: Failed to pull image "i": rpc error: code = NotFound desc = failed to pull and unpack image "i": failed to resolve reference "i": i: not found
        111.0   Failed: Error: ErrImagePull
        111.0 p: Pending Ready=False [ErrImagePull]
        112.0   BackOff: Back-off pulling image "i"
        112.0   Failed: Error: ImagePullBackOff
        112.0 p: Pending Ready=False [ImagePullBackOff]
        125.0 p: Pending Ready=False [ImagePullBackOff] terminating
        125.0 p: Failed Ready=False [ContainerStatusUnknown=137] terminating
        125.3 p: gone
    "#]]);
}

#[test]
fn pods_that_end_by_themselves() {
    let mut simulation = cluster(Settings::default());
    let workload = |behaviour| crate::workload::Workload { behaviour, ..Default::default() };
    for (name, behaviour) in [
        ("fails", Behaviour::FailsWith(3)),
        ("retries", Behaviour::FailsWith(3)),
        ("goes-on", Behaviour::KeepsRunning),
    ] {
        simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", name), workload(behaviour)));
    }
    for (name, policy) in [("ends", "OnFailure"), ("fails", "Never"), ("retries", "OnFailure"), ("goes-on", "Never")] {
        create(&mut simulation, pod(name, "a", json!({ "restartPolicy": policy })));
    }
    simulation.run_until(at(106)).expect("runs");
    let rows: Vec<String> = simulation.store().all::<Pod>().map(|pod| row(pod)).collect();
    assert_eq!(
        rows,
        [
            "Succeeded Ready=False [Completed=0]",
            "Failed Ready=False [Error=3]",
            "Running Ready=True [ready]",
            "Running Ready=False [CrashLoopBackOff+1]",
        ]
    );
    assert_eq!(simulation.world().machines().count(), 3);
}

/// Timeline B: the node is back before the eviction.
#[test]
fn a_suspended_node_comes_back_before_the_eviction() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "b", json!({})));
    simulation.run_until(at(107)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Suspended).expect("a machine");
    simulation.run_until(at(303)).expect("runs");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(1000)).expect("runs");
    check(&mut simulation, expect![[r#"
        155.0 b Ready=Unknown in use []
        155.0   NodeNotReady: Node b status is now: NodeNotReady
        155.0 p: Running Ready=False [ready]
        155.0   NodeNotReady: Node is not ready
        304.0   NodeReady: Node b status is now: NodeReady
        304.0 b Ready=True in use []
        305.0   TaintManagerEviction: Cancelling deletion of Pod n/p
        309.0 p: Running Ready=True [ready]
    "#]]);
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let ready = pods::condition(pod, "Ready").expect("a condition");
    assert_eq!(ready.last_transition_time.as_ref().map(|time| time.0), Some(at(101)), "the old time");
}

/// Timeline B1: the node is back after the eviction.
#[test]
fn a_suspended_node_comes_back_after_the_eviction() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "b", json!({})));
    simulation.run_until(at(107)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Suspended).expect("a machine");
    simulation.run_until(at(1003)).expect("runs");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(1100)).expect("runs");
    check(&mut simulation, expect![[r#"
        155.0 b Ready=Unknown in use []
        155.0   NodeNotReady: Node b status is now: NodeNotReady
        155.0 p: Running Ready=False [ready]
        155.0   NodeNotReady: Node is not ready
        455.0   TaintManagerEviction: Marking for deletion Pod n/p
        455.0 p: Running Ready=False [ready] terminating
        1004.0   NodeReady: Node b status is now: NodeReady
        1004.0 b Ready=True in use []
        1004.0 p: Running Ready=True [ready] terminating
        1004.0   Killing: Stopping container c
        1005.0 p: Succeeded Ready=False [Completed=0] terminating
        1005.3 p: gone
    "#]]);
}

/// A forced deletion ends nothing: the process goes on until the kubelet hears of it.
#[test]
fn a_force_deleted_pod_runs_until_its_kubelet_knows() {
    for (state, after_failure, after_return) in [
        (MachineState::Partitioned, true, true),
        (MachineState::KubeletStopped, true, true),
        (MachineState::Suspended, false, true),
        (MachineState::Off, false, false),
    ] {
        let mut simulation = cluster(Settings::default());
        volume(&mut simulation);
        create(&mut simulation, pod("p", "a", with_volume()));
        simulation.run_until(at(112)).expect("runs");
        attach(&mut simulation, "a", true);
        simulation.run_until(at(115)).expect("runs");
        simulation.fail("a", state).expect("a machine");
        simulation.run_until(at(120)).expect("runs");
        delete(&mut simulation, "p", Some(0));
        simulation.run_until(at(600)).expect("runs");
        assert_eq!(!writers(&simulation, "v").is_empty(), after_failure, "{state:?}");
        simulation.heal("a").expect("a machine");
        simulation.run_for(SignedDuration::from_millis(1200)).expect("runs");
        assert_eq!(!writers(&simulation, "v").is_empty(), after_return, "{state:?}");
        simulation.run_until(at(700)).expect("runs");
        assert!(writers(&simulation, "v").is_empty(), "{state:?}");
        let node = simulation.store().get::<Node>("", "a").expect("a node");
        assert_eq!(node.status.as_ref().and_then(|status| status.volumes_in_use.clone()), None, "{state:?}");
        assert_eq!(simulation.next_at(), None, "{state:?}");
    }
}

#[test]
fn a_boot_starts_containers_again() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "b", json!({})));
    create(&mut simulation, pod("job", "b", json!({ "restartPolicy": "Never" })));
    let keeps = crate::workload::Workload { behaviour: Behaviour::KeepsRunning, ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "job"), keeps));
    simulation.run_until(at(107)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Off).expect("a machine");
    assert!(simulation.world().machine("b").is_some_and(|machine| machine.boots == 0));
    simulation.run_until(at(113)).expect("runs");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(200)).expect("runs");
    check(&mut simulation, expect![[r#"
        143.0   Starting: Starting kubelet.
        143.0   Rebooted: Node b has been rebooted, boot id: 00000002-0000-4000-8000-000000000001
        143.0 b Ready=True in use []
        143.0 job: Failed Ready=False [Unknown=255]
        143.0 p: Running Ready=False [Unknown=255]
        143.0   SandboxChanged: Pod sandbox changed, it will be killed and re-created.
        144.0   Pulled: Container image "i" already present on machine and can be accessed by the pod
        144.0   Created: Container created
        144.0   Started: Container started
        144.0 p: Running Ready=True [ready+1]
    "#]]);
}

#[test]
fn a_restarted_kubelet_admits_its_pods_again() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("stays", "b", json!({})));
    create(&mut simulation, pod("rejected", "b", json!({ "nodeSelector": { "kubernetes.io/hostname": "b" } })));
    simulation.run_until(at(107)).expect("runs");
    simulation.fail("b", MachineState::KubeletStopped).expect("a machine");
    let mut node = Node::clone(simulation.store().get::<Node>("", "b").expect("a node"));
    node.metadata.labels.get_or_insert_default().insert("kubernetes.io/hostname".into(), "x".into());
    simulation.request(Write::Replace(node.into())).expect("labelled");
    simulation.take_journal();
    simulation.run_until(at(110)).expect("runs");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(200)).expect("runs");
    check(&mut simulation, expect![[r#"
        111.0   Starting: Starting kubelet.
        111.0   NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        111.0 rejected: Failed Ready=- [] (NodeAffinity)
    "#]]);
}

#[test]
fn only_a_restarted_kubelet_registers_its_node_again() {
    let mut simulation = cluster(Settings::default());
    simulation.request(Write::Delete(SimKey::node("b"), DeleteOptions::default())).expect("deleted");
    simulation.run_until(at(200)).expect("runs");
    assert!(simulation.store().get::<Node>("", "b").is_none());
    simulation.fail("b", MachineState::KubeletStopped).expect("a machine");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(300)).expect("runs");
    let node = simulation.store().get::<Node>("", "b").expect("registered");
    assert!(crate::nodes::is_ready(node));
    assert_eq!(simulation.next_at(), None);
}

#[test]
fn an_orderly_shutdown_ends_pods_first() {
    let mut settings = Settings::default();
    let seconds = SignedDuration::from_secs;
    settings.kubelet.shutdown_grace = Some(ShutdownGrace { total: seconds(30), critical: seconds(10) });
    settings.workload.stop = seconds(25);
    let mut simulation = cluster(settings);
    create(&mut simulation, pod("p", "b", json!({})));
    create(&mut simulation, pod("critical", "b", json!({ "priorityClassName": "system-node-critical" })));
    simulation.run_until(at(107)).expect("runs");
    simulation.take_journal();
    simulation.shut_down("b").expect("a machine");
    simulation.run_until(at(150)).expect("runs");
    check(&mut simulation, expect![[r#"
        107.0   Shutdown: Shutdown manager detected shutdown event
        107.0   NodeNotReady: Node b status is now: NodeNotReady
        107.0 b Ready=False in use []
        107.0   Killing: Stopping container c
        127.0 p: Failed Ready=False [Error=137] (Terminated)
        127.0   Killing: Stopping container c
        137.0 critical: Failed Ready=False [Error=137] (Terminated)
    "#]]);
    assert_eq!(simulation.world().state("b"), MachineState::Off);
    simulation.run_until(at(400)).expect("runs");
    let node = simulation.store().get::<Node>("", "b").expect("a node");
    assert!(crate::nodes::condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown"));
}

fn stand_ins() -> Simulation {
    cluster(Settings::default().with_stand_ins())
}

/// The status that `pod_status.rs` of the testbed writes for a Ready pod.
#[test]
fn a_stand_in_reports_what_the_testbed_reports() {
    let mut simulation = stand_ins();
    let init = json!([{ "name": "i", "image": "x" }]);
    let containers = json!([{ "name": "a", "image": "x" }, { "name": "b" }]);
    create(&mut simulation, pod("p", "a", json!({ "containers": containers, "initContainers": init })));
    simulation.run_until(at(110)).expect("runs");
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let time = |second: i64| at(second).to_string();
    let condition = |kind: &str, second: i64| json!({ "type": kind, "status": "True", "lastTransitionTime": time(second) });
    let container = |name: &str, image: &str| {
        json!({ "name": name, "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": time(102) } } })
    };
    let ended = json!({ "exitCode": 0, "reason": "Completed", "startedAt": time(102), "finishedAt": time(102) });
    assert_eq!(
        serde_json::to_value(&pod.status).expect("JSON"),
        json!({
            "phase": "Running", "hostIP": "10.1.0.11", "hostIPs": [{ "ip": "10.1.0.11" }], "startTime": time(100),
            "qosClass": "BestEffort",
            "podIP": "10.2.0.1", "podIPs": [{ "ip": "10.2.0.1" }],
            "conditions": [condition("PodReadyToStartContainers", 101), condition("Initialized", 101),
                condition("Ready", 102), condition("ContainersReady", 102), condition("PodScheduled", 100)],
            "containerStatuses": [container("a", "x"), container("b", "")],
            "initContainerStatuses": [{ "name": "i", "image": "x", "imageID": "", "ready": true, "started": false,
                "restartCount": 0, "state": { "terminated": ended } }],
        })
    );
    assert_eq!(simulation.events().iter().filter(|event| event.component == "kubelet").count(), 0);
    delete(&mut simulation, "p", None);
    simulation.run_until(at(120)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [PodInitializing ContainerCreating ContainerCreating]
        101.0 p: Running Ready=False [Completed=0 running running]
        102.0 p: Running Ready=True [Completed=0 ready ready]
        110.0 p: Running Ready=True [Completed=0 ready ready] terminating
        111.0 p: gone
    "#]]);
    let node = simulation.store().get::<Node>("", "a").expect("a node");
    let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    assert_eq!(conditions.iter().map(|condition| condition.type_.as_str()).collect::<Vec<_>>(), ["Ready"]);
}

#[test]
fn a_stand_in_that_is_reachable_again_goes_on() {
    let mut simulation = stand_ins();
    create(&mut simulation, pod("p", "b", json!({})));
    create(&mut simulation, pod("deleted", "b", json!({})));
    simulation.run_until(at(107)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Partitioned).expect("a machine");
    simulation.run_until(at(110)).expect("runs");
    delete(&mut simulation, "deleted", None);
    simulation.run_until(at(253)).expect("runs");
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(300)).expect("runs");
    check(&mut simulation, expect![[r#"
        110.0 deleted: Running Ready=True [ready] terminating
        160.0 b Ready=Unknown in use []
        160.0   NodeNotReady: Node b status is now: NodeNotReady
        160.0 deleted: Running Ready=False [ready] terminating
        160.0   NodeNotReady: Node is not ready
        160.0 p: Running Ready=False [ready]
        160.0   NodeNotReady: Node is not ready
        253.0 b Ready=True in use []
        254.0 deleted: gone
        254.0 p: Running Ready=True [ready]
        254.0   TaintManagerEviction: Cancelling deletion of Pod n/deleted
        255.0   TaintManagerEviction: Cancelling deletion of Pod n/p
    "#]]);
    assert_eq!(simulation.next_at(), None);
    let node = simulation.store().get::<Node>("", "b").expect("a node");
    let memory = crate::nodes::condition(node, "MemoryPressure").expect("added by the node controller");
    assert_eq!(memory.reason.as_deref(), Some("NodeStatusNeverUpdated"));
}

#[test]
fn jobs_on_stand_ins_end_as_they_are_told() {
    let mut simulation = stand_ins();
    let mut job = pod("job", "a", json!({ "restartPolicy": "Never" }));
    job.metadata_mut().labels = Some([("batch.kubernetes.io/job-name".to_owned(), "job".to_owned())].into());
    let keeps = crate::workload::Workload { behaviour: Behaviour::KeepsRunning, ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "job"), keeps));
    create(&mut simulation, job);
    simulation.run_until(at(150)).expect("runs");
    let fails = crate::workload::Workload { behaviour: Behaviour::FailsWith(1), ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "job"), fails));
    simulation.run_until(at(160)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 job: Pending Ready=- []
        100.0 job: Pending Ready=False [ContainerCreating]
        101.0 job: Running Ready=False [running]
        102.0 job: Running Ready=True [ready]
        150.0 job: Failed Ready=False [Error=1]
    "#]]);
}

#[test]
fn a_volume_of_a_stand_in_is_reported_at_once() {
    let mut simulation = stand_ins();
    volume(&mut simulation);
    create(&mut simulation, pod("p", "a", with_volume()));
    simulation.run_until(at(105)).expect("runs");
    attach(&mut simulation, "a", true);
    simulation.run_until(at(110)).expect("runs");
    delete(&mut simulation, "p", None);
    simulation.run_until(at(120)).expect("runs");
    check(&mut simulation, expect![[r#"
        100.0 p: Pending Ready=- []
        100.0 p: Pending Ready=False [ContainerCreating]
        100.0 a Ready=True in use [kubernetes.io/csi/disk.csi^h]
        106.0 p: Running Ready=False [running]
        107.0 p: Running Ready=True [ready]
        110.0 p: Running Ready=True [ready] terminating
        111.0 p: gone
        111.0 a Ready=True in use []
    "#]]);
}

/// A snapshot in mid-outage: what kubelets and controllers know comes from the objects.
#[test]
fn a_running_cluster_goes_on_from_its_objects() {
    for settings in [Settings::default(), Settings::default().with_stand_ins()] {
        let mut simulation = cluster(settings.clone());
        create(&mut simulation, pod("silent", "b", json!({})));
        create(&mut simulation, pod("healthy", "a", json!({})));
        create(&mut simulation, pod("ends", "a", json!({})));
        simulation.run_until(at(107)).expect("runs");
        simulation.fail("b", MachineState::Off).expect("a machine");
        simulation.run_until(at(300)).expect("runs");
        delete(&mut simulation, "ends", None);
        simulation.run_for(SignedDuration::from_millis(500)).expect("runs");
        let now = simulation.now();
        // The Leases of healthy nodes are as fresh as they would be.
        let objects: Vec<SimObject> = simulation
            .store()
            .iter()
            .map(|(key, object)| match (key.kind, simulation.last_renewal(&key.name, now)) {
                (ObjectKind::Lease, Some(renewed)) => {
                    match crate::machines::renewal(simulation.store(), &key.name, renewed) {
                        Some(Write::Replace(lease)) => lease,
                        _ => object.clone(),
                    }
                }
                _ => object.clone(),
            })
            .collect();
        let world = crate::world::World::default();
        let mut resumed = Simulation::resume(now, settings, Choices::enumerated(), objects, world);
        let states: Vec<MachineState> = resumed.world().machines().map(|(_, machine)| machine.state).collect();
        assert_eq!(states, [MachineState::Running, MachineState::Unknown, MachineState::Running]);
        assert!(resumed.world().process("").is_none());
        for simulation in [&mut simulation, &mut resumed] {
            simulation.run_until(at(1000)).expect("runs");
            let names: Vec<(String, bool)> = simulation
                .store()
                .all::<Pod>()
                .map(|pod| (pod.metadata.name.clone().unwrap_or_default(), pods::is_terminating(pod)))
                .collect();
            assert_eq!(names, [("healthy".into(), false), ("silent".into(), true)]);
            let silent = simulation.store().get::<Pod>("n", "silent").expect("a pod");
            let due = silent.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second() - START);
            assert!(due.is_some_and(|due| (485..=491).contains(&due)), "{due:?}");
            assert_eq!(simulation.next_at(), None);
        }
    }
}

/// Does something at random to a cluster of three nodes.
fn disturb(simulation: &mut Simulation, mut chance: impl FnMut(usize) -> usize, number: usize) {
    const STATES: [MachineState; 4] =
        [MachineState::Off, MachineState::Suspended, MachineState::Partitioned, MachineState::KubeletStopped];
    let node = ["a", "b", "c"][chance(3)];
    let pods: Vec<SimKey> = simulation.store().of_kind(ObjectKind::Pod).map(|(key, _)| key.clone()).collect();
    match chance(8) {
        0..=2 => create(simulation, pod(&format!("p{number}"), node, json!({}))),
        3 => simulation.fail(node, STATES[chance(4)]).expect("a machine"),
        4 => simulation.heal(node).expect("a machine"),
        5 if chance(3) == 0 => {
            // It may be deleted already.
            let _ = simulation.request(Write::Delete(SimKey::node(node), DeleteOptions::default()));
        }
        6 => simulation.change_world(|world, _| {
            let behaviour = [Behaviour::Healthy, Behaviour::CrashLoop, Behaviour::NeverReady][chance(3)];
            let workload = crate::workload::Workload { behaviour, ..Default::default() };
            world.set_workload(SimKey::pod("n", &format!("p{}", chance(30))), workload);
        }),
        _ if !pods.is_empty() => {
            let grace = [None, Some(0), Some(5)][chance(3)];
            let options = DeleteOptions { grace, ..DeleteOptions::default() };
            simulation.request(Write::Delete(pods[chance(pods.len())].clone(), options)).expect("deleted");
        }
        _ => {}
    }
}

/// Whatever happens: when everything is healed the cluster comes to rest, every pod runs, and every process has its pod.
#[test]
fn kubelets_recover_from_anything() {
    for seed in 0..80_u64 {
        let settings = if seed % 2 == 0 { Settings::default() } else { Settings::default().with_stand_ins() };
        let play = || {
            let mut simulation = Simulation::new(at(0), settings.clone(), Choices::seeded(seed));
            for name in ["a", "b", "c"] {
                simulation.add_machine(MachineSpec::named(name)).expect("added");
            }
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut chance = |limit: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % limit
            };
            for number in 0..30 {
                let pause = [10, 700, 7_000, 70_000, 400_000][chance(5)];
                simulation.run_for(SignedDuration::from_millis(pause)).expect("runs");
                disturb(&mut simulation, &mut chance, number);
            }
            for (name, number) in [("a", 0), ("b", 1), ("c", 2)] {
                simulation.heal(name).expect("a machine");
                // Kubelets that lost their Node register it when they start.
                if simulation.store().get::<Node>("", name).is_none() {
                    simulation.fail(name, MachineState::KubeletStopped).expect("a machine");
                    simulation.run_for(SignedDuration::from_secs(1 + number)).expect("runs");
                    simulation.heal(name).expect("a machine");
                }
            }
            simulation.change_world(|world, _| {
                for number in 0..30 {
                    world.set_workload(SimKey::pod("n", &format!("p{number}")), Default::default());
                }
            });
            simulation.run_for(SignedDuration::from_secs(3000)).expect("runs");
            simulation
        };
        let mut simulation = play();
        assert_eq!(simulation.next_at(), None, "seed {seed}: {:?}", simulation.pending().collect::<Vec<_>>());
        let mut processes = 0;
        for pod in simulation.store().all::<Pod>() {
            assert_eq!(pods::phase(pod), "Running", "seed {seed}: {:?}", pod.metadata.name);
            assert!(pods::is_ready(pod) && !pods::is_terminating(pod), "seed {seed}: {} {:?}", row(pod), pod.metadata.name);
            let process = simulation.world().process(pod.metadata.uid.as_deref().unwrap_or_default());
            assert_eq!(process.map(|process| &*process.node), node_of(pod), "seed {seed}: {:?}", pod.metadata.name);
            processes += 1;
        }
        assert_eq!(simulation.world().processes().count(), processes, "seed {seed}: a process without a pod");
        let text = |simulation: &Simulation| format!("{:?}", simulation.store().iter().collect::<Vec<_>>());
        assert_eq!(text(&simulation), text(&play()), "seed {seed}: the same seed gives the same objects");
    }
}

/// A kubelet that nobody hears of knows that its pods are ready, and says so when it is back.
#[test]
fn a_snapshot_of_a_silent_machine_keeps_what_its_kubelet_knows() {
    let mut simulation = cluster(Settings::default());
    create(&mut simulation, pod("p", "b", json!({})));
    simulation.run_until(at(107)).expect("runs");
    simulation.fail("b", MachineState::Unknown).expect("a machine");
    simulation.run_until(at(200)).expect("runs");
    let objects: Vec<SimObject> = simulation.store().iter().map(|(_, object)| object.clone()).collect();
    let settings = Settings::default().with_components(&COMPONENTS);
    let mut resumed = Simulation::resume(at(200), settings, Choices::enumerated(), objects, Default::default());
    let ready = |simulation: &Simulation| {
        let pod = simulation.store().get::<Pod>("n", "p").expect("the pod");
        pods::condition(pod, "Ready").map(|ready| ready.status.clone())
    };
    assert_eq!(ready(&resumed).as_deref(), Some("False"));
    resumed.heal("b").expect("a machine");
    resumed.run_until(at(215)).expect("runs");
    assert_eq!(ready(&resumed).as_deref(), Some("True"));
}

#[test]
fn a_pod_that_its_kubelet_cannot_end_stays() {
    let mut simulation = cluster(Settings::default());
    let stuck = crate::workload::Workload { behaviour: Behaviour::NeverStops, ..Default::default() };
    simulation.change_world(|world, _| world.set_workload(SimKey::pod("n", "p"), stuck));
    create(&mut simulation, pod("p", "b", json!({})));
    simulation.run_until(at(107)).expect("runs");
    delete(&mut simulation, "p", None);
    simulation.run_until(at(1000)).expect("runs");
    let pod = simulation.store().get::<Pod>("n", "p").expect("it stays");
    assert!(pods::is_terminating(pod) && pods::phase(pod) == "Running");
}

#[test]
fn the_stages_of_pods_go_on_when_a_cluster_is_taken_over() {
    let mut settings = Settings::default().with_stand_ins();
    settings.workload.job = SignedDuration::from_secs(20);
    let mut simulation = cluster(settings.clone());
    let mut object = pod("job", "a", json!({ "restartPolicy": "Never" }));
    object.metadata_mut().labels = Some([("batch.kubernetes.io/job-name".to_owned(), "job".to_owned())].into());
    create(&mut simulation, object);
    create(&mut simulation, pod("web", "a", json!({})));
    simulation.run_until(at(110)).expect("runs");
    let (now, world) = (simulation.now(), simulation.world().clone());
    let objects: Vec<SimObject> = simulation.store().iter().map(|(_, object)| object.clone()).collect();
    let settings = settings.with_components(&COMPONENTS);
    let mut resumed = Simulation::resume(now, settings, Choices::enumerated(), objects, world);
    for simulation in [&mut simulation, &mut resumed] {
        simulation.follow();
        simulation.run_until(at(200)).expect("runs");
    }
    let ended = |simulation: &mut Simulation| -> Vec<i64> {
        let journal = simulation.take_journal().into_iter();
        let ended = journal.filter_map(|(at, happening)| match happening {
            Happening::Changed(change) if change.of::<Pod>().1.is_some_and(|pod| pods::has_ended(pod)) => Some(at),
            _ => None,
        });
        ended.map(|at| at.as_second() - START).collect()
    };
    assert_eq!(ended(&mut simulation), [122]);
    assert_eq!(ended(&mut resumed), [122]);
}
