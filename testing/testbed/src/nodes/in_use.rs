//! Which volumes a node uses, and which of them were reported to the API server.
//!
//! The attach/detach controller removes a volume from the node's `volumesAttached`, and then checks `volumesInUse`; a
//! kubelet reports the volume in `volumesInUse`, and then checks `volumesAttached`. So one of them always sees the
//! other's write. A volume that the kubelet has not reported yet is not protected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The volumes in use on all nodes.
#[derive(Default)]
pub(super) struct InUse(Mutex<BTreeMap<String, AtNode>>);

#[derive(Default)]
struct AtNode {
    /// By volume, the pods that use it.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// The volumes that the API server has as in use, and that no pending write removes.
    reported: BTreeSet<String>,
}

impl InUse {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AtNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pod's volumes. Returns whether this changes anything.
    pub(super) fn add(&self, node: &str, pod: &str, volumes: &[String]) -> bool {
        let mut all = self.all();
        let pods = &mut all.entry(node.to_owned()).or_default().pods;
        let added = volumes.iter().filter(|volume| pods.entry((*volume).clone()).or_default().insert(pod.to_owned()));
        added.count() > 0
    }

    /// Removes a pod's volumes. Returns whether a volume is no longer in use.
    pub(super) fn release(&self, node: &str, pod: &str) -> bool {
        let mut all = self.all();
        let Some(at) = all.get_mut(node) else { return false };
        let before = at.pods.len();
        at.pods.retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
        at.pods.len() < before
    }

    /// Returns the volumes to report, and whether the API server has exactly these. All others count as not reported
    /// from now on.
    pub(super) fn to_report(&self, node: &str) -> (Vec<String>, bool) {
        let mut all = self.all();
        let at = all.entry(node.to_owned()).or_default();
        let used: Vec<String> = at.pods.keys().cloned().collect();
        let known = at.reported.iter().eq(&used);
        at.reported.retain(|volume| at.pods.contains_key(volume));
        (used, known)
    }

    /// Records what the API server has.
    pub(super) fn set_reported(&self, node: &str, volumes: Vec<String>) {
        self.all().entry(node.to_owned()).or_default().reported = volumes.into_iter().collect();
    }

    /// Whether the API server has all of these as in use, and keeps them until they are released.
    pub(super) fn are_reported(&self, node: &str, volumes: &[String]) -> bool {
        self.all().get(node).is_some_and(|at| volumes.iter().all(|volume| at.reported.contains(volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_about_to_be_unreported_is_not_protected() {
        let (in_use, volume) = (InUse::default(), ["v".to_owned()]);
        assert!(in_use.add("n", "old", &volume));
        assert!(!in_use.add("n", "old", &volume), "it changes once");
        assert!(!in_use.are_reported("n", &volume), "nothing was reported");
        let (used, known) = in_use.to_report("n");
        assert!(!known);
        in_use.set_reported("n", used);
        assert!(in_use.are_reported("n", &volume));
        // The next pod arrives while the removal of the volume is being written.
        assert!(in_use.release("n", "old"));
        assert_eq!(in_use.to_report("n"), (vec![], false));
        assert!(in_use.add("n", "new", &volume));
        assert!(!in_use.are_reported("n", &volume));
        in_use.set_reported("n", vec![]);
        assert!(!in_use.are_reported("n", &volume));
        assert_eq!(in_use.to_report("n"), (volume.to_vec(), false));
        in_use.set_reported("n", volume.to_vec());
        assert!(in_use.are_reported("n", &volume));
        assert_eq!(in_use.to_report("n"), (volume.to_vec(), true));
    }

    #[test]
    fn a_volume_handed_over_between_reports_stays_in_use() {
        let (in_use, volume) = (InUse::default(), ["v".to_owned()]);
        in_use.add("n", "old", &volume);
        in_use.set_reported("n", volume.to_vec());
        in_use.release("n", "old");
        in_use.add("n", "new", &volume);
        assert!(in_use.are_reported("n", &volume), "no report without it was written");
    }
}
