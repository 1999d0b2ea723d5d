//! The disks in the machines: attached and detached by the storage, mounted for pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context, Result, ensure};

use crate::disk::{Drive, Plug};
use crate::group::Group;
use crate::volumes::Places;
use crate::witness::{End, Witness};

/// All machines' disks.
pub(crate) struct Storage {
    places: Places,
    pub(crate) witness: Arc<Witness>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By volume and node.
    slots: BTreeMap<(String, String), Slot>,
    holds: Vec<Hold>,
    /// How many disks have been mounted.
    mounted: u32,
    closed: bool,
}

/// Where a disk is plugged into a machine.
struct Slot {
    plug: Arc<Plug>,
    holders: Arc<Mutex<Vec<Holder>>>,
    /// The machine's one mount of it, while a pod has it.
    drive: Weak<Drive>,
}

/// Who may have written: a pod's uid, and what the witness notes of it.
type Holder = (String, usize);

/// A pod that has a disk mounted.
struct Hold {
    tenant: Tenant,
    note: usize,
    holders: Arc<Mutex<Vec<Holder>>>,
    // The mount goes with the last of these.
    _drive: Arc<Drive>,
}

/// A pod on a node.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) node: String,
    pub(crate) node_group: Group,
    /// As namespace/name.
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) group: Group,
}

impl Tenant {
    /// Whether a process of it runs: neither frozen nor dead.
    fn runs(&self) -> bool {
        self.group.is("populated 1") && !self.node_group.is("frozen 1")
    }
}

impl Storage {
    pub(crate) fn new(places: Places) -> Storage {
        Storage { places, witness: Arc::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk is plugged into a machine.
    pub(crate) fn plug(&self, volume: &str, node: &str) {
        let slot = || {
            let holders: Arc<Mutex<Vec<Holder>>> = Arc::default();
            let (known, witness) = (holders.clone(), self.witness.clone());
            let wrote = move |pid| {
                if let Some(note) = writer(&lock(&known), pid) {
                    witness.wrote(note);
                }
            };
            Slot { plug: Arc::new(Plug::new(wrote)), holders, drive: Weak::new() }
        };
        self.state().slots.entry((volume.to_owned(), node.to_owned())).or_insert_with(slot);
    }

    /// A disk is pulled out of a machine. Those who have it mounted keep a mount that answers EIO.
    pub(crate) fn pull(&self, volume: &str, node: &str) {
        let mut state = self.state();
        let Some(slot) = state.slots.remove(&(volume.to_owned(), node.to_owned())) else { return };
        let held = state.holds.iter().filter(|hold| Arc::ptr_eq(&hold.holders, &slot.holders));
        let held: Vec<(usize, bool)> = held.map(|hold| (hold.note, hold.tenant.runs())).collect();
        slot.plug.pull();
        for (note, running) in held {
            self.witness.end(note, End::TakenAway { running });
        }
    }

    /// Mounts a disk of the pod's machine for the pod, and says where.
    pub(crate) fn mount(&self, volume: &str, tenant: &Tenant) -> Result<PathBuf> {
        let directory = self.places.volume(volume);
        let mut state = self.state();
        let state = &mut *state;
        ensure!(!state.closed, "the cluster is being removed");
        let slot = state.slots.get_mut(&(volume.to_owned(), tenant.node.clone()));
        let slot = slot.with_context(|| format!("disk {volume} is not attached to node {}", tenant.node))?;
        let drive = match slot.drive.upgrade() {
            Some(drive) => drive,
            None => {
                state.mounted += 1;
                let path = self.places.mount(&tenant.node, &format!("{volume}-{}", state.mounted));
                let drive = Arc::new(Drive::mount(&directory, path, slot.plug.clone())?);
                slot.drive = Arc::downgrade(&drive);
                drive
            }
        };
        let path = drive.path().to_owned();
        let mine = |hold: &Hold| hold.tenant.uid == tenant.uid && Arc::ptr_eq(&hold.holders, &slot.holders);
        if !state.holds.iter().any(mine) {
            let note = self.witness.begin(volume, &tenant.node, &tenant.pod, &tenant.uid);
            let holders = slot.holders.clone();
            lock(&holders).push((tenant.uid.clone(), note));
            state.holds.push(Hold { tenant: tenant.clone(), note, holders, _drive: drive });
        }
        Ok(path)
    }

    /// A pod, of which no process is left, has nothing mounted any more.
    pub(crate) fn unmount(&self, uid: &str, how: End) {
        self.release(how, |hold| hold.tenant.uid == uid);
    }

    /// A machine has lost its power, and with it all that ran there.
    pub(crate) fn died(&self, node: &str) {
        self.release(End::Died, |hold| hold.tenant.node == node);
    }

    /// Nothing is mounted any more, and nothing will be.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.release(End::Died, |_| true);
    }

    fn release(&self, how: End, whose: impl Fn(&Hold) -> bool) {
        let mut state = self.state();
        let (gone, kept): (Vec<Hold>, Vec<Hold>) = std::mem::take(&mut state.holds).into_iter().partition(whose);
        state.holds = kept;
        for hold in &gone {
            self.witness.end(hold.note, how);
            lock(&hold.holders).retain(|(_, note)| *note != hold.note);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who of these wrote: the only one, or the one in whose control group the process is.
fn writer(holders: &[Holder], pid: u32) -> Option<usize> {
    if let [(_, note)] = holders {
        return Some(*note);
    }
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    holders.iter().find(|(uid, _)| group.contains(uid.as_str())).map(|(_, note)| *note)
}
