//! The pod garbage collector (`pkg/controller/podgc`): each 20 s it deletes finished pods that are too many, pods on nodes
//! that are out of service, pods of nodes that no longer exist, and Terminating pods that were never bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use stead_model::times::{created, near};
use stead_model::{Event, OUT_OF_SERVICE, Typed};

use crate::choices::Question;
use crate::grid::Grid;
use crate::nodes::{is_ready, taints};
use crate::object::{ObjectKind, SimKey};
use crate::pods::{has_ended, is_terminating, node_of, observed_generation, set_condition, status_mut};
use crate::step::{Context, Controller, DeleteOptions, Item, Step, Wakes, Write};
use crate::store::{Change, Store};

/// How many finished pods may remain (`--terminated-pod-gc-threshold`).
const FINISHED_PODS: usize = 12_500;

/// What the component has in memory. Candidates are looked at again in the pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodGc {
    /// The number of finished pods.
    finished: usize,
    /// Nodes that have pods but do not exist.
    missing: BTreeSet<Arc<str>>,
    /// Nodes that are not Ready and out of service.
    out_of_service: BTreeSet<Arc<str>>,
    /// Terminating pods that have no node.
    unscheduled: BTreeSet<SimKey>,
    /// When the quarantine of a missing node ends.
    quarantine: BTreeMap<Arc<str>, Timestamp>,
}

impl Controller for PodGc {
    const COMPONENT: &'static str = "pod-garbage-collector";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let pending = match change.key.kind {
            ObjectKind::Pod => self.pod_changed(cx.store, change),
            ObjectKind::Node => self.node_changed(cx.store, change),
            _ => false,
        };
        if pending {
            wakes.after(Item::Pass, self.until_next(cx) - cx.settings.timers.reaction);
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, _item: &Item) -> Step {
        // A wake-up that is late by its reaction belongs to the pass before it.
        let pass = grid(cx).at_or_before(cx.now);
        let mut deletions = Deletions::default();
        if self.finished > FINISHED_PODS {
            self.delete_finished(cx, &mut deletions);
        }
        let store = cx.store;
        for node in &self.out_of_service {
            for (key, pod) in pods_on(store, node).filter(|(_, pod)| is_terminating(pod)) {
                deletions.add(cx, key, pod, None);
            }
        }
        self.delete_orphans(cx, pass, &mut deletions);
        for key in &self.unscheduled {
            if let Some(pod) = store.at::<Pod>(key) {
                deletions.add(cx, key, pod, None);
            }
        }
        let again = (!self.missing.is_empty()).then(|| self.until_next(cx));
        Step::writes(deletions.writes).and_again(again)
    }

    /// Besides the objects, which nodes it has missed before: events say when they were deleted.
    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        for (key, object) in store.iter() {
            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
            self.affected(cx, &change, wakes);
        }
        for (name, removed) in removals(store) {
            let existed = pods_on(store, &name).any(|(_, pod)| created(&pod.metadata).is_some_and(|at| at > removed));
            let missed = grid(cx).at_or_after(removed);
            if missed <= cx.now && !existed && self.missing.contains(&*name) {
                self.quarantine.insert(name.as_str().into(), missed + cx.settings.timers.orphan_quarantine);
            }
        }
    }
}

/// When nodes were last deleted, as events say.
fn removals(store: &Store) -> BTreeMap<String, Timestamp> {
    let mut removals = BTreeMap::new();
    let events = store.iter().filter(|(key, _)| matches!(key.kind, ObjectKind::Untyped(_)) && key.kind.name() == "Event");
    for (key, object) in events {
        let Ok(event) = Event::from_raw(&key.to_model(), &object.to_json()) else { continue };
        let is_removal = matches!(event.reason.as_deref(), Some("RemovingNode" | "DeletingNode"));
        let about = event.involved_object.as_ref().filter(|about| about.kind.as_deref() == Some("Node"));
        let Some(name) = about.and_then(|about| about.name.clone()).filter(|_| is_removal) else { continue };
        let at = event.last_timestamp.as_ref().map(|at| at.0).or(event.event_time.as_ref().map(|at| at.0));
        let Some(at) = at.and_then(near) else { continue };
        let last = removals.entry(name).or_insert(at);
        *last = at.max(*last);
    }
    removals
}

fn grid(cx: &Context<'_>) -> Grid {
    Grid { start: cx.settings.timers.pod_gc_run.unwrap_or(cx.started), period: cx.settings.timers.pod_gc_period }
}

fn pods_on<'a>(store: &'a Store, node: &str) -> impl Iterator<Item = (&'a SimKey, &'a Arc<Pod>)> {
    store.pods_on(node).filter_map(|key| Some((key, store.at::<Pod>(key)?)))
}

impl PodGc {
    fn until_next(&self, cx: &Context<'_>) -> SignedDuration {
        grid(cx).after(cx.now).duration_since(cx.now)
    }

    /// Gives whether the next pass has something to do.
    fn pod_changed(&mut self, store: &Store, change: &Change) -> bool {
        let (before, after) = change.of::<Pod>();
        let ended = |pod: Option<&Arc<Pod>>| usize::from(pod.is_some_and(|pod| has_ended(pod)));
        self.finished = (self.finished + ended(after)).saturating_sub(ended(before));
        let unscheduled = |pod: &Arc<Pod>| is_terminating(pod) && node_of(pod).is_none();
        if before.is_some_and(unscheduled) && !after.is_some_and(unscheduled) {
            self.unscheduled.remove(&change.key);
        }
        let Some(pod) = after else {
            let node = before.and_then(|pod| node_of(pod)).unwrap_or_default();
            if self.missing.contains(node) && store.pods_on(node).next().is_none() {
                self.missing.remove(node);
            }
            return false;
        };
        if unscheduled(pod) {
            self.unscheduled.insert(change.key.clone());
            return needs_deletion(pod);
        }
        let Some(name) = node_of(pod) else { return false };
        let same_node = before.is_some_and(|before| node_of(before) == Some(name));
        if !same_node && store.get::<Node>("", name).is_none() {
            self.missing.insert(name.into());
            return true;
        }
        let removable = is_terminating(pod) && needs_deletion(pod) && self.out_of_service.contains(name);
        removable || self.finished > FINISHED_PODS
    }

    /// Gives whether the next pass has something to do.
    fn node_changed(&mut self, store: &Store, change: &Change) -> bool {
        let name = &change.key.name;
        let Some(node) = change.of::<Node>().1 else {
            self.out_of_service.remove(name);
            let has_pods = store.pods_on(name).next().is_some();
            if has_pods {
                self.missing.insert(Arc::clone(name));
            }
            return has_pods;
        };
        self.missing.remove(name);
        if is_ready(node) || !taints(node).iter().any(|taint| taint.key == OUT_OF_SERVICE) {
            self.out_of_service.remove(name);
            return false;
        }
        self.out_of_service.insert(Arc::clone(name));
        pods_on(store, name).any(|(_, pod)| is_terminating(pod) && needs_deletion(pod))
    }

    /// `gcTerminated`: the oldest ones, those that were evicted first.
    fn delete_finished(&self, cx: &mut Context<'_>, deletions: &mut Deletions) {
        let is_evicted = |pod: &Pod| {
            let status = pod.status.as_ref();
            let reason = status.and_then(|status| status.reason.as_deref());
            let phase = status.and_then(|status| status.phase.as_deref());
            phase == Some("Failed") && reason == Some("Evicted")
        };
        let store = cx.store;
        let mut finished: Vec<(SimKey, &Arc<Pod>)> = store
            .of_kind(ObjectKind::Pod)
            .filter_map(|(key, _)| Some((key.clone(), store.at::<Pod>(key)?)))
            .filter(|(_, pod)| has_ended(pod))
            .collect();
        finished.sort_by_key(|(key, pod)| (!is_evicted(pod), created(&pod.metadata), Arc::clone(&key.name)));
        for (key, pod) in finished.iter().take(finished.len().saturating_sub(FINISHED_PODS)) {
            deletions.add(cx, key, pod, None);
        }
    }

    /// `gcOrphaned`: a node that is missing in a pass is in quarantine until a later one.
    fn delete_orphans(&mut self, cx: &mut Context<'_>, pass: Timestamp, deletions: &mut Deletions) {
        // Passes without anything to do are left out: they would have taken what was ready then.
        let (grid, store) = (grid(cx), cx.store);
        let ready = |until: Timestamp| until <= pass && grid.at_or_after(until) == pass;
        let released: Vec<Arc<str>> =
            self.quarantine.iter().filter(|(_, until)| ready(**until)).map(|(name, _)| Arc::clone(name)).collect();
        self.quarantine.retain(|_, until| *until > pass);
        for name in &self.missing {
            self.quarantine.entry(Arc::clone(name)).or_insert(pass + cx.settings.timers.orphan_quarantine);
        }
        for name in released.iter().filter(|name| self.missing.contains(*name)) {
            for (key, pod) in pods_on(store, name) {
                let target = PodCondition {
                    type_: "DisruptionTarget".into(),
                    status: "True".into(),
                    reason: Some("DeletionByPodGC".into()),
                    message: Some("PodGC: node no longer exists".into()),
                    observed_generation: observed_generation(pod, cx.settings),
                    ..PodCondition::default()
                };
                deletions.add(cx, key, pod, Some(target));
            }
        }
    }
}

/// Whether the deletion of a pod would change anything: one that waits for its finalizers only would not.
fn needs_deletion(pod: &Pod) -> bool {
    !has_ended(pod) || !is_terminating(pod) || pod.metadata.deletion_grace_period_seconds != Some(0)
}

/// The deletions of one pass, each pod once.
#[derive(Default)]
struct Deletions {
    seen: BTreeSet<SimKey>,
    writes: Vec<Write>,
}

impl Deletions {
    /// `markFailedAndDeletePodWithCondition`.
    fn add(&mut self, cx: &mut Context<'_>, key: &SimKey, pod: &Pod, condition: Option<PodCondition>) {
        if !needs_deletion(pod) || !self.seen.insert(key.clone()) {
            return;
        }
        if !has_ended(pod) {
            let mut pod = pod.clone();
            let generation = observed_generation(&pod, cx.settings);
            let status = status_mut(&mut pod);
            status.phase = Some("Failed".into());
            status.observed_generation = generation.or(status.observed_generation);
            if let Some(condition) = condition {
                set_condition(&mut pod, condition, cx.now);
            }
            pod.metadata.resource_version = None;
            self.writes.push(Write::Status(pod.into()));
            let by_owner = Question::CollectedByOwner { pod: format!("{}/{}", key.namespace, key.name) };
            if cx.choices.happened(&by_owner) {
                return;
            }
        }
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        self.writes.push(Write::Delete(key.clone(), options));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::controllers::ControllerId;
    use crate::object::SimObject;
    use crate::settings::Settings;
    use crate::simulation::{Happening, Simulation};
    use crate::world::World;
    use serde_json::{Value, json};

    const START: i64 = 1_767_225_600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).expect("a time")
    }

    fn pod(name: &str, node: Option<&str>, finalizers: &[&str]) -> SimObject {
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "finalizers": finalizers },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }],
                "tolerations": [{ "operator": "Exists" }] } }))
        .expect("a pod")
    }

    fn node(ready: &str, out_of_service: bool) -> SimObject {
        let taints: Vec<Value> =
            out_of_service.then(|| json!({ "key": OUT_OF_SERVICE, "effect": "NoExecute" })).into_iter().collect();
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" },
            "spec": { "taints": taints }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } }))
        .expect("a node")
    }

    fn cluster(objects: Vec<SimObject>) -> Simulation {
        let mut simulation = Simulation::new(at(0), Settings::default().with_components(&[ControllerId::PodGc]), Choices::enumerated());
        for object in objects {
            simulation.request(Write::Create(object)).expect("created");
        }
        simulation.follow();
        simulation
    }

    fn delete(simulation: &mut Simulation, key: SimKey) {
        simulation.request(Write::Delete(key, DeleteOptions::default())).expect("deleted");
    }

    /// The second of each change of pods: the phase, or `gone`.
    fn changes(simulation: &mut Simulation) -> Vec<String> {
        let changes = simulation.take_journal().into_iter().filter_map(|(at, happening)| match happening {
            Happening::Changed(change) if change.key.kind == ObjectKind::Pod => {
                let phase = change.of::<Pod>().1.map_or("gone", |pod| crate::pods::phase(pod)).to_owned();
                Some(format!("{} {} {phase}", at.as_second() - START, change.key.name))
            }
            _ => None,
        });
        // A pod that is removed at once is marked first, which does not change its phase.
        let mut changes: Vec<String> = changes.collect();
        changes.dedup();
        changes
    }

    /// Go's `TestTerminatingOnOutOfServiceNode`.
    #[test]
    fn terminating_pods_on_nodes_out_of_service_are_deleted() {
        for (ready, tainted, deleted) in
            [("Unknown", true, true), ("False", true, true), ("True", true, false), ("Unknown", false, false)]
        {
            let mut simulation = cluster(vec![node(ready, tainted), pod("p", Some("a"), &[]), pod("q", Some("a"), &[])]);
            simulation.run_until(at(5)).expect("runs");
            delete(&mut simulation, SimKey::pod("n", "p"));
            simulation.take_journal();
            simulation.run_until(at(100)).expect("runs");
            let expected: &[&str] = if deleted { &["20 p Failed", "20 p gone"] } else { &[] };
            assert_eq!(changes(&mut simulation), expected, "{ready} {tainted}");
            assert_eq!(simulation.next_at(), None, "{ready} {tainted}");
        }
    }

    #[test]
    fn passes_are_whole_periods_from_a_known_one() {
        let mut settings = Settings::default().with_components(&[ControllerId::PodGc]);
        settings.timers.pod_gc_run = Some(at(-33));
        let mut simulation = Simulation::new(at(0), settings, Choices::enumerated());
        for object in [node("Unknown", true), pod("p", Some("a"), &[])] {
            simulation.request(Write::Create(object)).expect("created");
        }
        simulation.run_until(at(5)).expect("runs");
        delete(&mut simulation, SimKey::pod("n", "p"));
        simulation.follow();
        simulation.run_until(at(100)).expect("runs");
        assert_eq!(changes(&mut simulation), ["7 p Failed", "7 p gone"]);
    }

    /// Go's `TestGCOrphaned`: in a quarantine of two passes the Node may come back.
    #[test]
    fn pods_of_a_node_that_is_gone_are_deleted_after_a_quarantine() {
        for (deleted, back, expected) in [
            (5, None, vec!["60 p Failed", "60 p gone"]),
            (20, None, vec!["80 p Failed", "80 p gone"]),
            (25, None, vec!["80 p Failed", "80 p gone"]),
            (5, Some(50), vec![]),
        ] {
            let mut simulation = cluster(vec![node("Unknown", false), pod("p", Some("a"), &[])]);
            simulation.run_until(at(deleted)).expect("runs");
            simulation.request(Write::Delete(SimKey::node("a"), DeleteOptions::default())).expect("deleted");
            simulation.take_journal();
            if let Some(back) = back {
                simulation.run_until(at(back)).expect("runs");
                simulation.request(Write::Create(node("Unknown", false))).expect("created");
            }
            simulation.run_until(at(300)).expect("runs");
            assert_eq!(changes(&mut simulation), expected, "{deleted} {back:?}");
            assert_eq!(simulation.next_at(), None, "{deleted} {back:?}");
        }
    }

    #[test]
    fn the_passes_are_periods_from_a_known_one() {
        let mut settings = Settings::default().with_components(&[ControllerId::PodGc]);
        settings.timers.pod_gc_run = Some(at(-53));
        let mut simulation = Simulation::new(at(0), settings, Choices::enumerated());
        for object in [node("Unknown", true), pod("p", Some("a"), &[])] {
            simulation.request(Write::Create(object)).expect("created");
        }
        delete(&mut simulation, SimKey::pod("n", "p"));
        simulation.follow();
        simulation.run_until(at(100)).expect("runs");
        assert_eq!(changes(&mut simulation), ["7 p Failed", "7 p gone"]);
    }

    #[test]
    fn a_second_quarantine_starts_anew() {
        let mut simulation = cluster(vec![pod("p", Some("gone"), &[])]);
        simulation.run_until(at(500)).expect("runs");
        assert_eq!(changes(&mut simulation), ["60 p Failed", "60 p gone"]);
        simulation.request(Write::Create(pod("q", Some("gone"), &[]))).expect("created");
        simulation.take_journal();
        simulation.run_until(at(1000)).expect("runs");
        assert_eq!(changes(&mut simulation), ["560 q Failed", "560 q gone"]);
    }

    /// A node that is gone since 30 s before was missed 20 s before.
    #[test]
    fn events_tell_since_when_a_node_is_missed() {
        let event = |at: Timestamp| {
            SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Event",
                "metadata": { "name": "a.1", "namespace": "default" }, "reason": "RemovingNode",
                "involvedObject": { "kind": "Node", "name": "a" }, "lastTimestamp": at.to_string() }))
            .expect("an event")
        };
        for (removed, expected) in [(-30, "20 p gone"), (-500, "60 p gone")] {
            let settings = Settings::default().with_components(&[ControllerId::PodGc]);
            let objects = [pod("p", Some("a"), &[]), event(at(removed))];
            let mut simulation = Simulation::resume(at(0), settings, Choices::enumerated(), objects, World::default());
            simulation.follow();
            simulation.run_until(at(100)).expect("runs");
            assert_eq!(changes(&mut simulation).last().map(String::as_str), Some(expected), "{removed}");
        }
    }

    /// Go's `TestGCUnscheduledTerminating`. A pod that only waits for its finalizers is left alone.
    #[test]
    fn terminating_pods_that_were_never_bound_are_deleted() {
        let mut simulation = cluster(vec![pod("p", None, &["example.org/hold"])]);
        simulation.run_until(at(3)).expect("runs");
        delete(&mut simulation, SimKey::pod("n", "p"));
        simulation.take_journal();
        simulation.run_until(at(100)).expect("runs");
        let mut changes = changes(&mut simulation);
        changes.dedup();
        assert_eq!(changes, ["20 p Failed"]);
        assert_eq!(simulation.next_at(), None);
    }
}
