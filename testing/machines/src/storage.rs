//! The disks of the machines: attached and detached by the storage, mounted for pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context, Result, ensure};

use crate::disk::{DiskConnection, MountedDisk};
use crate::group::Group;
use crate::volumes::Directories;
use crate::witness::{End, Witness};

/// The disks of all machines.
pub(crate) struct Storage {
    directories: Directories,
    pub(crate) witness: Arc<Witness>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By volume and node.
    slots: BTreeMap<(String, String), Slot>,
    mounts: Vec<PodMount>,
    /// How many disks have been mounted so far.
    mounted: u32,
    closed: bool,
}

/// A disk that is attached to a machine.
struct Slot {
    connection: Arc<DiskConnection>,
    holders: Arc<Mutex<Vec<Holder>>>,
    /// The machine's mount of it, while a pod uses it.
    mounted: Weak<MountedDisk>,
}

/// A pod that can write: its uid, and the index of its interval.
type Holder = (String, usize);

/// A pod's mount of a disk.
struct PodMount {
    user: DiskUser,
    interval: usize,
    holders: Arc<Mutex<Vec<Holder>>>,
    // The disk is unmounted when the last of these is dropped.
    _disk: Arc<MountedDisk>,
}

/// A pod on a node that uses disks.
#[derive(Debug, Clone)]
pub(crate) struct DiskUser {
    pub(crate) node: String,
    pub(crate) node_group: Group,
    /// As namespace/name.
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) group: Group,
}

impl DiskUser {
    /// Whether it has a process that is neither frozen nor dead.
    fn has_running_process(&self) -> bool {
        self.group.has_event("populated 1") && !self.node_group.has_event("frozen 1")
    }
}

impl Storage {
    pub(crate) fn new(directories: Directories) -> Storage {
        Storage { directories, witness: Arc::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a disk to a machine.
    pub(crate) fn attach(&self, volume: &str, node: &str) {
        let slot = || {
            let holders: Arc<Mutex<Vec<Holder>>> = Arc::default();
            let (known, witness) = (holders.clone(), self.witness.clone());
            let on_write = move |pid| {
                if let Some(interval) = writer(&lock(&known), pid) {
                    witness.count_write(interval);
                }
            };
            Slot { connection: Arc::new(DiskConnection::new(on_write)), holders, mounted: Weak::new() }
        };
        self.state().slots.entry((volume.to_owned(), node.to_owned())).or_insert_with(slot);
    }

    /// Detaches a disk from a machine. Existing mounts then return EIO.
    pub(crate) fn detach(&self, volume: &str, node: &str) {
        let mut state = self.state();
        let Some(slot) = state.slots.remove(&(volume.to_owned(), node.to_owned())) else { return };
        let held = state.mounts.iter().filter(|mount| Arc::ptr_eq(&mount.holders, &slot.holders));
        let held: Vec<(usize, bool)> = held.map(|mount| (mount.interval, mount.user.has_running_process())).collect();
        slot.connection.detach();
        for (interval, running) in held {
            self.witness.end(interval, End::Detached { running });
        }
    }

    /// Mounts a disk of the pod's machine for the pod, and returns the path.
    pub(crate) fn mount(&self, volume: &str, user: &DiskUser) -> Result<PathBuf> {
        let directory = self.directories.volume(volume);
        let mut state = self.state();
        let state = &mut *state;
        ensure!(!state.closed, "the cluster is being removed");
        let slot = state.slots.get_mut(&(volume.to_owned(), user.node.clone()));
        let slot = slot.with_context(|| format!("disk {volume} is not attached to node {}", user.node))?;
        let disk = match slot.mounted.upgrade() {
            Some(disk) => disk,
            None => {
                state.mounted += 1;
                let path = self.directories.mount(&user.node, &format!("{volume}-{}", state.mounted));
                let disk = Arc::new(MountedDisk::mount(&directory, path, slot.connection.clone())?);
                slot.mounted = Arc::downgrade(&disk);
                disk
            }
        };
        let path = disk.path().to_owned();
        let mine = |mount: &PodMount| mount.user.uid == user.uid && Arc::ptr_eq(&mount.holders, &slot.holders);
        if !state.mounts.iter().any(mine) {
            let interval = self.witness.begin(volume, &user.node, &user.pod, &user.uid);
            let holders = slot.holders.clone();
            lock(&holders).push((user.uid.clone(), interval));
            state.mounts.push(PodMount { user: user.clone(), interval, holders, _disk: disk });
        }
        Ok(path)
    }

    /// Unmounts all disks of a pod that has no process left.
    pub(crate) fn unmount(&self, uid: &str, how: End) {
        self.release(how, |mount| mount.user.uid == uid);
    }

    /// Unmounts all disks of a machine that was powered off.
    pub(crate) fn power_off(&self, node: &str) {
        self.release(End::Died, |mount| mount.user.node == node);
    }

    /// Unmounts everything, and refuses further mounts.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.release(End::Died, |_| true);
    }

    fn release(&self, how: End, matches: impl Fn(&PodMount) -> bool) {
        let mut state = self.state();
        let (gone, kept): (Vec<PodMount>, Vec<PodMount>) =
            std::mem::take(&mut state.mounts).into_iter().partition(matches);
        state.mounts = kept;
        for mount in &gone {
            self.witness.end(mount.interval, how);
            lock(&mount.holders).retain(|(_, interval)| *interval != mount.interval);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns which pod wrote: the only one, or the one matches control group contains the process.
fn writer(holders: &[Holder], pid: u32) -> Option<usize> {
    if let [(_, interval)] = holders {
        return Some(*interval);
    }
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    holders.iter().find(|(uid, _)| group.contains(uid.as_str())).map(|(_, interval)| *interval)
}
