//! What was not read although the answer depends on it.

use std::collections::BTreeSet;

/// Kinds, and what cannot be told without them.
const NEEDED: [(&str, &str); 9] = [
    ("Node", "unreachable nodes"),
    ("Pod", "stuck pods"),
    ("PersistentVolumeClaim", "unbound claims"),
    ("PersistentVolume", "held volumes"),
    ("VolumeAttachment", "held volumes"),
    ("StorageClass", "missing storage classes"),
    ("PodDisruptionBudget", "blocking budgets"),
    ("Deployment", "Deployments below their count"),
    ("StatefulSet", "StatefulSets below their count"),
];

/// One note about all kinds that were not read; none where all were.
pub(super) fn note(kinds: &BTreeSet<String>) -> Option<String> {
    let missing: Vec<&(&str, &str)> = NEEDED.iter().filter(|(kind, _)| !kinds.contains(*kind)).collect();
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|(kind, _)| *kind).collect();
    let mut lost: Vec<&str> = missing.iter().map(|(_, lost)| *lost).collect();
    lost.dedup();
    Some(format!("no objects of kind {} were read: not checked: {}", names.join(", "), lost.join(", ")))
}
