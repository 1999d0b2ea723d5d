//! Checks continuously that no peer is removed from the pool, by the state directory of each peer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{NAMESPACE, PoolStage, pod};

/// Watches the lists of peers in the state directories.
pub(super) struct MembershipWatch<'a> {
    stage: &'a PoolStage,
    identities: BTreeMap<u32, String>,
}

impl<'a> MembershipWatch<'a> {
    /// Expects that the pool keeps these members.
    pub(super) fn new(stage: &'a PoolStage, identities: BTreeMap<u32, String>) -> MembershipWatch<'a> {
        MembershipWatch { stage, identities }
    }

    /// Waits until an intact state directory does not list all other peers, and describes what is missing. Returns only
    /// then.
    pub(super) async fn wait_for_removal(&self) -> String {
        loop {
            for ordinal in self.identities.keys() {
                if let Some(removal) = self.removal(*ordinal) {
                    return removal;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    fn removal(&self, ordinal: u32) -> Option<String> {
        let folder = self.stage.machines.volume_dir(NAMESPACE, &format!("glusterd-{}", pod(ordinal))).ok()?;
        // A state directory that was lost or is being restored says nothing about the pool.
        let before = read_uuid(&folder)?;
        let listed: BTreeSet<String> = std::fs::read_dir(folder.join("peers"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // glusterd writes a new file under this name, then renames it.
            .map(|name| name.trim_end_matches(".tmp").to_owned())
            .collect();
        if read_uuid(&folder)? != before || self.identities[&ordinal] != before {
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

fn read_uuid(folder: &Path) -> Option<String> {
    let info = std::fs::read_to_string(folder.join("glusterd.info")).ok()?;
    info.lines().find_map(|line| line.strip_prefix("UUID=")).map(str::to_owned)
}
