//! The taint eviction controller (`pkg/controller/tainteviction`): it deletes pods that do not tolerate the NoExecute
//! taints of their node, or not for longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, Taint};
use stead_model::fork::Sorted;
use stead_model::times::near;
use stead_model::{TolerationTime, UNREACHABLE, min_toleration_time};

use crate::choices::Question;
use crate::event_log::EventNote;
use crate::nodes::taints;
use crate::object::{ObjectKind, SimKey};
use crate::pods::{condition, has_ended, is_terminating, node_of, observed_generation, set_condition};
use crate::step::{Context, Controller, DeleteOptions, Item, Step, Wakes, Write};
use crate::store::Change;

/// The deletion of a pod at a later time. It goes by the name of the pod: a successor of the same name is hit too.
#[derive(Debug, Clone, Copy)]
struct Timer {
    created: Timestamp,
    fires: Timestamp,
}

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaintEviction {
    /// The NoExecute taints of nodes that have any.
    tainted: Sorted<Arc<str>, Arc<[Taint]>>,
    timers: Sorted<SimKey, Timer>,
    /// Pods whose tolerations or node changed, and whether one is gone: a successor of the same name comes later.
    changed: BTreeMap<SimKey, bool>,
    follow_up: Vec<(Item, Option<SignedDuration>)>,
}

impl Controller for TaintEviction {
    const COMPONENT: &'static str = "taint-eviction-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Node => {
                let (before, after) = change.of::<Node>();
                let same = |before: &Arc<Node>, after: &Arc<Node>| no_execute(before).eq(no_execute(after));
                if !before.zip(after).is_some_and(|(before, after)| same(before, after)) {
                    wakes.now(change.key.clone());
                }
            }
            ObjectKind::Pod => {
                let (before, after) = change.of::<Pod>();
                let concerned = match (before, after) {
                    (Some(before), Some(after)) => {
                        node_of(before) != node_of(after) || tolerations(before) != tolerations(after)
                    }
                    // A pod without a node has no timer.
                    (pod, other) => pod.or(other).is_some_and(|pod| node_of(pod).is_some()),
                };
                if concerned && (!self.tainted.is_empty() || !self.timers.is_empty()) {
                    *self.changed.entry(change.key.clone()).or_default() |= after.is_none();
                    wakes.now(change.key.clone());
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        match key.kind {
            ObjectKind::Node => self.node(cx, key),
            _ => self.pod(cx, key),
        }
    }

    fn follow_up(&mut self) -> Vec<(Item, Option<SignedDuration>)> {
        std::mem::take(&mut self.follow_up)
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        for node in cx.store.all::<Node>() {
            let found: Arc<[Taint]> = no_execute(node).cloned().collect();
            if found.is_empty() {
                continue;
            }
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let added = found.iter().filter_map(|taint| near(taint.time_added.as_ref()?.0)).max();
            for key in cx.store.pods_on(name) {
                let Some(pod) = cx.store.at::<Pod>(key).filter(|pod| !is_evicted(pod)) else { continue };
                let bound = condition(pod, "PodScheduled").and_then(|c| near(c.last_transition_time.as_ref()?.0));
                let created = added.max(bound).filter(|at| *at <= cx.now).unwrap_or(cx.now);
                let time = min_toleration_time(tolerations(pod), found.iter());
                let fires = match time {
                    TolerationTime::None => cx.now,
                    TolerationTime::For(time) => (created + time).max(cx.now),
                    TolerationTime::Forever => continue,
                };
                self.timers.insert(key.clone(), Timer { created, fires });
                wakes.after(key.clone(), fires.duration_since(cx.now));
            }
            self.tainted.insert(name.into(), found);
        }
        self.resume_without_nodes(cx, wakes);
    }
}

/// Whether the timer of a pod is over. Others have one even if they are being deleted.
fn is_evicted(pod: &Pod) -> bool {
    let target = condition(pod, "DisruptionTarget").and_then(|condition| condition.reason.as_deref());
    is_terminating(pod) && target == Some("DeletionByTaintManager")
}

/// The NoExecute taints of a node.
fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    taints(node).iter().filter(|taint| taint.effect == "NoExecute")
}

fn tolerations(pod: &Pod) -> &[k8s_openapi::api::core::v1::Toleration] {
    pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
}

impl TaintEviction {
    /// The timers of a deleted node go on. When the node lifecycle controller finds a node silent it takes readiness from
    /// its pods, and the taint follows as a rule. A time that has passed shows that there was no timer.
    fn resume_without_nodes(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let unreachable = Taint { key: UNREACHABLE.into(), effect: "NoExecute".into(), ..Taint::default() };
        let lease = cx.store.get::<Lease>("kube-system", "kube-controller-manager");
        let elected = lease.and_then(|lease| near(lease.spec.as_ref()?.acquire_time.as_ref()?.0));
        for pod in cx.store.all::<Pod>().filter(|pod| !is_terminating(pod)) {
            let Some(node) = node_of(pod) else { continue };
            if cx.store.get::<Node>("", node).is_some() {
                continue;
            }
            let since = |kind: &str, status: &str| {
                let condition = condition(pod, kind).filter(|condition| condition.status == status)?;
                near(condition.last_transition_time.as_ref()?.0)
            };
            let Some(found) = since("ContainersReady", "True").and(since("Ready", "False")) else { continue };
            let TolerationTime::For(time) = min_toleration_time(tolerations(pod), [&unreachable]) else { continue };
            // The time of the condition lacks the part of a second.
            let created = found + SignedDuration::from_millis(500);
            let Ok(fires) = created.checked_add(time) else { continue };
            if elected.is_some_and(|elected| elected > created) || fires <= cx.now {
                continue;
            }
            let key = SimKey::of(ObjectKind::Pod, &pod.metadata);
            wakes.after(key.clone(), fires.duration_since(cx.now));
            self.timers.insert(key, Timer { created, fires });
        }
    }

    /// `handleNodeUpdate`. The timers of a deleted node stay.
    fn node(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        let Some(node) = cx.store.at::<Node>(key) else {
            self.tainted.remove(|name| name.cmp(&key.name));
            return Step::none();
        };
        let found: Arc<[Taint]> = no_execute(node).cloned().collect();
        if found.is_empty() {
            self.tainted.remove(|name| name.cmp(&key.name));
        } else {
            self.tainted.insert(Arc::clone(&key.name), Arc::clone(&found));
        }
        let mut writes = Vec::new();
        for key in cx.store.pods_on(&key.name) {
            if found.is_empty() {
                self.cancel(key, &mut writes);
            } else if let Some(pod) = cx.store.at::<Pod>(key) {
                self.process(cx, key, pod, &found, &mut writes);
            }
        }
        Step::writes(writes)
    }

    /// `handlePodUpdate`, and the end of a timer.
    fn pod(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        let mut writes = Vec::new();
        if let Some(gone) = self.changed.remove(key) {
            if gone {
                self.cancel(key, &mut writes);
            }
            if let Some(pod) = cx.store.at::<Pod>(key) {
                let node = node_of(pod).unwrap_or_default();
                if let Some(found) = self.tainted.find(|name| (**name).cmp(node)).cloned() {
                    self.process(cx, key, pod, &found, &mut writes);
                }
            }
        }
        match self.timers.get(key).map(|timer| timer.fires) {
            Some(fires) if fires <= cx.now => {
                self.timers.remove(|other| other.cmp(key));
                let goes_at_once = cx.store.at::<Pod>(key).is_some_and(|pod| has_ended(pod));
                evict(cx, key, &mut writes);
                let pod = format!("{}/{}", key.namespace, key.name);
                if goes_at_once && cx.choices.happened(&Question::EvictionCancelled { pod }) {
                    writes.push(cancelled(key));
                }
                Step::writes(writes)
            }
            fires => Step::writes(writes).and_again(fires.map(|fires| fires.duration_since(cx.now))),
        }
    }

    /// `processPodOnNode`.
    fn process(&mut self, cx: &mut Context<'_>, key: &SimKey, pod: &Pod, taints: &[Taint], writes: &mut Vec<Write>) {
        let time = min_toleration_time(tolerations(pod), taints);
        let running = self.timers.get(key).copied();
        let timer = match time {
            TolerationTime::Forever => return self.cancel(key, writes),
            TolerationTime::None => {
                self.cancel(key, writes);
                Timer { created: cx.now, fires: cx.now }
            }
            // A running timer is neither restarted nor shortened.
            TolerationTime::For(_) if running.is_some_and(|timer| timer.created < cx.now) => return,
            TolerationTime::For(time) => Timer { created: cx.now, fires: cx.now + time },
        };
        self.timers.insert(key.clone(), timer);
        self.follow_up.push((Item::Object(key.clone()), Some(timer.fires.duration_since(cx.now))));
    }

    /// Stops a timer, and says so if there was one.
    fn cancel(&mut self, key: &SimKey, writes: &mut Vec<Write>) {
        if self.timers.remove(|other| other.cmp(key)).is_some() {
            writes.push(cancelled(key));
            if !self.changed.contains_key(key) {
                self.follow_up.push((Item::Object(key.clone()), None));
            }
        }
    }
}

/// The report that a timer was stopped.
fn cancelled(key: &SimKey) -> Write {
    let message = format!("Cancelling deletion of Pod {}/{}", key.namespace, key.name);
    Write::Event(EventNote::normal(key, "TaintManagerEviction", message))
}

/// `deletePodHandler`: the deletion is by name.
fn evict(cx: &Context<'_>, key: &SimKey, writes: &mut Vec<Write>) {
    let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
    writes.push(Write::Event(EventNote::normal(key, "TaintManagerEviction", message)));
    let Some(pod) = cx.store.at::<Pod>(key) else { return };
    let mut pod = Pod::clone(pod);
    let target = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("DeletionByTaintManager".into()),
        message: Some("Taint manager: deleting due to NoExecute taint".into()),
        observed_generation: observed_generation(&pod, cx.settings),
        ..PodCondition::default()
    };
    if set_condition(&mut pod, target, cx.now) {
        pod.metadata.resource_version = None;
        writes.push(Write::Status(pod.into()));
    }
    writes.push(Write::Delete(key.clone(), DeleteOptions::default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::controllers::ControllerId;
    use crate::object::SimObject;
    use crate::settings::Settings;
    use crate::simulation::Simulation;
    use crate::world::{Machine, MachineState, World};
    use serde_json::{Value, json};

    const START: i64 = 1_767_225_600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).expect("a time")
    }

    fn tolerate(key: &str, seconds: Value) -> Value {
        json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
    }

    fn pod(name: &str, node: &str, tolerations: &Value) -> SimObject {
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n" },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }], "tolerations": tolerations } }))
        .expect("a pod")
    }

    fn node(taints: &[&str]) -> SimObject {
        let taints: Vec<Value> = taints.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "a" }, "spec": { "taints": taints } }))
        .expect("a node")
    }

    fn alone() -> Settings {
        Settings::default().with_components(&[ControllerId::TaintEviction])
    }

    fn cluster(objects: Vec<SimObject>) -> Simulation {
        let mut simulation = Simulation::new(at(0), alone(), Choices::enumerated());
        for object in objects {
            simulation.request(Write::Create(object)).expect("created");
        }
        simulation
    }

    fn set_taints(simulation: &mut Simulation, taints: &[&str]) {
        simulation.request(Write::Replace(node(taints))).expect("tainted");
    }

    /// The seconds of events and of the pod's deletion.
    fn history(simulation: &Simulation, name: &str) -> Vec<String> {
        let key = SimKey::pod("n", name);
        let mut rows: Vec<(i64, String)> = simulation
            .events()
            .about(&key)
            .map(|event| (event.last.as_second() - START, event.note.message.split(' ').next().unwrap_or("").into()))
            .collect();
        if let Some(pod) = simulation.store().at::<Pod>(&key) {
            let deleted = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second() - START);
            rows.extend(deleted.map(|second| (second, "due".to_owned())));
        }
        rows.into_iter().map(|(second, what)| format!("{second} {what}")).collect()
    }

    /// Go's `TestCreatePod` and `TestUpdatePod`.
    #[test]
    fn tolerations_decide_when_a_pod_is_evicted() {
        for (taints, tolerations, expected) in [
            (vec![], json!([]), vec![]),
            (vec!["t"], json!([]), vec!["0 Marking", "30 due"]),
            (vec!["t"], json!([tolerate("t", json!(null))]), vec![]),
            (vec!["t"], json!([tolerate("t", json!(100))]), vec!["100 Marking", "130 due"]),
            (vec!["t"], json!([tolerate("t", json!(0))]), vec!["0 Marking", "30 due"]),
            (vec!["t", "u"], json!([tolerate("t", json!(100))]), vec!["0 Marking", "30 due"]),
            (
                vec!["t", "u"],
                json!([tolerate("t", json!(100)), tolerate("u", json!(50))]),
                vec!["50 Marking", "80 due"],
            ),
        ] {
            let mut simulation = cluster(vec![node(&taints)]);
            simulation.run_until(at(0)).expect("runs");
            simulation.run_for(SignedDuration::from_millis(10)).expect("runs");
            simulation.request(Write::Create(pod("p", "a", &tolerations))).expect("created");
            simulation.run_until(at(300)).expect("runs");
            assert_eq!(history(&simulation, "p"), expected, "{taints:?} {tolerations}");
        }
    }

    #[test]
    fn a_timer_is_kept_when_taints_change_and_cancelled_when_they_are_gone() {
        let tolerations = json!([tolerate("t", json!(100)), tolerate("u", json!(20))]);
        let mut simulation = cluster(vec![node(&[]), pod("p", "a", &tolerations)]);
        simulation.run_until(at(10)).expect("runs");
        set_taints(&mut simulation, &["t"]);
        simulation.run_until(at(60)).expect("runs");
        // It is not shortened by a taint that is tolerated for a shorter time.
        set_taints(&mut simulation, &["u"]);
        simulation.run_until(at(100)).expect("runs");
        assert!(history(&simulation, "p").is_empty());
        let mut fork = simulation.clone();
        set_taints(&mut fork, &[]);
        fork.run_until(at(101)).expect("runs");
        assert_eq!(fork.next_at(), None, "nobody waits for a timer that was stopped");
        assert_eq!(history(&fork, "p"), ["100 Cancelling"]);
        simulation.run_until(at(400)).expect("runs");
        assert_eq!(history(&simulation, "p"), ["110 Marking", "140 due"]);
    }

    #[test]
    fn a_pod_of_the_same_name_has_a_timer_of_its_own() {
        let tolerations = json!([tolerate("t", json!(100))]);
        let mut simulation = cluster(vec![node(&["t"]), pod("p", "a", &tolerations)]);
        simulation.run_until(at(50)).expect("runs");
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        simulation.request(Write::Delete(SimKey::pod("n", "p"), options)).expect("deleted");
        simulation.request(Write::Create(pod("p", "b", &tolerations))).expect("created");
        simulation.run_until(at(400)).expect("runs");
        assert_eq!(history(&simulation, "p"), ["50 Cancelling"]);
    }

    #[test]
    fn a_snapshot_without_the_node_tells_of_its_taint() {
        let evicted = |ready: &str, since: i64| {
            let condition = |kind: &str, status: &str, since: i64| {
                json!({ "type": kind, "status": status, "lastTransitionTime": at(since).to_string() })
            };
            let mut object = pod("p", "a", &json!([tolerate(UNREACHABLE, json!(100))])).to_json();
            (object["apiVersion"], object["kind"]) = ("v1".into(), "Pod".into());
            object["status"]["conditions"] =
                json!([condition("ContainersReady", "True", -200), condition("Ready", ready, since)]);
            let object = SimObject::from_json(&object).expect("a pod");
            let mut simulation = Simulation::resume(at(0), alone(), Choices::enumerated(), [object], World::default());
            simulation.run_until(at(400)).expect("runs");
            history(&simulation, "p")
        };
        assert_eq!(evicted("False", -60), ["40 Marking", "70 due"]);
        assert_eq!(evicted("False", -150), Vec::<String>::new(), "it would have been evicted");
        assert_eq!(evicted("True", -60), Vec::<String>::new());
    }

    #[test]
    fn an_untolerated_taint_replaces_a_timer_and_a_terminating_pod_is_marked_again() {
        let mut simulation = cluster(vec![node(&["t"]), pod("p", "a", &json!([tolerate("t", json!(100))]))]);
        simulation.run_until(at(50)).expect("runs");
        set_taints(&mut simulation, &["t", "v"]);
        simulation.run_until(at(51)).expect("runs");
        assert_eq!(history(&simulation, "p"), ["50 Cancelling", "50 Marking", "80 due"]);
        set_taints(&mut simulation, &["t"]);
        simulation.run_until(at(400)).expect("runs");
        let key = SimKey::pod("n", "p");
        let marked = simulation.events().about(&key).filter(|event| event.note.message.starts_with("Marking"));
        assert_eq!(marked.map(|event| (event.count, event.last.as_second() - START)).collect::<Vec<_>>(), [(2, 151)]);
        let pod = simulation.store().at::<Pod>(&key).expect("waits for its kubelet");
        let target = condition(pod, "DisruptionTarget").expect("marked");
        assert_eq!(target.reason.as_deref(), Some("DeletionByTaintManager"));
        assert_eq!(target.last_transition_time.as_ref().map(|time| time.0.as_second() - START), Some(50));
    }

    #[test]
    fn the_timers_of_a_deleted_node_fire_and_those_of_a_deleted_pod_do_not() {
        let tolerations = json!([tolerate("t", json!(30))]);
        let objects = vec![node(&["t"]), pod("p", "a", &tolerations), pod("q", "a", &tolerations)];
        let mut simulation = cluster(objects);
        simulation.run_until(at(10)).expect("runs");
        simulation.request(Write::Delete(SimKey::node("a"), DeleteOptions::default())).expect("deleted");
        let force = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        simulation.request(Write::Delete(SimKey::pod("n", "q"), force)).expect("deleted");
        simulation.run_until(at(50)).expect("runs");
        assert!(history(&simulation, "p").contains(&"30 Marking".to_owned()), "{:?}", history(&simulation, "p"));
        assert_eq!(history(&simulation, "q"), ["10 Cancelling"]);
    }

    #[test]
    fn the_timer_of_a_pod_that_is_gone_does_not_hit_its_successor() {
        let mut simulation = cluster(vec![node(&["t"]), pod("p", "a", &json!([tolerate("t", json!(30))]))]);
        simulation.run_until(at(10)).expect("runs");
        let force = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        simulation.request(Write::Delete(SimKey::pod("n", "p"), force)).expect("deleted");
        simulation.request(Write::Create(pod("p", "", &json!([])))).expect("created");
        simulation.run_until(at(50)).expect("runs");
        assert_eq!(history(&simulation, "p"), ["10 Cancelling"]);
    }

    #[test]
    fn timers_of_a_running_cluster_go_on() {
        let mut tainted = node(&["t"]);
        if let SimObject::Node(node) = &mut tainted
            && let Some(taints) = &mut Arc::make_mut(node).spec.get_or_insert_default().taints
        {
            taints[0].time_added = Some(crate::api::whole_seconds(at(-80)));
        }
        let tolerations = json!([tolerate("t", json!(100))]);
        // A pod that a person deleted has its timer, one that was evicted has not.
        let terminating = |name: &str, evicted: bool| {
            let mut object = pod(name, "a", &tolerations);
            object.metadata_mut().deletion_timestamp = Some(crate::api::whole_seconds(at(-10)));
            object.metadata_mut().deletion_grace_period_seconds = Some(30);
            if let SimObject::Pod(pod) = &mut object
                && evicted
            {
                let target = PodCondition {
                    type_: "DisruptionTarget".into(),
                    status: "True".into(),
                    reason: Some("DeletionByTaintManager".into()),
                    ..PodCondition::default()
                };
                set_condition(Arc::make_mut(pod), target, at(-10));
            }
            object
        };
        let objects =
            vec![tainted, pod("p", "a", &tolerations), terminating("q", false), terminating("r", true)];
        let (settings, choices) = (alone(), Choices::enumerated());
        let mut world = crate::world::World::default();
        let machine = Machine { state: MachineState::Off, since: at(0), boots: 0, lease_phase: at(0) };
        world.set_machine("a", machine);
        let mut simulation = Simulation::resume(at(0), settings, choices, objects, world);
        simulation.run_until(at(55)).expect("runs");
        assert_eq!(history(&simulation, "p"), ["20 Marking", "50 due"]);
        assert_eq!(history(&simulation, "q"), ["20 Marking", "-10 due"]);
        assert_eq!(history(&simulation, "r"), ["-10 due"]);
    }

    #[test]
    fn an_eviction_that_removes_the_pod_at_once_may_be_reported_as_cancelled() {
        let mut ended = pod("p", "a", &json!([]));
        if let SimObject::Pod(pod) = &mut ended {
            Arc::make_mut(pod).status.get_or_insert_default().phase = Some("Succeeded".into());
        }
        for (recorded, expected) in [(false, vec!["0 Marking"]), (true, vec!["0 Marking", "0 Cancelling"])] {
            let mut answers = crate::choices::RecordedAnswers::default();
            if recorded {
                answers.add(Question::EvictionCancelled { pod: "n/p".into() }, "yes");
            }
            let objects = vec![node(&["t"]), ended.clone()];
            let choices = Choices::recorded(answers);
            let mut simulation = Simulation::resume(at(0), alone(), choices, objects, crate::world::World::default());
            simulation.run_until(at(5)).expect("runs");
            assert_eq!(history(&simulation, "p"), expected);
        }
    }
}
