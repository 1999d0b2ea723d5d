//! Which volumes a node uses, and what of that the API server has been told.
//!
//! The attach-detach controller takes a volume off the node's list of attached volumes, and then checks whether it is
//! in use; a kubelet reports that it is in use, and then checks whether it is attached. One of the two sees the other.
//! That holds only for what the API server has: what a kubelet merely intends to report protects nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The volumes in use at all nodes.
#[derive(Default)]
pub(super) struct InUse(Mutex<BTreeMap<String, AtNode>>);

#[derive(Default)]
struct AtNode {
    /// By volume, the pods that use it.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// Those that the API server has as in use, whatever is being written.
    told: BTreeSet<String>,
}

impl InUse {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AtNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod uses volumes. Whether that is news.
    pub(super) fn take(&self, node: &str, pod: &str, volumes: &[String]) -> bool {
        let mut all = self.all();
        let pods = &mut all.entry(node.to_owned()).or_default().pods;
        let news = volumes.iter().filter(|volume| pods.entry((*volume).clone()).or_default().insert(pod.to_owned()));
        news.count() > 0
    }

    /// A pod uses no volume any more. Whether that is news.
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

    /// What is to be told now, and whether the API server has just that. What is not among it counts as untold.
    pub(super) fn to_tell(&self, node: &str) -> (Vec<String>, bool) {
        let mut all = self.all();
        let at = all.entry(node.to_owned()).or_default();
        let used: Vec<String> = at.pods.keys().cloned().collect();
        let known = at.told.iter().eq(&used);
        at.told.retain(|volume| at.pods.contains_key(volume));
        (used, known)
    }

    /// The API server has this.
    pub(super) fn told(&self, node: &str, volumes: Vec<String>) {
        self.all().entry(node.to_owned()).or_default().told = volumes.into_iter().collect();
    }

    /// Whether the API server has all of these as in use, and will until they are released.
    pub(super) fn are_told(&self, node: &str, volumes: &[String]) -> bool {
        self.all().get(node).is_some_and(|at| volumes.iter().all(|volume| at.told.contains(volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_to_be_taken_back_protects_nobody() {
        let (in_use, volume) = (InUse::default(), ["v".to_owned()]);
        assert!(in_use.take("n", "old", &volume));
        assert!(!in_use.take("n", "old", &volume), "it is news once");
        assert!(!in_use.are_told("n", &volume), "nothing has been said");
        let (used, known) = in_use.to_tell("n");
        assert!(!known);
        in_use.told("n", used);
        assert!(in_use.are_told("n", &volume));
        // The next pod comes when it is being written that nobody has the volume.
        assert!(in_use.release("n", "old"));
        assert_eq!(in_use.to_tell("n"), (vec![], false));
        assert!(in_use.take("n", "new", &volume));
        assert!(!in_use.are_told("n", &volume));
        in_use.told("n", vec![]);
        assert!(!in_use.are_told("n", &volume));
        assert_eq!(in_use.to_tell("n"), (volume.to_vec(), false));
        in_use.told("n", volume.to_vec());
        assert!(in_use.are_told("n", &volume));
        assert_eq!(in_use.to_tell("n"), (volume.to_vec(), true));
    }

    #[test]
    fn a_volume_that_goes_from_hand_to_hand_stays_in_use() {
        let (in_use, volume) = (InUse::default(), ["v".to_owned()]);
        in_use.take("n", "old", &volume);
        in_use.told("n", volume.to_vec());
        in_use.release("n", "old");
        in_use.take("n", "new", &volume);
        assert!(in_use.are_told("n", &volume), "nobody has said otherwise");
    }
}
