//! The members of the pool according to each peer's state directory, checked continuously.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{NAMESPACE, PoolStage, pod};

/// Looks at the peers' own lists, and remembers what must not have been.
pub(super) struct Watch<'a> {
    stage: &'a PoolStage,
    identities: BTreeMap<u32, String>,
}

impl<'a> Watch<'a> {
    /// The pool has these members, and keeps them.
    pub(super) fn new(stage: &'a PoolStage, identities: BTreeMap<u32, String>) -> Watch<'a> {
        Watch { stage, identities }
    }

    /// Waits until a peer that has its state lists fewer than all others: somebody was removed. It ends only then.
    pub(super) async fn removed(&self) -> String {
        loop {
            for ordinal in self.identities.keys() {
                if let Some(fault) = self.fault(*ordinal) {
                    return fault;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    fn fault(&self, ordinal: u32) -> Option<String> {
        let folder = self.stage.machines.volume_dir(NAMESPACE, &format!("glusterd-{}", pod(ordinal))).ok()?;
        // A state that was lost, or is being written back, says nothing about the pool.
        let before = own(&folder)?;
        let listed: BTreeSet<String> = std::fs::read_dir(folder.join("peers"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // glusterd writes a file anew under this name, and renames it.
            .map(|name| name.trim_end_matches(".tmp").to_owned())
            .collect();
        if own(&folder)? != before || self.identities[&ordinal] != before {
            return None;
        }
        let missing: Vec<String> = self
            .identities
            .iter()
            .filter(|(other, uuid)| **other != ordinal && !listed.contains(*uuid))
            .map(|(other, _)| pod(*other))
            .collect();
        (!missing.is_empty()).then(|| format!("{} no longer lists {}", pod(ordinal), missing.join(", ")))
    }
}

fn own(folder: &Path) -> Option<String> {
    let info = std::fs::read_to_string(folder.join("glusterd.info")).ok()?;
    info.lines().find_map(|line| line.strip_prefix("UUID=")).map(str::to_owned)
}
