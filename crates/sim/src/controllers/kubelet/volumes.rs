//! The volumes of pods: a kubelet reports an attachable volume as in use, waits until it is attached, and mounts it.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod, Volume};
use stead_model::claim_of;

use super::{Kubelet, PodId};
use crate::object::{ObjectKind, SimKey};
use crate::step::Context;
use crate::volumes::{BoundVolume, UnusableClaim, bound_volumes};

/// Whether the volumes of a pod are mounted.
pub(super) enum Mounts {
    /// They are. These PersistentVolumes can be written to.
    Done(Vec<Arc<str>>),
    /// A claim cannot be used yet.
    NoClaim(UnusableClaim),
    /// The node has not reported a volume as in use yet, or it is not attached yet.
    NotAttached,
}

impl Kubelet {
    /// Mounts the volumes of a pod as far as it is possible. The pod is looked at again when more is.
    pub(super) fn mount(&mut self, cx: &Context<'_>, id: &PodId, node: &Arc<str>, pod: &Pod) -> Mounts {
        let volumes = match bound_volumes(cx.store, pod) {
            Ok(volumes) => volumes,
            Err(unusable) => {
                let (UnusableClaim::NotFound(claim) | UnusableClaim::Unbound(claim)) = &unusable;
                let claim = SimKey::new(ObjectKind::PersistentVolumeClaim, &id.0.namespace, claim);
                let mut pods = self.waiting.remove(|key| key.cmp(&claim)).unwrap_or_default();
                Arc::make_mut(&mut pods).insert(id.0.clone());
                self.waiting.insert(claim, pods);
                return Mounts::NoClaim(unusable);
            }
        };
        self.forget_claims(&id.0, pod);
        let names: Vec<&String> =
            volumes.iter().filter(|volume| volume.needs_attach).filter_map(|volume| volume.unique_name.as_ref()).collect();
        if !names.is_empty() {
            self.use_volumes(node, &id.1, &names);
            if !is_attached(cx, node, &names) || !has_disks(cx, node, &volumes) {
                self.change_node(node, |run| run.waiting.insert(id.0.clone()));
                return Mounts::NotAttached;
            }
            self.change_node(node, |run| run.waiting.remove(&id.0));
        }
        Mounts::Done(writable(&volumes))
    }

    /// Takes over the volumes of a pod that runs already.
    pub(super) fn take_over_volumes(&mut self, cx: &Context<'_>, id: &PodId, node: &Arc<str>, pod: &Pod) -> Vec<Arc<str>> {
        let volumes = bound_volumes(cx.store, pod).unwrap_or_default();
        let attachable = volumes.iter().filter(|volume| volume.needs_attach);
        let names: Vec<&String> = attachable.filter_map(|volume| volume.unique_name.as_ref()).collect();
        if !names.is_empty() {
            self.use_volumes(node, &id.1, &names);
        }
        writable(&volumes)
    }

    fn use_volumes(&mut self, node: &Arc<str>, uid: &Arc<str>, names: &[&String]) {
        let added = self.change_node(node, |run| {
            let before = run.in_use.len();
            for name in names {
                run.in_use.entry((*name).clone()).or_default().insert(Arc::clone(uid));
            }
            run.in_use.len() > before
        });
        if added {
            self.wake(SimKey::node(node), SignedDuration::ZERO);
        }
    }

    /// The pod has no mounts any more.
    pub(super) fn release_volumes(&mut self, node: &Arc<str>, id: &PodId, pod: &Pod) {
        self.forget_claims(&id.0, pod);
        let users = self.node_run(node).is_some_and(|run| !run.in_use.is_empty() || !run.waiting.is_empty());
        if !users {
            return;
        }
        let released = self.change_node(node, |run| {
            run.waiting.remove(&id.0);
            let before = run.in_use.len();
            run.in_use.retain(|_, users| {
                users.remove(&id.1);
                !users.is_empty()
            });
            run.in_use.len() < before
        });
        if released {
            self.wake(SimKey::node(node), SignedDuration::ZERO);
        }
    }

    /// The pod waits for no claim any more.
    fn forget_claims(&mut self, key: &SimKey, pod: &Pod) {
        if self.waiting.is_empty() {
            return;
        }
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some((claim, _)) = claim_of(volume, &key.name) else { continue };
            let claim = SimKey::new(ObjectKind::PersistentVolumeClaim, &key.namespace, &claim);
            let Some(mut pods) = self.waiting.remove(|other| other.cmp(&claim)) else { continue };
            Arc::make_mut(&mut pods).remove(key);
            if !pods.is_empty() {
                self.waiting.insert(claim, pods);
            }
        }
    }
}

/// Whether the Node shows volumes as in use and as attached.
fn is_attached(cx: &Context<'_>, node: &str, names: &[&String]) -> bool {
    let Some(status) = cx.store.get::<Node>("", node).and_then(|node| node.status.as_ref()) else { return false };
    let in_use = status.volumes_in_use.as_deref().unwrap_or_default();
    let attached = status.volumes_attached.as_deref().unwrap_or_default();
    names.iter().all(|name| in_use.contains(name) && attached.iter().any(|volume| volume.name == **name))
}

/// Whether the storage has really attached the disks.
fn has_disks(cx: &Context<'_>, node: &str, volumes: &[BoundVolume]) -> bool {
    let missing = |volume: &&BoundVolume| {
        let disk = cx.world.disk(volume.name());
        disk.is_some_and(|disk| disk.needs_attach && !disk.attached_to.contains(node))
    };
    !volumes.iter().any(|volume| missing(&volume))
}

fn writable(volumes: &[BoundVolume]) -> Vec<Arc<str>> {
    volumes.iter().filter(|volume| !volume.read_only).map(|volume| volume.name().into()).collect()
}

/// The message of an event about a claim that a pod needs.
pub(super) fn unusable_claim_message(pod: &Pod, unusable: &UnusableClaim) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (claim, problem) = match unusable {
        UnusableClaim::NotFound(claim) => {
            let missing = format!("persistentvolumeclaims \"{claim}\" not found");
            (claim, format!("failed to fetch PVC from API server: {missing}"))
        }
        UnusableClaim::Unbound(claim) => (claim, "PVC is not bound".to_owned()),
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let uses = |volume: &&Volume| claim_of(volume, name).is_some_and(|(used, _)| used == *claim);
    let names: Vec<&str> = volumes.filter(uses).map(|volume| volume.name.as_str()).collect();
    let names = names.join(" ");
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached volumes=[], failed to process \
         volumes=[{names}]: error processing PVC {namespace}/{claim}: {problem}"
    )
}
