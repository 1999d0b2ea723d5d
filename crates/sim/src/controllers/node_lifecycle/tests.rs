//! Timelines of nodes that fail and come back, with kubelets that do nothing else.

use super::*;
use crate::choices::Choices;
use crate::machines::MachineSpec;
use crate::object::SimObject;
use crate::settings::Settings;
use crate::simulation::{Happening, Simulation};
use crate::step::DeleteOptions;
use crate::world::MachineState;
use serde_json::{Value, json};

const START: i64 = 1_767_225_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).expect("a time")
}

/// A cluster whose nodes run for a while.
fn cluster(names: &[&str], settings: Settings) -> Simulation {
    let mut simulation = Simulation::new(at(0), settings, Choices::enumerated());
    for name in names {
        simulation.add_machine(MachineSpec::named(*name)).expect("added");
    }
    simulation.run_until(at(20)).expect("runs");
    assert_eq!(simulation.next_at(), None, "a healthy cluster is at rest");
    simulation.follow();
    simulation
}

fn default_tolerations() -> Value {
    let of = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    json!([of(NOT_READY), of(UNREACHABLE)])
}

fn pod(name: &str, node: &str) -> SimObject {
    let conditions = json!([
        { "type": "Ready", "status": "True", "reason": "r", "lastTransitionTime": "2025-12-31T00:00:00Z" },
        { "type": "ContainersReady", "status": "True" },
    ]);
    SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "n" },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }],
            "tolerations": default_tolerations() },
        "status": { "phase": "Running", "conditions": conditions } }))
    .expect("a pod")
}

/// Creates a pod that is Ready, on a node that has no kubelet to say otherwise.
fn add_pod(simulation: &mut Simulation, name: &str, node: &str) {
    let object = pod(name, node);
    simulation.request(Write::Create(object.clone())).expect("created");
    simulation.request(Write::Status(object)).expect("reported");
}

/// The changes of nodes: seconds and tenths, node, Ready, taints. Events in between.
fn history(simulation: &mut Simulation) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for (at, happening) in simulation.take_journal() {
        let since = at.as_millisecond() - START * 1000;
        let time = format!("{}.{}", since / 1000, since % 1000 / 100);
        match happening {
            Happening::Changed(change) => {
                let (_, Some(node)) = change.of::<Node>() else { continue };
                let taints: Vec<String> = taints(node)
                    .iter()
                    .map(|taint| format!("{}:{}", taint.key.replace("node.kubernetes.io/", ""), taint.effect))
                    .collect();
                let row = format!("{} {} [{}]", change.key.name, readiness(node).unwrap_or("-"), taints.join(" "));
                if last.insert(change.key.name.to_string(), row.clone()).as_ref() != Some(&row) {
                    rows.push(format!("{time} {row}"));
                }
            }
            Happening::Reported(event) => rows.push(format!("{time} {}: {}", event.note.reason, event.note.message)),
        }
    }
    rows
}

#[test]
fn a_node_is_registered_in_the_next_pass() {
    let mut simulation = Simulation::new(at(0), Settings::default(), Choices::enumerated());
    simulation.run_until(at(2)).expect("runs");
    simulation.follow();
    let taints = json!([{ "key": NOT_READY, "effect": "NoSchedule" }, { "key": UNREACHABLE, "effect": "NoExecute" }]);
    let labels = json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a", "labels": labels },
        "spec": { "taints": taints } });
    simulation.request(Write::Create(SimObject::from_json(&node).expect("a node"))).expect("created");
    simulation.run_until(at(30)).expect("runs");
    assert_eq!(
        history(&mut simulation),
        [
            "2.0 a - [not-ready:NoSchedule unreachable:NoExecute]",
            "2.0 a - [unreachable:NoExecute]",
            "5.0 RegisteredNode: Node a event: Registered Node a in Controller",
            "5.0 a - []",
        ]
    );
    let node = simulation.store().get::<Node>("", "a").expect("a node");
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
    assert_eq!(label("beta.kubernetes.io/arch").as_deref(), Some("arm64"));
    assert_eq!(simulation.next_at(), None, "nobody waits for the heartbeats of a Node that was made by hand");
}

/// Timeline A: the last renewal is at 20, and the pass at 25 is the first that sees it.
#[test]
fn a_silent_node_is_marked_and_tainted() {
    let mut simulation = cluster(&["a", "b", "c"], Settings::default());
    simulation.run_until(at(27)).expect("runs");
    add_pod(&mut simulation, "p", "b");
    simulation.take_journal();
    simulation.fail("b", MachineState::Off).expect("a machine");
    assert_eq!(simulation.last_renewal("b", at(27)), Some(at(20)));
    assert_eq!(simulation.last_renewal("a", at(1009)), Some(at(1000)));
    simulation.run_until(at(1000)).expect("runs");
    assert_eq!(
        history(&mut simulation),
        [
            "75.0 b Unknown []",
            "75.0 NodeNotReady: Node b status is now: NodeNotReady",
            "75.0 NodeNotReady: Node is not ready",
            "75.0 b Unknown [unreachable:NoSchedule]",
            "75.0 b Unknown [unreachable:NoSchedule unreachable:NoExecute]",
            "375.0 TaintManagerEviction: Marking for deletion Pod n/p",
        ]
    );
    let node = simulation.store().get::<Node>("", "b").expect("a node");
    let memory = condition(node, "MemoryPressure").expect("a condition");
    assert_eq!((memory.status.as_str(), memory.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    let ready = pods::condition(pod, "Ready").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("r")));
    assert!(pods::condition(pod, "ContainersReady").is_some_and(|condition| condition.status == "True"));
    assert!(pods::is_terminating(pod));
    assert_eq!(simulation.next_at(), None);
}
