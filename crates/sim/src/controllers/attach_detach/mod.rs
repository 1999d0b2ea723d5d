//! The attach-detach controller (`pkg/controller/volume/attachdetach`): decides which node has which volume.
//!
//! It compares what pods need (desired) with what it believes to be attached (actual), every 100 ms, and asks the drivers
//! for changes by VolumeAttachments. Each volume is an item of its own here, looked at in those moments in which its
//! state has changed or a clock of it runs out: nothing happens every 100 ms.
//!
//! `desired.rs` follows pods and claims, `reconcile.rs` is the loop, `operations.rs` are attach and detach themselves,
//! and `recovery.rs` rebuilds all of it from the objects of a running cluster.

mod desired;
mod operations;
mod reconcile;
mod recovery;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::unique_volume_name;

use self::state::{NodeState, State, volumes_in_use};
use crate::loop_grid::LoopGrid;
use crate::object::{ObjectKind, SimKey};
use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// The annotation of a node for which the controller attaches volumes. Every kubelet sets it.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The taint of a node that a person has declared to be off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttachDetach {
    state: State,
    /// The start of all loops.
    grid: LoopGrid,
}

/// Whether a node is Ready; none if there is no such node.
fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn is_managed(node: &Node) -> bool {
    crate::volumes::annotation(&node.metadata, MANAGED).is_some()
}

impl AttachDetach {
    /// The next moment of the loop after a time.
    fn next_loop(&self, cx: &Context<'_>, after: Timestamp) -> Timestamp {
        self.grid.after(after, cx.settings.timers.attach_detach_period)
    }

    /// The next time after the arrival of a change at which attached volumes are checked. A check comes with the first loop
    /// after the period.
    fn next_check(&self, cx: &Context<'_>) -> Timestamp {
        let timers = &cx.settings.timers;
        let period = timers.attachment_check + timers.attach_detach_period;
        self.grid.after(cx.now + timers.reaction, period)
    }

    /// The next time after the arrival of a change at which the populator looks for pods that are gone, or with
    /// `missed` for pods that it has missed.
    fn next_populator(&self, cx: &Context<'_>, missed: bool) -> Timestamp {
        let timers = &cx.settings.timers;
        let period = timers.attach_detach_populator * if missed { 3 } else { 1 };
        self.grid.after(cx.now + timers.reaction, period)
    }

    /// The first loop that sees a change.
    fn first_loop(&self, cx: &Context<'_>) -> Timestamp {
        self.next_loop(cx, cx.now + cx.settings.timers.reaction)
    }

    /// Looks at a volume when it is due.
    fn wake(&mut self, cx: &Context<'_>, unique: &Arc<str>, wakes: &mut Wakes) {
        if let Some(at) = self.state.volume(unique).and_then(state::VolumeState::next) {
            let arrival = cx.now + cx.settings.timers.reaction;
            wakes.after(self.state.item(unique), at.duration_since(arrival).max(SignedDuration::ZERO));
        }
    }

    /// When a volume is looked at that a node does not need any more: in the next loop, or at once if a recording says that
    /// the loop ran then.
    fn release_loop(&self, cx: &Context<'_>, unique: &str, node: &str) -> Timestamp {
        let question = self.state.volume(unique).and_then(|volume| reconcile::detachment(cx.store, volume, node));
        match question.and_then(|question| cx.choices.next_recorded(&question)) {
            Some("yes") => cx.now + cx.settings.timers.reaction,
            _ => self.first_loop(cx),
        }
    }

    /// The volumes that are attached to a node, but that no pod there needs.
    fn undesired(node: &NodeState) -> impl Iterator<Item = Arc<str>> {
        node.attached.difference(&node.desired).map(Arc::clone)
    }

    fn node_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Node>();
        let name = &change.key.name;
        let known = self.state.node(name);
        let health = |node: &Arc<Node>| (is_ready(node), is_out_of_service(node));
        if let (Some(before), Some(after), Some(known)) = (before, after, known)
            && known.managed == is_managed(after)
            && known.assumed.is_empty()
            && volumes_in_use(before) == volumes_in_use(after)
            && (known.attached.is_empty() || health(before) == health(after))
        {
            return;
        }
        let in_use: BTreeSet<Arc<str>> = after
            .or(before)
            .into_iter()
            .flat_map(|node| volumes_in_use(node))
            .map(|volume| Arc::from(volume.as_str()))
            .collect();
        let (undesired, is_new, unreported) = self.state.with_node(name, |node| {
            let is_new = after.is_some_and(|after| is_managed(after)) && !node.managed;
            node.managed |= is_new;
            if after.is_none() && node.desired.is_empty() {
                node.managed = false;
            }
            node.in_use = in_use;
            node.assumed.clear();
            // A node that registers again may have lost the list.
            node.unreported |= before.is_none() && node.report.is_some();
            (AttachDetach::undesired(node).collect::<Vec<_>>(), is_new, node.unreported)
        });
        for unique in undesired {
            if self.state.volume(&unique).is_none() {
                continue;
            }
            let at = self.release_loop(cx, &unique, name);
            self.state.with_volume(&unique, |volume| volume.reconcile(at));
            self.wake(cx, &unique, wakes);
        }
        if unreported {
            let wait = self.first_loop(cx).duration_since(cx.now + cx.settings.timers.reaction);
            wakes.after(change.key.clone(), wait);
        }
        if is_new {
            // Pods that were bound before are found by the populator.
            let at = self.next_populator(cx, true);
            let pods: Vec<SimKey> = cx.store.pods_on(name).cloned().collect();
            for pod in pods.iter().filter_map(|key| cx.store.at::<Pod>(key)) {
                self.pod_needs_volumes(cx, pod, at, wakes);
            }
        }
    }

    fn attachment_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<VolumeAttachment>();
        let is_attached = |attachment: &Arc<VolumeAttachment>| {
            attachment.status.as_ref().is_some_and(|status| status.attached)
        };
        let Some(attachment) = after.or(before).filter(|_| !after.is_some_and(is_attached)) else { return };
        let Some(name) = attachment.spec.source.persistent_volume_name.as_deref() else { return };
        let found = cx.store.get::<PersistentVolume>("", name).and_then(|volume| unique_volume_name(volume));
        let unique: Option<Arc<str>> = found.map(Arc::from).or_else(|| self.state.unique_name(name).cloned());
        let Some(unique) = unique else { return };
        let node = attachment.spec.node_name.as_str();
        let believed = self.state.volume(&unique).is_some_and(|volume| {
            let confirmed = volume.attached.get(node).is_some_and(|attachment| attachment.confirmed);
            confirmed && volume.spec.is_some() && !volume.operations.is_running(&None)
        });
        if believed {
            let at = self.next_check(cx);
            self.state.with_volume(&unique, |volume| volume.check_at = volume.check_at.or(Some(at)));
            self.wake(cx, &unique, wakes);
        }
    }
}

impl Controller for AttachDetach {
    const COMPONENT: &'static str = "attachdetach-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        self.grid.start(cx.now);
        match change.key.kind {
            ObjectKind::Pod => self.pod_changed(cx, change, wakes),
            ObjectKind::Node => self.node_changed(cx, change, wakes),
            ObjectKind::PersistentVolumeClaim => {
                let (before, after) = change.of::<PersistentVolumeClaim>();
                self.claim_changed(cx, before, after, wakes);
            }
            ObjectKind::PersistentVolume => self.volume_changed(cx, change, wakes),
            ObjectKind::VolumeAttachment => self.attachment_changed(cx, change, wakes),
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        if key.kind == ObjectKind::Node {
            return Step::writes(self.report_nodes(cx));
        }
        match self.state.unique_name(&key.name).cloned() {
            Some(unique) => self.work_on(cx, &unique),
            None => Step::none(),
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        self.grid.start(cx.now);
        self.recover(cx, wakes);
    }
}
