//! Which volumes a claim can be bound to, without a look at all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use stead_model::fork::Sorted;

use super::{claim_of_reference, claim_reference};
use crate::object::SimKey;
use crate::volumes::class_of_volume;

/// The names of volumes, by what a claim looks for.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeIndex {
    /// Class and name of the volumes that no claim has.
    unclaimed: Sorted<(Arc<str>, Arc<str>), ()>,
    /// The volumes that refer to a claim.
    of_claim: Sorted<SimKey, Arc<BTreeSet<Arc<str>>>>,
}

/// Where a volume is in the index.
#[derive(PartialEq)]
enum Place {
    Unclaimed(Arc<str>),
    OfClaim(SimKey),
}

fn place(volume: &PersistentVolume) -> Place {
    match claim_reference(volume) {
        Some(reference) => Place::OfClaim(claim_of_reference(reference)),
        None => Place::Unclaimed(class_of_volume(volume).into()),
    }
}

impl VolumeIndex {
    /// The volumes of a class that no claim has.
    pub(super) fn unclaimed<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a str> {
        let first = move |key: &(Arc<str>, Arc<str>)| (*key.0).cmp(class).then(std::cmp::Ordering::Greater);
        self.unclaimed.iter_from(first).take_while(move |((of, _), ())| **of == *class).map(|((_, name), ())| &**name)
    }

    /// The volumes that refer to a claim.
    pub(super) fn of_claim(&self, claim: &SimKey) -> impl Iterator<Item = &str> {
        self.of_claim.get(claim).into_iter().flat_map(|names| names.iter().map(|name| &**name))
    }

    /// Follows the change of a volume.
    pub(super) fn update(&mut self, before: Option<&PersistentVolume>, after: Option<&PersistentVolume>) {
        let (old, new) = (before.map(place), after.map(place));
        if old == new {
            return;
        }
        let name: Arc<str> =
            before.or(after).and_then(|volume| volume.metadata.name.as_deref()).unwrap_or_default().into();
        match old {
            Some(Place::Unclaimed(class)) => {
                self.unclaimed.remove(|(of, other)| of.cmp(&class).then_with(|| other.cmp(&name)));
            }
            Some(Place::OfClaim(claim)) => {
                if let Some(mut names) = self.of_claim.remove(|key| key.cmp(&claim)) {
                    Arc::make_mut(&mut names).remove(&name);
                    if !names.is_empty() {
                        self.of_claim.insert(claim, names);
                    }
                }
            }
            None => {}
        }
        match new {
            Some(Place::Unclaimed(class)) => {
                self.unclaimed.insert((class, name), ());
            }
            Some(Place::OfClaim(claim)) => {
                let mut names = self.of_claim.remove(|key| key.cmp(&claim)).unwrap_or_default();
                Arc::make_mut(&mut names).insert(name);
                self.of_claim.insert(claim, names);
            }
            None => {}
        }
    }
}
