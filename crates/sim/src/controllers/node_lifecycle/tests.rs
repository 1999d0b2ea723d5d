//! Timelines of nodes that fail and come back, with kubelets that do nothing else.

use super::*;
use crate::choices::{Choices, Question, RecordedAnswers};
use crate::machines::MachineSpec;
use crate::object::SimObject;
use crate::settings::Settings;
use crate::simulation::{Happening, Simulation};
use crate::step::DeleteOptions;
use crate::world::MachineState;
use serde_json::{Value, json};

/// The components whose events the tests look at.
const COMPONENTS: [&str; 2] = ["node-controller", "taint-eviction-controller"];

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
            Happening::Reported(event) if !COMPONENTS.contains(&event.component) => {}
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

/// The same, with passes at 3, 8, 13 seconds and so on: the one at 23 sees the last renewal.
#[test]
fn passes_are_whole_periods_from_a_known_one() {
    let mut settings = Settings::default();
    settings.timers.node_monitor_run = Some(at(3));
    let mut simulation = cluster(&["a", "b", "c"], settings);
    simulation.run_until(at(27)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Off).expect("a machine");
    simulation.run_until(at(1000)).expect("runs");
    assert_eq!(history(&mut simulation)[0], "73.0 b Unknown []");
}

/// Without its tenths: passes and polls have phases of their own.
fn seconds(rows: Vec<String>, of: &str) -> Vec<String> {
    let rows = rows.into_iter().filter(|row| row.contains(of));
    rows.map(|row| row.split_once('.').map(|(second, rest)| format!("{second} {}", &rest[2..])).unwrap_or(row)).collect()
}

/// Timeline D: three of five nodes die. The first is tainted before there are too many; then nothing is evicted until
/// enough of them are back.
#[test]
fn a_zone_in_partial_disruption_evicts_nothing() {
    let mut simulation = cluster(&["a", "b", "c", "d", "e"], Settings::default());
    for name in ["a", "b", "c"] {
        simulation.fail(name, MachineState::Off).expect("a machine");
    }
    simulation.run_until(at(600)).expect("runs");
    let rows = seconds(history(&mut simulation), "Unknown");
    assert_eq!(rows.iter().filter(|row| row.contains("NoExecute")).count(), 0, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row.contains("unreachable:NoSchedule")).count(), 3, "{rows:?}");
    assert_eq!(simulation.next_at(), None, "with rate zero nobody waits");
    simulation.heal("a").expect("a machine");
    simulation.run_until(at(700)).expect("runs");
    // After the boot, which takes 30 s, the limiter has no token for 10 s.
    let tainted = seconds(history(&mut simulation), "unreachable:NoExecute");
    assert_eq!(
        tainted,
        [
            "640 b Unknown [unreachable:NoSchedule unreachable:NoExecute]",
            "650 c Unknown [unreachable:NoSchedule unreachable:NoExecute]",
        ]
    );
}

/// Timeline E: all nodes die, after one of them; its taint is removed. The first Ready node starts all clocks again.
#[test]
fn without_a_ready_node_nothing_is_tainted() {
    let mut simulation = cluster(&["a", "b"], Settings::default());
    add_pod(&mut simulation, "p", "a");
    simulation.fail("a", MachineState::Suspended).expect("a machine");
    simulation.run_until(at(100)).expect("runs");
    simulation.take_journal();
    simulation.fail("b", MachineState::Suspended).expect("a machine");
    simulation.run_until(at(500)).expect("runs");
    assert_eq!(
        history(&mut simulation),
        [
            "155.0 b Unknown []",
            "155.0 NodeNotReady: Node b status is now: NodeNotReady",
            "155.0 a Unknown [unreachable:NoSchedule]",
            "155.0 b Unknown [unreachable:NoSchedule]",
            "155.0 TaintManagerEviction: Cancelling deletion of Pod n/p",
        ]
    );
    assert_eq!(simulation.next_at(), None);
    simulation.heal("b").expect("a machine");
    simulation.run_until(at(1000)).expect("runs");
    let rows = history(&mut simulation);
    let tainted = seconds(rows.clone(), "NoExecute");
    assert_eq!(tainted, ["515 a Unknown [unreachable:NoSchedule unreachable:NoExecute]"], "{rows:?}");
    let marked = seconds(rows, "Marking");
    assert_eq!(marked, ["815 TaintManagerEviction: Marking for deletion Pod n/p"]);
}

/// A lost node that is still seen as Ready when its turn comes is tainted a turn later.
#[test]
fn a_stale_node_has_its_turn_in_vain() {
    for (is_stale, expected) in [(false, "75"), (true, "85")] {
        let mut answers = RecordedAnswers::default();
        if is_stale {
            answers.add(Question::StaleNode { node: "b".into() }, "yes");
        }
        let mut simulation = cluster(&["a", "b", "c"], Settings::default());
        simulation.set_choices(Choices::recorded(answers));
        simulation.fail("b", MachineState::Off).expect("a machine");
        simulation.run_until(at(200)).expect("runs");
        let tainted = seconds(history(&mut simulation), "unreachable:NoExecute");
        assert_eq!(tainted, [format!("{expected} b Unknown [unreachable:NoSchedule unreachable:NoExecute]")]);
    }
}

/// A node that is tainted during the pass that finds all nodes lost keeps the taint.
#[test]
fn a_taint_during_the_last_pass_stays() {
    for (answer, expected) in [("no", 0), ("yes", 1)] {
        let mut answers = RecordedAnswers::default();
        answers.add(Question::TaintDuringPass { zone: String::new() }, answer);
        let mut simulation = cluster(&["a", "b"], Settings::default());
        simulation.set_choices(Choices::recorded(answers));
        for name in ["a", "b"] {
            simulation.fail(name, MachineState::Suspended).expect("a machine");
        }
        simulation.run_until(at(500)).expect("runs");
        let tainted = simulation.store().all::<Node>().filter(|node| has_taint(node, UNREACHABLE, "NoExecute"));
        assert_eq!(tainted.count(), expected, "{answer}");
    }
}

/// Timeline F: four nodes of a healthy zone die together; their evictions are spread.
#[test]
fn nodes_of_a_zone_are_tainted_one_each_ten_seconds() {
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut simulation = cluster(&names, Settings::default());
    for name in &names[..4] {
        simulation.fail(name, MachineState::Off).expect("a machine");
    }
    simulation.run_until(at(200)).expect("runs");
    let rows = seconds(history(&mut simulation), "unreachable:NoExecute");
    let times: Vec<&str> = rows.iter().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(times, ["75", "85", "95", "105"], "{rows:?}");
}

/// Up to 1.33 the taint waits for the next pass; up to 1.31 the grace period is 40 s.
#[test]
fn older_versions_taint_a_pass_later() {
    for (minor, unknown, tainted) in [(31, 65, 70), (33, 75, 80), (34, 75, 75), (36, 75, 75)] {
        let mut simulation = cluster(&["a", "b", "c"], Settings::of(stead_model::KubernetesVersion::minor(minor)));
        simulation.fail("a", MachineState::Off).expect("a machine");
        simulation.run_until(at(200)).expect("runs");
        let rows = history(&mut simulation);
        let first = |of: &str| seconds(rows.clone(), of).first().and_then(|row| row.split(' ').next()?.parse::<i64>().ok());
        assert_eq!((first("Unknown"), first("NoExecute")), (Some(unknown), Some(tainted)), "1.{minor}");
    }
}

/// Timelines A2 and A3 without storage: what removes the pod of a dead node.
#[test]
fn out_of_service_or_the_deletion_of_the_node_removes_pods() {
    for (delete_node, gone) in [(false, 520), (true, 560)] {
        let mut simulation = cluster(&["a", "b"], Settings::default());
        add_pod(&mut simulation, "p", "a");
        simulation.fail("a", MachineState::Off).expect("a machine");
        simulation.run_until(at(505)).expect("runs");
        assert!(simulation.store().get::<Pod>("n", "p").is_some_and(|pod| pods::is_terminating(pod)));
        if delete_node {
            let write = Write::Delete(SimKey::node("a"), DeleteOptions::default());
            simulation.request(write).expect("deleted");
        } else {
            let mut node = Node::clone(simulation.store().get::<Node>("", "a").expect("a node"));
            let taint = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
            let taint = serde_json::from_value(taint).expect("a taint");
            node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            simulation.request(Write::Replace(node.into())).expect("tainted");
        }
        simulation.take_journal();
        let there = |simulation: &Simulation| simulation.store().get::<Pod>("n", "p").is_none();
        assert!(simulation.run_until_holds(at(1000), there).expect("runs"));
        assert_eq!(simulation.now(), at(gone), "{delete_node}");
        simulation.run_until(at(1000)).expect("runs");
        assert_eq!(simulation.next_at(), None);
    }
}

/// A kubelet that reports False itself: another taint, and no pod is marked. One taint replaces the other at once.
#[test]
fn taints_follow_the_condition() {
    let mut simulation = cluster(&["a", "b"], Settings::default());
    let ready = |status: &str| {
        let conditions = json!([{ "type": "Ready", "status": status }]);
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "x" },
            "status": { "conditions": conditions } }))
        .expect("a node")
    };
    simulation.request(Write::Create(ready("True"))).expect("created");
    add_pod(&mut simulation, "p", "x");
    simulation.run_until(at(30)).expect("runs");
    simulation.take_journal();
    for (second, status) in [(32, "False"), (42, "Unknown"), (52, "True")] {
        simulation.run_until(at(second)).expect("runs");
        let mut node = Node::clone(simulation.store().get::<Node>("", "x").expect("a node"));
        for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
            condition.status = status.into();
        }
        simulation.request(Write::Status(node.into())).expect("reported");
    }
    simulation.run_until(at(100)).expect("runs");
    assert_eq!(
        seconds(history(&mut simulation), ""),
        [
            "32 x False []",
            "32 x False [not-ready:NoSchedule]",
            "35 x False [not-ready:NoSchedule not-ready:NoExecute]",
            "42 x Unknown [not-ready:NoSchedule not-ready:NoExecute]",
            "42 x Unknown [not-ready:NoSchedule not-ready:NoExecute unreachable:NoSchedule]",
            "42 x Unknown [not-ready:NoExecute unreachable:NoSchedule]",
            "45 x Unknown [not-ready:NoExecute unreachable:NoSchedule unreachable:NoExecute]",
            "45 x Unknown [unreachable:NoSchedule unreachable:NoExecute]",
            "52 x True [unreachable:NoSchedule unreachable:NoExecute]",
            "52 x True [unreachable:NoExecute]",
            "55 x True []",
            "55 TaintManagerEviction: Cancelling deletion of Pod n/p",
        ]
    );
    let pod = simulation.store().get::<Pod>("n", "p").expect("a pod");
    assert!(pods::is_ready(pod));
}
