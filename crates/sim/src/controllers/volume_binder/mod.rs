//! The PersistentVolume controller (`pkg/controller/volume/persistentvolume`): binds claims to volumes, asks provisioners
//! for new volumes, and releases the volumes of deleted claims.
//!
//! It has a queue of claims (`claims.rs`) and one of volumes (`release.rs`), and looks at all of them again every 15
//! seconds. Here only those that can change then are looked at again: pending claims, whose events are repeated, and
//! objects that a change concerns although the change of another object does not wake them.

mod binding;
mod claims;
mod index;
mod matching;
mod release;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};

use self::index::VolumeIndex;
use crate::loop_grid::LoopGrid;
use crate::object::{ObjectKind, SimKey};
use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;
use crate::volumes::{annotation, volume_name};

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeBinder {
    resync: LoopGrid,
    index: VolumeIndex,
    /// New claims that no pod used when they were created. The controller sees a claim before whoever created it creates
    /// the next object.
    unused: BTreeSet<SimKey>,
}

/// The key of the claim that a volume refers to.
fn claim_of_reference(reference: &ObjectReference) -> SimKey {
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    SimKey::new(ObjectKind::PersistentVolumeClaim, namespace, reference.name.as_deref().unwrap_or_default())
}

fn volume_key(name: &str) -> SimKey {
    SimKey::new(ObjectKind::PersistentVolume, "", name)
}

fn claim_reference(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The UID of the claim in a reference; none if it is not bound yet.
fn bound_uid(reference: &ObjectReference) -> Option<&str> {
    reference.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// Whether a volume and a claim are bound to each other and say so: nothing is left to do.
fn are_bound(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let phases = [
        volume.status.as_ref().and_then(|status| status.phase.as_deref()),
        claim.status.as_ref().and_then(|status| status.phase.as_deref()),
    ];
    let spec = volume.spec.as_ref();
    phases == [Some("Bound"); 2]
        && claim_reference(volume).is_some_and(|reference| bound_uid(reference) == claim.metadata.uid.as_deref())
        && volume_name(claim) == volume.metadata.name.as_deref()
        && annotation(&claim.metadata, binding::BIND_COMPLETED).is_some()
        && claim.status.as_ref().and_then(|status| status.access_modes.as_ref())
            == spec.and_then(|spec| spec.access_modes.as_ref())
}

impl VolumeBinder {
    /// How long it takes from the arrival of a change until the next resync.
    fn until_resync(&self, cx: &Context<'_>) -> SignedDuration {
        self.resync.wait(cx.now, cx.settings.timers.reaction, cx.settings.timers.volume_resync)
    }

    /// How long it takes from a step until the next resync; none without resyncs.
    fn next_resync(&self, cx: &Context<'_>) -> Option<SignedDuration> {
        let period = cx.settings.timers.volume_resync;
        (period > SignedDuration::ZERO).then(|| self.resync.after(cx.now, period).duration_since(cx.now))
    }

    fn claim_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<PersistentVolumeClaim>();
        let volume = |claim: Option<&std::sync::Arc<PersistentVolumeClaim>>| {
            claim.and_then(|claim| volume_name(claim)).map(str::to_owned)
        };
        let (old, new) = (volume(before), volume(after));
        match after {
            Some(claim) => {
                if before.is_none() && cx.store.pods_using(&change.key.namespace, &change.key.name).next().is_none() {
                    self.unused.insert(change.key.clone());
                }
                let volume = new.as_deref().and_then(|name| cx.store.get::<PersistentVolume>("", name));
                if !volume.is_some_and(|volume| are_bound(volume, claim)) {
                    wakes.now(change.key.clone());
                }
            }
            None => {
                self.unused.remove(&change.key);
                if let Some(volume) = &old {
                    wakes.now(volume_key(volume));
                }
            }
        }
        if after.is_none() || old != new {
            // Volumes that refer to this claim, but that it is not bound to.
            let bound = if after.is_some() { &new } else { &old };
            let other = self.index.of_claim(&change.key).filter(|name| bound.as_deref() != Some(name));
            let wait = self.until_resync(cx);
            other.for_each(|name| wakes.after(volume_key(name), wait));
        }
    }

    fn volume_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<PersistentVolume>();
        self.index.update(before.map(|volume| &**volume), after.map(|volume| &**volume));
        let old = before.and_then(|volume| claim_reference(volume));
        let Some(volume) = after else {
            if let Some(reference) = old {
                wakes.now(claim_of_reference(reference));
            }
            return;
        };
        let new = claim_reference(volume);
        let claim = new.and_then(|reference| cx.store.at::<PersistentVolumeClaim>(&claim_of_reference(reference)));
        if !claim.is_some_and(|claim| are_bound(volume, claim)) {
            wakes.now(change.key.clone());
        }
        if let Some(reference) = old.filter(|old| Some(*old) != new) {
            wakes.after(claim_of_reference(reference), self.until_resync(cx));
        }
        // A new volume for a claim: the worker of volumes puts the claim into its queue.
        if let Some(reference) = new.filter(|reference| bound_uid(reference).is_some()) {
            let waits = claim.is_some_and(|claim| {
                let same = claim.metadata.uid.as_deref() == bound_uid(reference);
                same && volume_name(claim).is_none() && !matching::modes_differ(claim, volume)
            });
            if waits {
                wakes.after(claim_of_reference(reference), cx.settings.timers.reaction);
            }
        }
    }
}

impl Controller for VolumeBinder {
    const COMPONENT: &'static str = "persistentvolume-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        self.resync.start(cx.now);
        match change.key.kind {
            ObjectKind::PersistentVolumeClaim => self.claim_changed(cx, change, wakes),
            ObjectKind::PersistentVolume => self.volume_changed(cx, change, wakes),
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let store = cx.store;
        match key.kind {
            ObjectKind::PersistentVolumeClaim => match store.at::<PersistentVolumeClaim>(key) {
                Some(claim) => self.sync_claim(cx, key, claim),
                None => Step::none(),
            },
            ObjectKind::PersistentVolume => match store.at::<PersistentVolume>(key) {
                Some(volume) => self.sync_volume(cx, key, volume),
                None => Step::none(),
            },
            _ => Step::none(),
        }
    }
}
