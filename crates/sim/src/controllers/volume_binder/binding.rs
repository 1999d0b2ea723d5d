//! The writes that bind a volume and a claim to each other, in Kubernetes' order: the volume, its phase, the claim, its
//! status.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
};

use super::matching::is_bound_to;
use super::claim_reference;
use crate::api::whole_seconds;
use crate::object::{SimKey, SimObject};
use crate::settings::Settings;
use crate::step::Write;

/// The annotation of a claim that was bound once.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a binding that the controller made, not a user.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation with the size of a volume before it was enlarged.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// The writes of one step. Each object is the result of the writes before.
#[derive(Default)]
pub(super) struct Writes(pub(super) Vec<Write>);

impl Writes {
    pub(super) fn event(&mut self, note: crate::event_log::EventNote) {
        self.0.push(Write::Event(note));
    }

    /// Writes metadata and spec.
    pub(super) fn replace(&mut self, object: impl Into<SimObject>) {
        self.0.push(Write::Replace(unversioned(object.into())));
    }

    fn status(&mut self, object: impl Into<SimObject>) {
        self.0.push(Write::Status(unversioned(object.into())));
    }

    /// Sets the phase of a volume, if it has another one. Gives whether it had.
    pub(super) fn set_phase(&mut self, volume: &mut PersistentVolume, phase: &str, message: &str, now: Timestamp) -> bool {
        let status = volume.status.get_or_insert_default();
        if status.phase.as_deref() == Some(phase) {
            return false;
        }
        status.phase = Some(phase.to_owned());
        status.message = (!message.is_empty()).then(|| message.to_owned());
        // The API server does this.
        status.last_phase_transition_time = Some(whole_seconds(now));
        self.status(volume.clone());
        true
    }

    /// Sets the status of a claim that has no volume, if it differs (`updateClaimStatus` without a volume). Gives whether
    /// the phase differed.
    pub(super) fn set_unbound(&mut self, claim: &PersistentVolumeClaim, phase: &str) -> bool {
        let mut new = claim.clone();
        let status = new.status.get_or_insert_default();
        let differs = status.phase.as_deref() != Some(phase);
        *status = PersistentVolumeClaimStatus {
            phase: Some(phase.to_owned()),
            access_modes: None,
            capacity: None,
            current_volume_attributes_class_name: None,
            ..std::mem::take(status)
        };
        if new != *claim {
            self.status(new);
        }
        differs
    }

    /// Binds a volume and a claim to each other. What is done already is not written again.
    pub(super) fn bind(
        &mut self,
        settings: &Settings,
        now: Timestamp,
        volume: &Arc<PersistentVolume>,
        key: &SimKey,
        claim: &Arc<PersistentVolumeClaim>,
    ) {
        let (mut volume, mut claim) = (PersistentVolume::clone(volume), PersistentVolumeClaim::clone(claim));
        if refer_to(&mut volume, key, &claim) {
            self.replace(volume.clone());
        }
        self.set_phase(&mut volume, "Bound", "", now);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        let mut differs = !annotations.contains_key(BIND_COMPLETED);
        annotations.entry(BIND_COMPLETED.into()).or_insert_with(|| "yes".into());
        if claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default() != name {
            differs = true;
            annotations.entry(BOUND_BY_CONTROLLER.into()).or_insert_with(|| "yes".into());
            claim.spec.get_or_insert_default().volume_name = Some(name.to_owned());
        }
        if differs {
            self.replace(claim.clone());
        }
        if set_bound_status(&mut claim, &volume, settings) {
            self.status(claim);
        }
    }

    /// Takes back a binding to a claim that is bound to another volume (`unbindVolume`).
    pub(super) fn unbind(&mut self, volume: &PersistentVolume, now: Timestamp) {
        let mut volume = volume.clone();
        let annotations = volume.metadata.annotations.get_or_insert_default();
        let ours = annotations.remove(BOUND_BY_CONTROLLER).is_some();
        if annotations.is_empty() {
            volume.metadata.annotations = None;
        }
        let spec = volume.spec.get_or_insert_default();
        if ours {
            spec.claim_ref = None;
        } else if let Some(reference) = &mut spec.claim_ref {
            reference.uid = None;
        }
        self.replace(volume.clone());
        self.set_phase(&mut volume, "Available", "", now);
    }
}

fn unversioned(mut object: SimObject) -> SimObject {
    object.metadata_mut().resource_version = None;
    object
}

/// Makes a volume refer to a claim (`GetBindVolumeToClaim`). Gives whether it differs.
fn refer_to(volume: &mut PersistentVolume, key: &SimKey, claim: &PersistentVolumeClaim) -> bool {
    let reserved = claim_reference(volume).is_some_and(|reference| is_bound_to(reference, key, claim));
    let complete = claim_reference(volume).is_some_and(|reference| reserved && reference.uid == claim.metadata.uid);
    let mut differs = false;
    if !complete {
        volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            resource_version: claim.metadata.resource_version.clone(),
            ..ObjectReference::default()
        });
        differs = true;
    }
    let annotations = volume.metadata.annotations.get_or_insert_default();
    if !reserved && !annotations.contains_key(BOUND_BY_CONTROLLER) {
        annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
        differs = true;
    }
    if annotations.is_empty() {
        volume.metadata.annotations = None;
    }
    differs
}

/// Sets the status of a bound claim (`updateClaimStatus` with a volume). Gives whether it differs.
fn set_bound_status(claim: &mut PersistentVolumeClaim, volume: &PersistentVolume, settings: &Settings) -> bool {
    let spec = volume.spec.as_ref();
    let before = claim.status.clone();
    let status = claim.status.get_or_insert_default();
    status.access_modes = spec.and_then(|spec| spec.access_modes.clone());
    // A claim that is bound keeps its size: the file system may be smaller than the volume.
    if status.phase.as_deref() != Some("Bound") {
        let mut capacity = spec.and_then(|spec| spec.capacity.clone());
        let resized = volume.metadata.annotations.as_ref().and_then(|all| all.get(PRE_RESIZE_CAPACITY));
        if let Some(size) = resized {
            let size = k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.clone());
            capacity = Some(std::iter::once(("storage".to_owned(), size)).collect());
        }
        status.capacity = capacity;
        if settings.since(34) && status.phase.as_deref() == Some("Pending") {
            status.current_volume_attributes_class_name =
                spec.and_then(|spec| spec.volume_attributes_class_name.clone());
        }
        status.phase = Some("Bound".into());
    }
    claim.status != before
}
