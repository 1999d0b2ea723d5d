//! The kubelets of all nodes (`pkg/kubelet`).
//!
//! A kubelet sees objects only while it reaches the API server; its containers live in the [`World`] whether it does or
//! not. `node.rs` has what it does for its Node. A pod comes under its care in `admit.rs`, unless `admission.rs` rejects it;
//! `pod.rs` has its life, `containers.rs` that of its containers, `volumes.rs` its mounts, `status.rs` its status and
//! `report.rs` what the API server is told. `shutdown.rs` has the orderly shutdown of a machine. `stand_in.rs` has the
//! stand-ins of the testbed, which share the nodes and volumes only.
//!
//! [`World`]: crate::world::World

mod admission;
mod admit;
mod containers;
mod node;
mod pod;
mod report;
mod shutdown;
mod stand_in;
mod status;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_model::NODE_LEASES;
use stead_model::fork::Sorted;

use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey};
use crate::pods::node_of;
use crate::settings::KubeletForm;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use crate::workload::Workload;
use node::NodeRun;
use pod::PodRun;
use stand_in::StandIn;

/// A pod: its key and its UID. Two pods of one name can run at the same time, on two machines.
type PodId = (SimKey, Arc<str>);

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kubelet {
    pods: Sorted<PodId, Arc<PodRun>>,
    stand_ins: Sorted<PodId, StandIn>,
    nodes: Sorted<Arc<str>, Arc<NodeRun>>,
    /// The pods that wait for a claim, by claim.
    waiting: Sorted<SimKey, Arc<BTreeSet<SimKey>>>,
    /// How the workloads behaved when they were last looked at.
    workloads: Vec<(SimKey, Workload)>,
    /// The number of addresses that pods have had.
    addresses: u32,
    follow_up: Vec<(Item, Option<SignedDuration>)>,
}

/// What a step of a kubelet gives.
#[derive(Default)]
struct Out {
    writes: Vec<Write>,
    next: Option<Timestamp>,
}

impl Out {
    fn event(&mut self, cx: &Context<'_>, note: EventNote) {
        if cx.settings.kubelet.events {
            self.writes.push(Write::Event(note));
        }
    }

    /// Look again at a time, if not earlier.
    fn look_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn step(self, now: Timestamp) -> Step {
        Step::writes(self.writes).and_again(self.next.map(|at| at.duration_since(now)))
    }
}

fn id_of(pod: &Pod) -> PodId {
    let key = SimKey::of(ObjectKind::Pod, &pod.metadata);
    (key, pod.metadata.uid.as_deref().unwrap_or_default().into())
}

impl Controller for Kubelet {
    const COMPONENT: &'static str = "kubelet";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Pod => {
                let (before, after) = change.of::<Pod>();
                let Some(node) = after.or(before).and_then(|pod| node_of(pod)) else { return };
                let Some(machine) = cx.world.machine(node) else { return };
                if machine.is_connected(cx.now) {
                    match cx.settings.kubelet.form {
                        KubeletForm::Kubernetes => self.pod_changed(cx, change, wakes),
                        KubeletForm::StandIn => self.stand_in_changed(cx, change, wakes),
                    }
                } else if cx.settings.kubelet.form == KubeletForm::StandIn {
                    // The stand-ins watch pods whether their node is reachable or not.
                    self.stand_in_changed(cx, change, wakes);
                }
            }
            ObjectKind::Node => self.node_changed(cx, change, wakes),
            ObjectKind::PersistentVolumeClaim if change.after.is_some() => {
                let waiting = self.waiting.get(&change.key);
                waiting.into_iter().flat_map(|pods| pods.iter()).for_each(|pod| wakes.now(pod.clone()));
            }
            ObjectKind::Lease if &*change.key.namespace == NODE_LEASES && change.after.is_none() => {
                wakes.now(SimKey::node(&change.key.name));
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let mut out = Out::default();
        match item {
            Item::Pass => self.world_changed(cx, &mut out),
            Item::Object(key) if key.kind == ObjectKind::Node => self.node_step(cx, key, &mut out),
            Item::Object(key) => match cx.settings.kubelet.form {
                KubeletForm::Kubernetes => self.pod_step(cx, key, &mut out),
                KubeletForm::StandIn => self.stand_in_step(cx, key, &mut out),
            },
        }
        out.step(cx.now)
    }

    fn follow_up(&mut self) -> Vec<(Item, Option<SignedDuration>)> {
        std::mem::take(&mut self.follow_up)
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        self.workloads = cx.world.workloads().map(|(key, workload)| (key.clone(), workload.clone())).collect();
        cx.world.take_machine_changes();
        let machines: Vec<Arc<str>> = cx.world.machines().map(|(name, _)| Arc::clone(name)).collect();
        for name in machines {
            self.resume_node(cx, &name);
            wakes.now(SimKey::node(&name));
            for key in cx.store.pods_on(&name) {
                let Some(pod) = cx.store.at::<Pod>(key).cloned() else { continue };
                match cx.settings.kubelet.form {
                    KubeletForm::Kubernetes => self.resume_pod(cx, &name, &pod),
                    KubeletForm::StandIn => self.resume_stand_in(cx, &name, &pod),
                }
                wakes.now(key.clone());
            }
        }
    }
}

impl Kubelet {
    /// Look at an item from a step about another one.
    fn wake(&mut self, item: impl Into<Item>, after: SignedDuration) {
        self.follow_up.push((item.into(), Some(after)));
    }

    /// An address that no pod has had.
    fn new_address(&mut self) -> String {
        let n = self.addresses;
        self.addresses += 1;
        format!("10.{}.{}.{}", 2 + n / 62_500, n / 250 % 250, n % 250 + 1)
    }

    /// The address of a node.
    fn host_address(cx: &Context<'_>, node: &str) -> String {
        let status = cx.store.get::<Node>("", node).and_then(|node| node.status.as_ref());
        let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let internal = addresses.iter().find(|address| address.type_ == "InternalIP");
        let own = || cx.world.machine_spec(node).and_then(|spec| spec.address.clone()).unwrap_or_default();
        internal.map_or_else(own, |address| address.address.clone())
    }
}

#[cfg(test)]
mod tests;
