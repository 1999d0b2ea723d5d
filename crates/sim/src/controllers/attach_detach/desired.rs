//! Which volumes pods need on which nodes (`util.ProcessPodVolumes` and the populator).

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use stead_model::{claim_of, unique_volume_name};

use super::AttachDetach;
use super::state::{Desired, VolumeSpec};
use crate::object::SimKey;
use crate::pods;
use crate::step::{Context, Wakes};
use crate::store::{Change, Store};
use crate::volumes::{claim_keys, is_ephemeral_claim_of, is_pod_terminated, needs_attach, volume_name};

/// The attachable volumes of a pod that can be found now: bound in both directions, and a generic ephemeral one created
/// for this very pod.
fn attachable_volumes(store: &Store, pod: &Pod) -> Vec<(Arc<str>, VolumeSpec)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let resolve = |volume| {
        let (claim, _) = claim_of(volume, name)?;
        let claim = store.get::<PersistentVolumeClaim>(namespace, &claim)?;
        let bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
        if !bound || (volume.persistent_volume_claim.is_none() && !is_ephemeral_claim_of(claim, pod)) {
            return None;
        }
        let volume = store.get::<PersistentVolume>("", volume_name(claim)?)?;
        let owner = volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref();
        if owner != claim.metadata.uid.as_deref() || !needs_attach(store, volume) {
            return None;
        }
        Some((Arc::from(unique_volume_name(volume)?), VolumeSpec::of(volume)))
    };
    volumes.iter().filter_map(resolve).collect()
}

fn uid(pod: &Pod) -> Arc<str> {
    pod.metadata.uid.as_deref().unwrap_or_default().into()
}

impl AttachDetach {
    pub(super) fn pod_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        let Some(pod) = after.or(before) else { return };
        if claim_keys(pod).next().is_none() || pods::node_of(pod).is_none() {
            return;
        }
        let needed = after.is_some() && !is_pod_terminated(pod);
        let was_needed = before.is_some_and(|before| {
            before.metadata.uid == pod.metadata.uid && pods::node_of(before).is_some() && !is_pod_terminated(before)
        });
        if needed && !was_needed {
            let at = self.first_loop(cx);
            self.pod_needs_volumes(cx, pod, at, wakes);
        } else if !needed && (was_needed || after.is_none()) {
            self.pod_is_done(cx, pod, wakes);
        }
    }

    /// A claim that was bound just now: the pods that wait for it need its volume.
    pub(super) fn claim_changed(
        &mut self,
        cx: &Context<'_>,
        before: Option<&Arc<PersistentVolumeClaim>>,
        after: Option<&Arc<PersistentVolumeClaim>>,
        wakes: &mut Wakes,
    ) {
        let bound = |claim: &Arc<PersistentVolumeClaim>| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            volume_name(claim).filter(|_| phase == Some("Bound")).map(str::to_owned)
        };
        let Some(claim) = after.filter(|after| bound(after).is_some() && before.and_then(bound) != bound(after)) else {
            return;
        };
        let at = self.first_loop(cx);
        self.claim_users_need_volumes(cx, &SimKey::of(crate::ObjectKind::PersistentVolumeClaim, &claim.metadata), at, wakes);
    }

    /// A volume that refers to another claim than before. Pods that wait for it are found by the populator.
    pub(super) fn volume_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<PersistentVolume>();
        let reference = |volume: &Arc<PersistentVolume>| volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let Some(reference) = after.and_then(reference).filter(|new| before.and_then(reference).as_ref() != Some(new))
        else {
            return;
        };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let name = reference.name.as_deref().unwrap_or_default();
        let key = SimKey::new(crate::ObjectKind::PersistentVolumeClaim, namespace, name);
        let at = self.next_populator(cx, true);
        self.claim_users_need_volumes(cx, &key, at, wakes);
    }

    fn claim_users_need_volumes(&mut self, cx: &Context<'_>, claim: &SimKey, at: Timestamp, wakes: &mut Wakes) {
        let users: Vec<SimKey> = cx.store.pods_using(&claim.namespace, &claim.name).cloned().collect();
        for pod in users.iter().filter_map(|key| cx.store.at::<Pod>(key)) {
            self.pod_needs_volumes(cx, pod, at, wakes);
        }
    }

    /// Adds the volumes of a scheduled pod, to be looked at from a time on.
    pub(super) fn pod_needs_volumes(&mut self, cx: &Context<'_>, pod: &Pod, at: Timestamp, wakes: &mut Wakes) {
        let Some(node) = pods::node_of(pod).filter(|_| !is_pod_terminated(pod)) else { return };
        if !self.state.node(node).is_some_and(|node| node.managed) {
            return;
        }
        let node: Arc<str> = node.into();
        for (unique, spec) in attachable_volumes(cx.store, pod) {
            let is_new = self.state.with_volume(&unique, |volume| {
                let desired = volume.desired.entry(Arc::clone(&node));
                let desired = desired.or_insert_with(|| Desired { spec, reported: false, pods: Default::default() });
                let is_new = desired.pods.insert(uid(pod), key_of(pod)).is_none();
                if is_new {
                    volume.reconcile(at);
                }
                is_new
            });
            if is_new {
                self.state.with_node(&node, |node| node.desired.insert(Arc::clone(&unique)));
                self.wake(cx, &unique, wakes);
            }
        }
    }

    /// Removes the volumes of a pod. Those that cannot be found any more are removed by the populator.
    fn pod_is_done(&mut self, cx: &Context<'_>, pod: &Pod, wakes: &mut Wakes) {
        let Some(node) = pods::node_of(pod).map(Arc::<str>::from) else { return };
        let uid = uid(pod);
        let found: Vec<Arc<str>> = attachable_volumes(cx.store, pod).into_iter().map(|(unique, _)| unique).collect();
        let (now, later) = (self.first_loop(cx), self.next_populator(cx, false));
        for unique in &found {
            self.forget_pod(unique, &node, &uid, now);
            self.wake(cx, unique, wakes);
        }
        let wanted = self.state.node(&node).map(|node| node.desired.clone()).unwrap_or_default();
        for unique in wanted.iter().filter(|unique| !found.contains(unique)) {
            let desired = self.state.volume(unique).and_then(|volume| volume.desired.get(&node));
            if desired.is_some_and(|desired| desired.pods.contains_key(&uid)) {
                let stale = (Arc::clone(&node), Arc::clone(&uid), later);
                self.state.with_volume(unique, |volume| volume.stale.push(stale));
                self.wake(cx, unique, wakes);
            }
        }
    }

    /// A pod does not need a volume any more.
    pub(super) fn forget_pod(&mut self, unique: &Arc<str>, node: &Arc<str>, uid: &str, at: Timestamp) {
        if self.state.volume(unique).is_none() {
            return;
        }
        let is_last = self.state.with_volume(unique, |volume| {
            let Some(desired) = volume.desired.get_mut(node) else { return false };
            desired.pods.remove(uid);
            let is_last = desired.pods.is_empty();
            if is_last {
                volume.desired.remove(node);
                volume.reconcile(at);
            }
            is_last
        });
        if is_last {
            self.state.with_node(node, |node| node.desired.remove(unique));
        }
    }
}

fn key_of(pod: &Pod) -> SimKey {
    SimKey::of(crate::ObjectKind::Pod, &pod.metadata)
}
