//! The storage behind drivers with attachable volumes: which machine has which disk, independent of the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::pods::Kubelets;

/// The disks of a cluster, each at one machine at a time, as a cloud's block storage has them.
///
/// It is asked by way of VolumeAttachments, or by hand past Kubernetes ([`Disks::remove`]), and can be told to be slow,
/// to fail, or to say that it has detached what it has not.
pub struct Disks {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    kubelets: Arc<dyn Kubelets>,
}

#[derive(Default)]
struct State {
    /// By volume, the machine that has it.
    holders: BTreeMap<String, String>,
    /// By volume, why it is not detached.
    stuck: BTreeMap<String, String>,
    attach_takes: Duration,
    detach_takes: Duration,
    forgetful: bool,
    /// Machines from which nothing is taken.
    kept: BTreeSet<String>,
}

impl Disks {
    pub(super) fn new(changed: watch::Sender<()>, kubelets: Arc<dyn Kubelets>) -> Disks {
        Disks { state: Mutex::default(), changed, kubelets }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    /// The machine that has a volume.
    pub fn holder(&self, volume: &str) -> Option<String> {
        self.state().holders.get(volume).cloned()
    }

    /// From now on a detach of this volume fails with these words, until they are taken back.
    pub fn keep(&self, volume: &str, why: Option<&str>) {
        self.change(|state| match why {
            Some(why) => drop(state.stuck.insert(volume.to_owned(), why.to_owned())),
            None => drop(state.stuck.remove(volume)),
        });
    }

    /// How long it takes from now on to attach a volume, and to detach one. At first it is no time.
    pub fn take(&self, attach: Duration, detach: Duration) {
        self.change(|state| (state.attach_takes, state.detach_takes) = (attach, detach));
    }

    /// From now on a detach says that it was done, but the machine keeps the disk and can write to it: as storage does
    /// that cannot fence a client.
    pub fn forget(&self, forgetful: bool) {
        self.change(|state| state.forgetful = forgetful);
    }

    /// The same for one machine only.
    pub fn forget_at(&self, node: &str, forgetful: bool) {
        self.change(|state| {
            if forgetful {
                state.kept.insert(node.to_owned());
            } else {
                state.kept.remove(node);
            }
        });
    }

    /// Takes a disk from a machine past Kubernetes, as `openstack server remove volume` does. Whether the machine had it.
    pub fn remove(&self, volume: &str, node: &str) -> bool {
        let had = self.pull(volume, node);
        self.changed.send_replace(());
        had
    }

    fn pull(&self, volume: &str, node: &str) -> bool {
        let mut state = self.state();
        if state.holders.get(volume).is_none_or(|holder| holder != node) {
            return false;
        }
        // Under the lock: nobody gets the disk before this machine has lost it.
        if !state.forgetful && !state.kept.contains(node) {
            self.kubelets.detached(volume, node);
        }
        state.holders.remove(volume);
        true
    }

    /// Takes note of a disk that was attached before this storage was there.
    pub(super) fn adopt(&self, volume: &str, node: &str) {
        self.state().holders.entry(volume.to_owned()).or_insert_with(|| node.to_owned());
        self.kubelets.attached(volume, node);
    }

    pub(super) async fn attach(&self, volume: &str, node: &str) -> Result<(), String> {
        let time = {
            let mut state = self.state();
            let holder = state.holders.entry(volume.to_owned()).or_insert_with(|| node.to_owned());
            if holder != node {
                return Err(format!("disk {volume} is attached to a different instance ({holder})"));
            }
            state.attach_takes
        };
        tokio::time::sleep(time).await;
        // It may have been taken away by hand meanwhile.
        let state = self.state();
        if state.holders.get(volume).is_some_and(|holder| holder == node) {
            self.kubelets.attached(volume, node);
        }
        Ok(())
    }

    pub(super) async fn detach(&self, volume: &str, node: &str) -> Result<(), String> {
        let time = self.state().detach_takes;
        if !time.is_zero() && self.holder(volume).as_deref() == Some(node) {
            tokio::time::sleep(time).await;
        }
        if let Some(why) = self.state().stuck.get(volume) {
            return Err(why.clone());
        }
        if self.pull(volume, node) {
            // Somebody may wait for it.
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// The volume is no more.
    pub(super) fn removed(&self, volume: &str) {
        self.change(|state| drop(state.holders.remove(volume)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pods::Delays;
    use super::*;

    #[tokio::test]
    async fn a_disk_is_at_one_machine_at_a_time() {
        let disks = Disks::new(watch::Sender::new(()), Arc::new(Delays));
        assert_eq!(disks.attach("v", "a").await, Ok(()));
        assert_eq!(disks.attach("v", "a").await, Ok(()));
        let refused = disks.attach("v", "b").await.unwrap_err();
        assert_eq!(refused, "disk v is attached to a different instance (a)");
        disks.keep("v", Some("the hypervisor does not answer"));
        assert_eq!(disks.detach("v", "a").await.unwrap_err(), "the hypervisor does not answer");
        assert_eq!(disks.holder("v").as_deref(), Some("a"));
        disks.keep("v", None);
        // Another machine's detach does nothing to it.
        assert_eq!(disks.detach("v", "b").await, Ok(()));
        assert_eq!(disks.holder("v").as_deref(), Some("a"));
        assert_eq!(disks.detach("v", "a").await, Ok(()));
        assert_eq!(disks.attach("v", "b").await, Ok(()));
        assert!(!disks.remove("v", "a") && disks.remove("v", "b"));
        assert_eq!(disks.holder("v"), None);
    }
}
