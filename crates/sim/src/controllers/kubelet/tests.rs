//! Pods on nodes that run, fail and come back.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::{Value, json};

use super::*;
use crate::choices::Choices;
use crate::machines::MachineSpec;
use crate::object::SimObject;
use crate::pods;
use crate::settings::{Settings, ShutdownGrace};
use crate::simulation::{Happening, Simulation};
use crate::step::DeleteOptions;
use crate::workload::Behaviour;
use crate::world::{Disk, MachineState};

const START: i64 = 1_767_225_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).expect("a time")
}

/// Three nodes that have run for a while.
fn cluster(settings: Settings) -> Simulation {
    let mut simulation = Simulation::new(at(0), settings, Choices::enumerated());
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
    check(&mut simulation, expect![[""]]);
    assert!(simulation.world().process("").is_none());
}

#[test]
fn init_containers_and_probes_take_their_time() {
    let mut simulation = cluster(Settings::default());
    let probe = json!({ "readinessProbe": { "httpGet": { "port": 80 } }, "name": "c", "image": "i" });
    let init = json!([{ "name": "one", "image": "i" }, { "name": "side", "image": "i", "restartPolicy": "Always" }]);
    create(&mut simulation, pod("p", "a", json!({ "containers": [probe], "initContainers": init })));
    simulation.run_until(at(120)).expect("runs");
    check(&mut simulation, expect![[""]]);
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let kinds: Vec<&str> = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
}
