//! The node lifecycle controller (`pkg/controller/nodelifecycle`): it marks nodes that nothing is heard of, and taints
//! nodes that are not Ready.
//!
//! Kubernetes looks at all nodes each 5 s. Here a pass takes place only when a node changed or a node's time is over, at
//! the time at which Kubernetes would have seen it.

mod health;
mod taints;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use stead_model::fork::Sorted;
use stead_model::times::near;
use stead_model::{NODE_LEASES, NOT_READY, UNREACHABLE};

use crate::choices::Question;
use crate::event_log::EventNote;
use crate::grid::Grid;
use crate::nodes::{condition, has_taint, is_ready, taints};
use crate::object::{ObjectKind, SimKey};
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use health::{Health, mark_unknown};
use taints::{NodeWriter, concerns_taints, no_execute};
use zones::{Counted, Disruption, Zones, zone_key};

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeLifecycle {
    /// The nodes that a pass has seen, and how they count in their zone.
    known: Sorted<Arc<str>, Counted>,
    /// By node. It stays when the Node is deleted.
    health: Sorted<Arc<str>, Health>,
    /// When the condition Ready of a node was last written, if that is newer than the last pass over it.
    touched: Sorted<Arc<str>, Timestamp>,
    /// The nodes that the next pass has to look at.
    changed: BTreeSet<Arc<str>>,
    /// When silent nodes are due to be marked.
    due: BTreeSet<(Timestamp, Arc<str>)>,
    zones: Zones,
    /// The last pass over nodes.
    passed: Option<Timestamp>,
    /// When the next pass over nodes takes place.
    pass_at: Option<Timestamp>,
    /// When the nodes that wait for a NoExecute taint are looked at.
    poll_at: Option<Timestamp>,
}

impl Controller for NodeLifecycle {
    const COMPONENT: &'static str = "node-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Node => {
                let (before, after) = change.of::<Node>();
                let Some(after) = after else { return self.look_at(cx, &change.key.name, wakes) };
                if concerns_taints(before, after) {
                    let late = cx.choices.happened(&Question::LateTaint { node: change.key.name.to_string() });
                    let requests = if late { cx.settings.timers.reaction * 4 } else { SignedDuration::ZERO };
                    wakes.after(change.key.clone(), requests);
                }
                let beat = |node: &Arc<Node>| condition(node, "Ready").map(|c| c.last_heartbeat_time.clone());
                if before.and_then(beat) != beat(after) {
                    self.touched.insert(Arc::clone(&change.key.name), cx.now);
                }
                if !before.is_some_and(|before| same_for_pass(before, after)) {
                    self.look_at(cx, &change.key.name, wakes);
                }
            }
            ObjectKind::Lease if &*change.key.namespace == NODE_LEASES => {
                if cx.world.is_connected(&change.key.name, cx.now) {
                    self.forget_due(&change.key.name);
                } else {
                    self.look_at(cx, &change.key.name, wakes);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        if let Item::Object(key) = item {
            let Some(node) = cx.store.at::<Node>(key) else { return Step::none() };
            let mut writer = NodeWriter::new(node);
            writer.taint_no_schedule(cx.now);
            writer.reconcile_labels();
            return Step::writes(writer.writes);
        }
        let mut writes = Vec::new();
        // A machine that falls silent is noticed by the heartbeats that do not come.
        let machines = cx.world.take_changed_machines();
        for name in machines.iter().filter(|name| !cx.world.is_connected(name, cx.now)) {
            self.want_pass(cx, name);
        }
        if self.pass_at.is_some_and(|at| at <= cx.now) {
            self.pass(cx, &mut writes);
        }
        if self.poll_at.is_some_and(|at| at <= cx.now) {
            self.taint_waiting(cx, &mut writes);
        }
        self.poll_at = self.next_poll(cx);
        let next = [self.pass_at, self.poll_at].into_iter().flatten().min();
        Step::writes(writes).and_again(next.map(|at| at.duration_since(cx.now)))
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let (store, grid) = (cx.store, grid(cx));
        let mut last_taint: BTreeMap<Arc<str>, Timestamp> = BTreeMap::new();
        for node in store.all::<Node>() {
            let name: Arc<str> = node.metadata.name.as_deref().unwrap_or_default().into();
            let zone = zone_key(node);
            let added = taints(node).iter().filter(|taint| is_ours(&taint.key) && taint.effect == "NoExecute");
            let added = added.filter_map(|taint| near(taint.time_added.as_ref()?.0)).max();
            if let Some(added) = added {
                let last = last_taint.entry(Arc::clone(&zone)).or_insert(added);
                *last = (*last).max(added);
            }
            let counted = Counted::of(node, is_ready(node));
            self.zones.count(None, Some(&counted), &cx.settings.timers, cx.now);
            self.known.insert(Arc::clone(&name), counted);
            self.health.insert(Arc::clone(&name), Health::restored(cx, node, &name, grid));
            let mut writer = NodeWriter::new(node);
            writer.taint_no_schedule(cx.now);
            if !writer.writes.is_empty() {
                wakes.now(SimKey::node(&name));
            }
            if !cx.world.is_connected(&name, cx.now) || !is_settled(node) {
                self.look_at(cx, &name, wakes);
            }
        }
        self.zones.restore(&last_taint, &cx.settings.timers);
    }
}

fn grid(cx: &Context<'_>) -> Grid {
    let timers = &cx.settings.timers;
    Grid { start: timers.node_monitor_run.unwrap_or(cx.started), period: timers.node_monitor_period }
}

/// Whether a taint key is one of the two for nodes that are not Ready.
fn is_ours(key: &str) -> bool {
    key == NOT_READY || key == UNREACHABLE
}

fn readiness(node: &Node) -> Option<&str> {
    condition(node, "Ready").map(|ready| ready.status.as_str())
}

/// Whether the NoExecute taints of a node are those of its condition Ready.
fn is_settled(node: &Node) -> bool {
    let tainted = (has_taint(node, NOT_READY, "NoExecute"), has_taint(node, UNREACHABLE, "NoExecute"));
    match readiness(node) {
        Some("True") => tainted == (false, false),
        Some("False") => tainted == (true, false),
        Some("Unknown") => tainted == (false, true),
        _ => true,
    }
}

/// Whether two versions of a node are the same for a pass, heartbeats aside.
fn same_for_pass(before: &Node, after: &Node) -> bool {
    fn ours(node: &Node) -> impl Iterator<Item = &str> {
        let ours = taints(node).iter().filter(|taint| taint.effect == "NoExecute" && is_ours(&taint.key));
        ours.map(|taint| taint.key.as_str())
    }
    readiness(before) == readiness(after)
        && before.metadata.uid == after.metadata.uid
        && ours(before).eq(ours(after))
        && (before.metadata.labels == after.metadata.labels
            || Counted::of(before, true) == Counted::of(after, true))
}

impl NodeLifecycle {
    /// The next pass has to look at a node.
    fn look_at(&mut self, cx: &Context<'_>, name: &Arc<str>, wakes: &mut Wakes) {
        let next = self.want_pass(cx, name);
        wakes.after(Item::Pass, next.duration_since(cx.now) - cx.settings.timers.reaction);
    }

    fn want_pass(&mut self, cx: &Context<'_>, name: &Arc<str>) -> Timestamp {
        self.changed.insert(Arc::clone(name));
        let next = match grid(cx).at_or_after(cx.now) {
            next if self.passed.is_some_and(|passed| passed >= next) => grid(cx).after(cx.now),
            next => next,
        };
        self.pass_at = Some(self.pass_at.map_or(next, |at| at.min(next)));
        next
    }

    fn forget_due(&mut self, name: &str) {
        let Some(health) = self.health.find(|other| (**other).cmp(name)) else { return };
        if let Some(due) = health.due {
            let mut health = health.clone();
            health.due = None;
            self.due.remove(&(due, name.into()));
            self.health.insert(name.into(), health);
        }
    }

    fn set_health(&mut self, name: &Arc<str>, health: Health) {
        self.due.extend(health.due.map(|due| (due, Arc::clone(name))));
        self.health.insert(Arc::clone(name), health);
    }

    /// `monitorNodeHealth`, for the nodes that it finds different.
    fn pass(&mut self, cx: &mut Context<'_>, writes: &mut Vec<Write>) {
        let pass = grid(cx).at_or_before(cx.now);
        self.pass_at = None;
        self.passed = Some(pass);
        let mut names = std::mem::take(&mut self.changed);
        while let Some((at, name)) = self.due.first().filter(|(at, _)| *at <= pass).cloned() {
            self.due.remove(&(at, Arc::clone(&name)));
            names.insert(name);
        }
        // What this pass has written already is needed if all nodes turn out to be down.
        let mut written: BTreeMap<Arc<str>, NodeWriter> = BTreeMap::new();
        for name in names {
            match cx.store.get::<Node>("", &name) {
                None => self.removed(cx, &name, writes),
                Some(node) => {
                    let mut writer = NodeWriter::new(node);
                    self.check(cx, &name, pass, &mut writer, writes);
                    written.insert(name, writer);
                }
            }
        }
        self.taint_during_pass(cx, &mut written, writes);
        match self.zones.update(&cx.settings.timers, pass) {
            Disruption::None => {}
            Disruption::Entered => {
                // Only taints that were there when the pass began: `RemoveTaintOffNode` looks at the nodes that were listed
                // then.
                let tainted = |node: &&Arc<Node>| [NOT_READY, UNREACHABLE].iter().any(|key| has_taint(node, key, "NoExecute"));
                for node in cx.store.all::<Node>().filter(tainted) {
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    let writer = written.entry(name.into()).or_insert_with(|| NodeWriter::new(node));
                    writer.mark_reachable();
                    writes.append(&mut writer.writes);
                }
                self.zones.zones.values_mut().for_each(|zone| zone.waiting.clear());
            }
            Disruption::Left => self.restart_clocks(cx, pass),
        }
        let next = self.due.first().map(|(at, _)| *at);
        let changed = (!self.changed.is_empty()).then(|| grid(cx).after(cx.now));
        self.pass_at = [next, changed].into_iter().flatten().min();
    }

    fn removed(&mut self, cx: &Context<'_>, name: &Arc<str>, writes: &mut Vec<Write>) {
        self.forget_due(name);
        let Some(counted) = self.known.remove(|other| other.cmp(name)) else { return };
        self.zones.count(Some(&counted), None, &cx.settings.timers, cx.now);
        self.zones.forget(name);
        let message = format!("Node {name} event: Removing Node {name} from Controller");
        writes.push(Write::Event(EventNote::normal(&SimKey::node(name), "RemovingNode", message)));
    }

    /// The part of a pass that is about one node.
    fn check(
        &mut self,
        cx: &mut Context<'_>,
        name: &Arc<str>,
        pass: Timestamp,
        writer: &mut NodeWriter,
        writes: &mut Vec<Write>,
    ) {
        let key = SimKey::node(name);
        let counted_before = self.known.get(name).cloned();
        let zone = zone_key(writer.node());
        self.zones.ensure(&zone, &cx.settings.timers, pass);
        if counted_before.is_none() {
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            writes.push(Write::Event(EventNote::normal(&key, "RegisteredNode", message)));
            writer.mark_reachable();
            writes.append(&mut writer.writes);
        }
        let observed = readiness(writer.node()).unwrap_or("Unknown").to_owned();
        self.update_health(cx, name, pass, writer);
        writes.append(&mut writer.writes);
        let current = readiness(writer.node()).map(str::to_owned);
        let counted = Counted::of(writer.node(), current.as_deref() == Some("True"));
        self.zones.count(counted_before.as_ref(), Some(&counted), &cx.settings.timers, pass);
        self.known.insert(Arc::clone(name), counted);
        let Some(current) = current else { return };
        // Up to 1.33 the taint follows the condition as it was before this pass.
        let decisive = if cx.settings.since(34) { current.as_str() } else { observed.as_str() };
        if decisive != current {
            self.changed.insert(Arc::clone(name));
        }
        self.taint_no_execute(cx, name, &zone, decisive, writer);
        writes.append(&mut writer.writes);
        if current != "True" && observed == "True" {
            let message = format!("Node {name} status is now: NodeNotReady");
            writes.push(Write::Event(EventNote::normal(&key, "NodeNotReady", message)));
            mark_pods(cx, name, writes);
        }
    }

    /// `tryUpdateNodeHealth`: a node that nothing is heard of for too long is marked.
    fn update_health(&mut self, cx: &Context<'_>, name: &Arc<str>, pass: Timestamp, writer: &mut NodeWriter) {
        let grid = grid(cx);
        let node = writer.node();
        self.forget_due(name);
        let mut health = self.health.get(name).cloned().unwrap_or_else(|| Health::first(node, pass));
        let touched = self.touched.remove(|other| other.cmp(name));
        health.observe(cx, node, name, touched, grid, pass);
        match health.deadline(cx, node, name, grid) {
            Some(due) if due <= pass => {
                let mut marked = node.clone();
                if mark_unknown(&mut marked, cx.now) {
                    writer.set_status(|node| *node = marked);
                }
            }
            due => health.due = due,
        }
        self.set_health(name, health);
    }

    /// `processTaintBaseEviction`: one taint replaces the other at once, a first one waits in the queue of the zone.
    fn taint_no_execute(
        &mut self,
        cx: &Context<'_>,
        name: &Arc<str>,
        zone: &Arc<str>,
        ready: &str,
        writer: &mut NodeWriter,
    ) {
        let (wanted, other) = match ready {
            "True" => {
                writer.mark_reachable();
                return self.zones.forget(name);
            }
            "False" => (NOT_READY, UNREACHABLE),
            _ => (UNREACHABLE, NOT_READY),
        };
        if has_taint(writer.node(), other, "NoExecute") {
            writer.swap_taints(&[no_execute(wanted)], &[no_execute(other)], cx.now);
        } else if !has_taint(writer.node(), wanted, "NoExecute") {
            self.zones.ensure(zone, &cx.settings.timers, cx.now).waiting.insert(Arc::clone(name));
        }
    }

    /// After a disruption of the whole cluster all nodes count as just seen.
    fn restart_clocks(&mut self, cx: &Context<'_>, pass: Timestamp) {
        let names: Vec<Arc<str>> = self.known.iter().map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            let Some(node) = cx.store.get::<Node>("", &name) else { continue };
            let Some(mut health) = self.health.get(&name).cloned() else { continue };
            self.forget_due(&name);
            health.reset(pass);
            let marked = readiness(node) == Some("Unknown");
            health.due = health.deadline(cx, node, &name, grid(cx)).filter(|_| !marked);
            self.set_health(&name, health);
        }
    }

    /// When the first of the waiting nodes can be tainted.
    fn next_poll(&self, cx: &Context<'_>) -> Option<Timestamp> {
        let waiting = self.zones.zones.values().filter(|zone| !zone.waiting.is_empty());
        let first = waiting.filter_map(|zone| zone.limiter.accepts_at()).min()?;
        // The loop has a phase of its own: half a period is as likely as any other.
        let period = cx.settings.timers.taint_queue_poll;
        let grid = Grid { start: cx.started + period / 2, period };
        Some(grid.at_or_after(first.max(cx.now + SignedDuration::from_nanos(1))))
    }

    /// The nodes that wait are looked at while a pass takes place, too. A zone that the pass is going to stop may get a
    /// taint before that.
    fn taint_during_pass(
        &mut self,
        cx: &mut Context<'_>,
        written: &mut BTreeMap<Arc<str>, NodeWriter>,
        writes: &mut Vec<Write>,
    ) {
        for zone in self.zones.stopping(&cx.settings.timers, cx.now) {
            let question = Question::TaintDuringPass { zone: shown_zone(&zone) };
            if cx.choices.pick(question, &["no", "yes"]) == 0 {
                continue;
            }
            let Some(chosen) = self.take_waiting(cx, &zone) else { continue };
            if let Some(writer) = written.get_mut(&chosen) {
                taint_not_ready(writer, cx.now);
                writes.append(&mut writer.writes);
            }
        }
    }

    /// The next node of a zone that may be tainted. Kubernetes adds all waiting nodes anew in each pass, so that their
    /// order is chance.
    fn take_waiting(&mut self, cx: &mut Context<'_>, zone: &Arc<str>) -> Option<Arc<str>> {
        let found = self.zones.zones.get_mut(zone)?;
        if found.waiting.is_empty() || found.limiter.accepts_at().is_none_or(|at| at > cx.now) {
            return None;
        }
        let options: Vec<&str> = found.waiting.iter().map(|node| &**node).collect();
        let question = Question::TaintedNode { zone: shown_zone(zone) };
        let chosen: Arc<str> = options[cx.choices.pick(question, &options)].into();
        found.limiter.take(cx.now);
        if cx.choices.happened(&Question::StaleNode { node: chosen.to_string() }) {
            return None;
        }
        found.waiting.remove(&chosen);
        Some(chosen)
    }

    /// `doNoExecuteTaintingPass`.
    fn taint_waiting(&mut self, cx: &mut Context<'_>, writes: &mut Vec<Write>) {
        let zones: Vec<Arc<str>> = self.zones.zones.keys().cloned().collect();
        for zone in zones {
            while let Some(chosen) = self.take_waiting(cx, &zone) {
                let Some(node) = cx.store.get::<Node>("", &chosen) else { continue };
                let mut writer = NodeWriter::new(node);
                taint_not_ready(&mut writer, cx.now);
                writes.append(&mut writer.writes);
            }
        }
    }
}

/// A zone as questions name it.
fn shown_zone(zone: &str) -> String {
    zone.replace(":\0:", "/")
}

/// Gives a node the NoExecute taint of its condition Ready; none if it is Ready again.
fn taint_not_ready(writer: &mut NodeWriter, now: Timestamp) {
    let (wanted, other) = match readiness(writer.node()) {
        Some("False") => (NOT_READY, UNREACHABLE),
        Some("Unknown") => (UNREACHABLE, NOT_READY),
        _ => return,
    };
    writer.swap_taints(&[no_execute(wanted)], &[no_execute(other)], now);
}

/// `MarkPodsNotReady`: the condition Ready of the pods turns False; reason and message stay.
fn mark_pods(cx: &Context<'_>, node: &str, writes: &mut Vec<Write>) {
    for key in cx.store.pods_on(node) {
        let Some(pod) = cx.store.at::<Pod>(key) else { continue };
        let Some(ready) = pods::condition(pod, "Ready").filter(|ready| ready.status != "False") else { continue };
        let mut marked = Pod::clone(pod);
        let condition = PodCondition { status: "False".into(), ..ready.clone() };
        pods::set_condition(&mut marked, condition, cx.now);
        writes.push(Write::Status(marked.into()));
        writes.push(Write::Event(EventNote::warning(key, "NodeNotReady", "Node is not ready")));
    }
}

#[cfg(test)]
mod tests;
