//! Which volume fits a claim (`index.go`, and `FindMatchingVolume` of `k8s.io/component-helpers`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use stead_semantics::{Quantity, Selector};

use super::{VolumeBinder, bound_uid, claim_of_reference, claim_reference};
use crate::choices::Question;
use crate::object::SimKey;
use crate::step::Context;
use crate::volumes::{class_of_claim, class_of_volume};

/// The amount of storage in a list of resources; zero if it is not there.
fn storage(resources: Option<&BTreeMap<String, RawQuantity>>) -> Quantity {
    let amount = resources.and_then(|resources| resources.get("storage"));
    let zero = || Quantity::from_value(0, stead_semantics::Format::BinarySI);
    amount.and_then(|amount| Quantity::parse(&amount.0).ok()).unwrap_or_else(zero)
}

/// The amount of storage that a claim asks for.
fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    storage(resources.and_then(|resources| resources.requests.as_ref()))
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
}

/// Whether one is a file system and the other a block device (`CheckVolumeModeMismatches`).
pub(super) fn modes_differ(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let given = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    asked.unwrap_or("Filesystem") != given.unwrap_or("Filesystem")
}

/// Whether the VolumeAttributesClasses differ. The field exists from 1.34 on.
fn attributes_differ(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let given = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    asked.unwrap_or_default() != given.unwrap_or_default()
}

fn access_modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

fn has_access_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let asked = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    asked.iter().all(|mode| access_modes(volume).contains(mode))
}

/// Whether a volume is reserved for, or bound to, a claim (`IsVolumeBoundToClaim`).
pub(super) fn is_bound_to(reference: &ObjectReference, key: &SimKey, claim: &PersistentVolumeClaim) -> bool {
    let same = bound_uid(reference).is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid));
    same && claim_of_reference(reference) == *key
}

/// Why a volume that a claim names does not fit it (`checkVolumeSatisfyClaim`).
pub(super) fn mismatch(cx: &Context<'_>, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        Some(format!("the volume is marked for deletion \"{name}\""))
    } else if capacity(volume).value() < requested(claim).value() {
        Some("requested PV is too small".into())
    } else if class_of_volume(volume) != class_of_claim(claim) {
        Some("storageClassName does not match".into())
    } else if cx.settings.since(34) && attributes_differ(claim, volume) {
        Some("volumeAttributesClassName does not match".into())
    } else if modes_differ(claim, volume) {
        Some("incompatible volumeMode".into())
    } else if !has_access_modes(claim, volume) {
        Some("incompatible accessMode".into())
    } else {
        None
    }
}

impl VolumeBinder {
    /// The volume for a claim: one that is reserved for it, or else the smallest that fits. Volumes with fewer access
    /// modes come first. A claim that waits for its first consumer gets only a reserved one.
    pub(super) fn best_match<'a>(
        &self,
        cx: &mut Context<'a>,
        key: &SimKey,
        claim: &PersistentVolumeClaim,
        delayed: bool,
    ) -> Option<&'a Arc<PersistentVolume>> {
        let store = cx.store;
        let class = class_of_claim(claim);
        let names = self.index.of_claim(key).chain(self.index.unclaimed(class));
        let mut groups: BTreeMap<(usize, Vec<&str>), Vec<&'a Arc<PersistentVolume>>> = BTreeMap::new();
        for volume in names.filter_map(|name| store.get::<PersistentVolume>("", name)) {
            if has_access_modes(claim, volume) {
                let mut modes: Vec<&str> = access_modes(volume).iter().map(String::as_str).collect();
                modes.sort_unstable();
                modes.dedup();
                groups.entry((modes.len(), modes)).or_default().push(volume);
            }
        }
        let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = selector.map(|selector| Selector::from_label_selector(Some(selector)));
        if matches!(selector, Some(Err(_))) {
            return None;
        }
        let selector = selector.and_then(Result::ok);
        let wanted = requested(claim);
        groups.into_values().find_map(|group| {
            let mut smallest: Vec<&'a Arc<PersistentVolume>> = Vec::new();
            for volume in group {
                let size = capacity(volume);
                let unfit = size < wanted
                    || modes_differ(claim, volume)
                    || (cx.settings.since(34) && attributes_differ(claim, volume))
                    || volume.metadata.deletion_timestamp.is_some();
                match claim_reference(volume) {
                    _ if unfit => continue,
                    Some(reference) if is_bound_to(reference, key, claim) => return Some(volume),
                    Some(_) => continue,
                    None if delayed => continue,
                    None => {}
                }
                let available = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
                let labels = volume.metadata.labels.clone().unwrap_or_default();
                if !available || selector.as_ref().is_some_and(|selector| !selector.matches(&labels)) {
                    continue;
                }
                match smallest.first().map(|other| size.cmp(&capacity(other))) {
                    Some(std::cmp::Ordering::Greater) => {}
                    Some(std::cmp::Ordering::Equal) => smallest.push(volume),
                    Some(std::cmp::Ordering::Less) | None => smallest = vec![volume],
                }
            }
            // Kubernetes takes the first of a map in no particular order.
            let names: Vec<&str> =
                smallest.iter().map(|volume| volume.metadata.name.as_deref().unwrap_or_default()).collect();
            let question = || Question::Volume { claim: format!("{}/{}", key.namespace, key.name) };
            (!names.is_empty()).then(|| smallest[cx.choices.pick(question(), &names)])
        })
    }
}
