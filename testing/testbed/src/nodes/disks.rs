//! The storage behind drivers with attachable volumes: which machine has which disk, independent of the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::pods::Kubelets;

/// A cloud's block storage: each disk is attached to one machine at a time.
///
/// It is controlled by VolumeAttachments, or directly, bypassing Kubernetes ([`Disks::remove`]). It can be made slow,
/// made to fail, or made to report a detach that it has not done.
pub struct Disks {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    kubelets: Arc<dyn Kubelets>,
}

#[derive(Default)]
struct State {
    /// By volume, the machine that it is attached to.
    holders: BTreeMap<String, String>,
    /// By volume, the error of a detach.
    detach_errors: BTreeMap<String, String>,
    /// By driver, the error of every call.
    driver_errors: BTreeMap<String, String>,
    attach_delay: Duration,
    detach_delay: Duration,
    /// Whether machines keep disks that are reported as detached.
    ignores_detach: bool,
    /// Machines that keep disks that are reported as detached.
    ignores_detach_on: BTreeSet<String>,
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

    /// Returns the machine that a volume is attached to.
    pub fn holder(&self, volume: &str) -> Option<String> {
        self.state().holders.get(volume).cloned()
    }

    /// Makes a detach of this volume fail with this message; none makes it succeed again.
    pub fn fail_detach(&self, volume: &str, message: Option<&str>) {
        self.change(|state| match message {
            Some(message) => drop(state.detach_errors.insert(volume.to_owned(), message.to_owned())),
            None => drop(state.detach_errors.remove(volume)),
        });
    }

    /// Makes every call to a driver fail with this message: it creates, attaches, detaches and deletes no volumes. None
    /// makes it work again.
    pub fn fail_driver(&self, driver: &str, message: Option<&str>) {
        self.change(|state| match message {
            Some(message) => drop(state.driver_errors.insert(driver.to_owned(), message.to_owned())),
            None => drop(state.driver_errors.remove(driver)),
        });
    }

    /// The error of every call to a driver; none if it works.
    pub(super) fn driver_error(&self, driver: &str) -> Option<String> {
        self.state().driver_errors.get(driver).cloned()
    }

    /// Sets how long it takes to attach and to detach a volume. The default is zero.
    pub fn set_delays(&self, attach: Duration, detach: Duration) {
        self.change(|state| (state.attach_delay, state.detach_delay) = (attach, detach));
    }

    /// Sets whether a detach is reported as done although the machine keeps the disk and can write to it, like storage
    /// that cannot fence a client.
    pub fn ignore_detach(&self, ignore: bool) {
        self.change(|state| state.ignores_detach = ignore);
    }

    /// Like [`Disks::ignore_detach`], for one machine only.
    pub fn ignore_detach_on(&self, node: &str, ignore: bool) {
        self.change(|state| {
            if ignore {
                state.ignores_detach_on.insert(node.to_owned());
            } else {
                state.ignores_detach_on.remove(node);
            }
        });
    }

    /// Detaches a disk from a machine without Kubernetes, like `openstack server remove volume`. Returns whether it was
    /// attached.
    pub fn remove(&self, volume: &str, node: &str) -> bool {
        let attached = self.remove_holder(volume, node);
        self.changed.send_replace(());
        attached
    }

    fn remove_holder(&self, volume: &str, node: &str) -> bool {
        let mut state = self.state();
        if state.holders.get(volume).is_none_or(|holder| holder != node) {
            return false;
        }
        // Under the lock: no other machine gets the disk before this one has lost it.
        if !state.ignores_detach && !state.ignores_detach_on.contains(node) {
            self.kubelets.detached(volume, node);
        }
        state.holders.remove(volume);
        true
    }

    /// Adds a disk that was attached before this process started.
    pub(super) fn adopt(&self, volume: &str, node: &str) {
        self.state().holders.entry(volume.to_owned()).or_insert_with(|| node.to_owned());
        self.kubelets.attached(volume, node);
    }

    pub(super) async fn attach(&self, volume: &str, node: &str) -> Result<(), String> {
        let delay = {
            let mut state = self.state();
            let holder = state.holders.entry(volume.to_owned()).or_insert_with(|| node.to_owned());
            if holder != node {
                return Err(format!("disk {volume} is attached to a different instance ({holder})"));
            }
            state.attach_delay
        };
        tokio::time::sleep(delay).await;
        // It may have been removed directly meanwhile.
        let state = self.state();
        if state.holders.get(volume).is_some_and(|holder| holder == node) {
            self.kubelets.attached(volume, node);
        }
        Ok(())
    }

    pub(super) async fn detach(&self, volume: &str, node: &str) -> Result<(), String> {
        let delay = self.state().detach_delay;
        if !delay.is_zero() && self.holder(volume).as_deref() == Some(node) {
            tokio::time::sleep(delay).await;
        }
        if let Some(message) = self.state().detach_errors.get(volume) {
            return Err(message.clone());
        }
        if self.remove_holder(volume, node) {
            // Another machine may wait for it.
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// Deletes a volume.
    pub(super) fn delete(&self, volume: &str) {
        self.change(|state| drop(state.holders.remove(volume)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pods::Delays;
    use super::*;

    #[tokio::test]
    async fn a_disk_is_attached_to_one_machine_at_a_time() {
        let disks = Disks::new(watch::Sender::new(()), Arc::new(Delays));
        assert_eq!(disks.attach("v", "a").await, Ok(()));
        assert_eq!(disks.attach("v", "a").await, Ok(()));
        let refused = disks.attach("v", "b").await.unwrap_err();
        assert_eq!(refused, "disk v is attached to a different instance (a)");
        disks.fail_detach("v", Some("the hypervisor does not answer"));
        assert_eq!(disks.detach("v", "a").await.unwrap_err(), "the hypervisor does not answer");
        assert_eq!(disks.holder("v").as_deref(), Some("a"));
        disks.fail_detach("v", None);
        // A detach from another machine has no effect.
        assert_eq!(disks.detach("v", "b").await, Ok(()));
        assert_eq!(disks.holder("v").as_deref(), Some("a"));
        assert_eq!(disks.detach("v", "a").await, Ok(()));
        assert_eq!(disks.attach("v", "b").await, Ok(()));
        assert!(!disks.remove("v", "a") && disks.remove("v", "b"));
        assert_eq!(disks.holder("v"), None);
    }
}
