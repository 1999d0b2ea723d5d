//! Follows the simulation: notes what changed and by whom, and checks what must hold at every moment.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_sim::{Change, ControllerId, Happening, MachineState, ObjectKind};

use super::checks::has_ended;
use super::cluster::{NODES, node_name};
use super::run::{Actor, OUT_OF_SERVICE, Ready, Run};

impl Run {
    /// Takes in what an actor has just changed.
    pub(crate) fn follow(&mut self, actor: Actor) {
        for (_, happening) in self.simulation.take_journal() {
            let Happening::Changed(change) = happening else { continue };
            self.read.note_change(&change.key);
            match change.key.kind {
                ObjectKind::Pod => self.pod_changed(&change, actor),
                ObjectKind::Node => self.node_changed(&change, actor),
                ObjectKind::VolumeAttachment if change.after.is_none() => self.volume_detached(&change),
                _ => {}
            }
        }
        for n in 0..NODES {
            let silent = matches!(self.state(n), MachineState::Suspended | MachineState::Off);
            self.nodes[n].reported &= !silent;
        }
        self.check_writers();
    }

    fn pod_changed(&mut self, change: &Change, actor: Actor) {
        let (before, after) = change.of::<Pod>();
        let name = &change.key.name;
        let pod = after.or(before).expect("a change has an object");
        let uid = pod.metadata.uid.clone().unwrap();
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let turn = self.turn;
        let facts = self.pods.entry(uid.clone()).or_default();
        match (before, after) {
            (None, _) => self.trace(|| format!("{name} is created as {uid}")),
            (Some(_), None) => self.trace(|| format!("{actor:?} removes {name}, {uid}, from {:?}", node(pod))),
            (Some(before), Some(after)) => {
                if node(before) != node(after) {
                    facts.touched = turn;
                    self.trace(|| format!("{name}, {uid}, is bound to {:?}", node(after)));
                } else if actor == Actor::Stead {
                    facts.patched = turn;
                }
                if before.metadata.deletion_timestamp.is_none() && after.metadata.deletion_timestamp.is_some() {
                    if matches!(actor, Actor::Other(_)) {
                        self.pods.entry(uid.clone()).or_default().touched = turn;
                    }
                    self.trace(|| format!("{actor:?} deletes {name}, {uid}, on {:?}", node(after)));
                }
            }
        }
        // A pod kept by a finalizer is only an object: it has failed, and needs no volume.
        let collected = before.is_some_and(|pod| !has_ended(pod)) && after.is_none_or(|pod| has_ended(pod));
        let node = node(pod).and_then(|node| (0..NODES).find(|n| node == node_name(*n)));
        if let Some(n) = node.filter(|_| collected && actor == Actor::Kubernetes(ControllerId::PodGc)) {
            // Otherwise the Node is gone.
            if self.has(n, OUT_OF_SERVICE) && self.ready(n) != Ready::True {
                self.pod_collected(&uid, n);
            }
        }
    }

    fn pod_collected(&mut self, uid: &str, n: usize) {
        self.trace(|| format!("the pod garbage collector takes {uid} from n{n}"));
        let facts = self.pods.get(uid).cloned().unwrap_or_default();
        let foreign = self.nodes[n].fence.as_ref().is_some_and(|fence| !fence.ours);
        if foreign && !facts.deleted_by_recoverer && !self.is_in_recovery(n) {
            self.removed_by_others.insert(uid.to_owned());
        }
        self.check_pod_collection(uid, n, facts.touched);
    }

    fn node_changed(&mut self, change: &Change, actor: Actor) {
        let Some(n) = (0..NODES).find(|n| *change.key.name == *node_name(*n)) else { return };
        let (before, after) = change.of::<Node>();
        let facts = &mut self.nodes[n];
        if after.is_none() {
            facts.foreign = BTreeSet::new();
            (facts.fence, facts.shut_down) = (None, None);
        }
        let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let (old, new) = (before.map(|node| taints(node)), after.map(|node| taints(node)));
        if old != new {
            let manager = match actor {
                Actor::Kubernetes(_) => "kube-controller-manager",
                Actor::Stead => "stead",
                Actor::Other(name) => name,
            };
            facts.taints_by = (manager, self.simulation.now());
        }
        let kept = |key: &&str| new.iter().flatten().any(|taint| taint.key == **key);
        if let Some(lost) = facts.foreign.iter().find(|key| !kept(key)).copied() {
            self.violate(format!("the taint {lost} of another owner was removed from n{n}"));
        }
    }

    fn volume_detached(&mut self, change: &Change) {
        let Some(attachment) = change.of::<VolumeAttachment>().0 else { return };
        let volume = attachment.spec.source.persistent_volume_name.clone().unwrap_or_default();
        let Some(n) = (0..NODES).find(|n| attachment.spec.node_name == node_name(*n)) else { return };
        self.trace(|| format!("volume {volume} is detached from n{n}"));
        self.check_detach(&volume, n);
    }

    /// The world has seen two writers since the last look.
    fn check_writers(&mut self) {
        let moments = self.simulation.world().violations();
        let new: Vec<_> = moments[self.moments_seen..].to_vec();
        self.moments_seen = moments.len();
        for moment in new {
            let world = self.simulation.world();
            let writers = world.writers(&moment.volume);
            let is_writer = |process: &stead_sim::Process| {
                process.volumes.contains(&moment.volume)
                    && writers.get(&process.node).is_some_and(|pods| pods.contains(&process.pod))
            };
            let processes = world.processes().filter(|(_, process)| is_writer(process));
            // A false statement of others is not the fault of a recovery.
            let blamed = processes.filter(|(uid, _)| !self.removed_by_others.contains(&***uid));
            let nodes: BTreeSet<_> = blamed.map(|(_, process)| process.node.clone()).collect();
            if nodes.len() > 1 {
                self.violate(moment.to_string());
            }
        }
    }
}
