//! What can happen to a pod, drawn at random.

use std::fmt;

use crate::disturb::SeededRandom;

/// The ways out, as the forecasts name them.
pub const WAYS: [&str; 6] =
    ["do-nothing", "node-returns", "force-delete-pod", "delete-node", "out-of-service", "recreate-strategy"];

/// Who makes the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment that ends its old pods first.
    Recreate(u32),
    /// A Deployment that starts its new pods first.
    Rolling(u32),
    /// A StatefulSet, whose pods are made one after the other.
    Ordered(u32),
    /// A StatefulSet, whose pods are made side by side.
    Parallel(u32),
    /// Nobody.
    Bare,
}

/// What the pods' data is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// They have none.
    None,
    /// Storage that every node can use at the same time, and that is not attached.
    Shared,
    /// A disk, which is attached to one node at a time.
    Disk,
    /// A disk that only the nodes of its zone can have.
    ZoneDisk,
    /// The node's own.
    Local,
}

/// The zone of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// The node is all of it.
    Alone,
    /// Another node is there, and well.
    Shared,
    /// Of three others two were silent before.
    Disturbed,
}

/// What happens to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is suspended.
    Frozen,
    /// Its kubelet does not reach the API server; its processes run on.
    CutOff,
    /// It loses its power.
    Killed,
    /// Nothing; but the Deployment is updated, and its new pod wants to be elsewhere.
    Updated,
}

/// What a person does before anybody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meddling {
    /// Nothing.
    Nothing,
    /// Deletes the pod, just before its node falls silent.
    DeletedBefore,
    /// The same, and the last that its kubelet says is that the pod has ended.
    EndedBefore,
    /// Deletes the pod.
    Deleted,
    /// Deletes the pod by force.
    Forced,
    /// Deletes the Node object.
    NodeDeleted,
}

/// How long the pods tolerate a node that is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as the cluster has it.
    Default,
    /// A third of that.
    Third,
    /// For ever.
    Endless,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    /// Which.
    pub number: u32,
    /// The way out that is taken.
    pub way: &'static str,
    /// Who makes the pods.
    pub workload: Workload,
    /// What their data is on.
    pub storage: Storage,
    /// The zone of the node.
    pub zone: Zone,
    /// What happens to the node.
    pub fault: Fault,
    /// What a person does meanwhile.
    pub meddling: Meddling,
    /// How long the pods tolerate it.
    pub patience: Patience,
    /// Whether the pod that waits is asked about, where there is one, rather than the one that is in its way.
    pub about_new: bool,
    /// Whether `stead recover` is used, where that is the way, rather than the taint by hand.
    pub recovers: bool,
    /// When the question is asked: this part of the time in which something changes by itself.
    pub asked: f64,
    /// When the person meddles: this part of the time until then.
    pub meddles: f64,
}

impl Situation {
    /// The situation of this number, from a seed. Six in a row have all ways among them.
    pub fn draw(seed: u64, number: u32) -> Situation {
        let mut random = SeededRandom(seed.wrapping_mul(1_000_003).wrapping_add(number.into()));
        let mut part = || f64::from(random.below(1000)) / 1000.0;
        let (asked, meddles) = (part(), part());
        let way = WAYS[number as usize % WAYS.len()];
        let updated = way == "recreate-strategy" || (way == "do-nothing" && random.below(5) == 0);
        let of = |random: &mut SeededRandom, all: &[Storage]| all[random.below(all.len() as u32) as usize];
        let zone = match random.below(5) {
            0 | 1 => Zone::Alone,
            4 if !updated => Zone::Disturbed,
            _ => Zone::Shared,
        };
        let storage = match (updated, zone) {
            (true, Zone::Alone) => Storage::Disk,
            (true, _) => of(&mut random, &[Storage::Disk, Storage::ZoneDisk]),
            _ => of(
                &mut random,
                &[Storage::None, Storage::Shared, Storage::Disk, Storage::Disk, Storage::ZoneDisk, Storage::Local],
            ),
        };
        // Two pods of a Deployment have one claim: with a disk they would have to be on one node.
        let several = matches!(storage, Storage::None | Storage::Shared);
        let replicas = 1 + u32::from(random.below(3) == 0);
        let workload = match random.below(9) {
            _ if updated => Workload::Rolling(1),
            0..=2 => Workload::Recreate(if several { replicas } else { 1 }),
            3 | 4 => Workload::Rolling(if several { replicas } else { 1 }),
            5 | 6 => Workload::Ordered(replicas),
            7 => Workload::Parallel(replicas),
            _ => Workload::Bare,
        };
        let movable = storage == Storage::Disk || (storage == Storage::ZoneDisk && zone != Zone::Alone);
        let meddling = match random.below(8) {
            _ if updated => Meddling::Nothing,
            0 => Meddling::DeletedBefore,
            1 => Meddling::Deleted,
            2 if movable && workload != Workload::Bare && way != "force-delete-pod" => Meddling::Forced,
            4 => Meddling::EndedBefore,
            3 if matches!(way, "do-nothing" | "force-delete-pod") => Meddling::NodeDeleted,
            _ => Meddling::Nothing,
        };
        let fault = match random.below(3) {
            _ if updated => Fault::Updated,
            0 => Fault::Frozen,
            1 => Fault::CutOff,
            _ => Fault::Killed,
        };
        let patience = match random.below(8) {
            0 => Patience::Third,
            1 => Patience::Endless,
            _ => Patience::Default,
        };
        let (about_new, recovers) = (random.below(2) == 0, random.below(2) == 0);
        Situation {
            number,
            way,
            workload,
            storage,
            zone,
            fault,
            meddling,
            patience,
            about_new,
            recovers,
            asked,
            meddles,
        }
    }

    /// The node that it happens to, and the situation's namespace.
    pub fn name(&self) -> String {
        format!("s{:02}", self.number)
    }

    /// The other nodes of its zone.
    pub fn mates(&self) -> Vec<String> {
        let count = match self.zone {
            Zone::Alone => 0,
            Zone::Shared => 1,
            Zone::Disturbed => 3,
        };
        (0..count).map(|n| format!("{}-{n}", self.name())).collect()
    }
}

impl Workload {
    /// How many pods there are.
    pub fn replicas(self) -> u32 {
        match self {
            Workload::Recreate(n) | Workload::Rolling(n) | Workload::Ordered(n) | Workload::Parallel(n) => n,
            Workload::Bare => 1,
        }
    }

    /// Whether a pod's successor has its name.
    pub fn keeps_names(self) -> bool {
        matches!(self, Workload::Ordered(_) | Workload::Parallel(_) | Workload::Bare)
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, replicas) = match self.workload {
            Workload::Recreate(n) => ("Recreate", n),
            Workload::Rolling(n) => ("RollingUpdate", n),
            Workload::Ordered(n) => ("StatefulSet", n),
            Workload::Parallel(n) => ("StatefulSet, parallel", n),
            Workload::Bare => ("bare pod", 1),
        };
        write!(f, "{workload}{}", if replicas > 1 { format!(" x{replicas}") } else { String::new() })?;
        f.write_str(match self.storage {
            Storage::None => ", no storage",
            Storage::Shared => ", shared storage",
            Storage::Disk => ", disk",
            Storage::ZoneDisk => ", disk of the zone",
            Storage::Local => ", local storage",
        })?;
        f.write_str(match self.zone {
            Zone::Alone => ", alone in its zone",
            Zone::Shared => "",
            Zone::Disturbed => ", most of its zone silent",
        })?;
        f.write_str(match self.patience {
            Patience::Default => "",
            Patience::Third => ", tolerates it for a third",
            Patience::Endless => ", tolerates it for ever",
        })?;
        f.write_str(match self.fault {
            Fault::Frozen => "; suspended",
            Fault::CutOff => "; cut off",
            Fault::Killed => "; without power",
            Fault::Updated => "; updated",
        })?;
        f.write_str(match self.meddling {
            Meddling::Nothing => "",
            Meddling::DeletedBefore => ", pod deleted before",
            Meddling::EndedBefore => ", pod deleted and ended before",
            Meddling::Deleted => ", pod deleted",
            Meddling::Forced => ", pod deleted by force",
            Meddling::NodeDeleted => ", Node deleted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_list_of_situations() {
        let all = |seed| (0..60).map(|n| Situation::draw(seed, n)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        for way in WAYS {
            assert_eq!(all(1).iter().filter(|s| s.way == way).count(), 10, "{way}");
        }
        let drawn = all(1);
        let has = |what: &str, is: &dyn Fn(&Situation) -> bool| assert!(drawn.iter().any(is), "none with {what}");
        for storage in [Storage::None, Storage::Shared, Storage::Disk, Storage::ZoneDisk, Storage::Local] {
            has(&format!("{storage:?}"), &|s| s.storage == storage);
        }
        for meddling in
            [Meddling::DeletedBefore, Meddling::EndedBefore, Meddling::Deleted, Meddling::Forced, Meddling::NodeDeleted]
        {
            has(&format!("{meddling:?}"), &|s| s.meddling == meddling);
        }
        for fault in [Fault::Frozen, Fault::CutOff, Fault::Killed, Fault::Updated] {
            has(&format!("{fault:?}"), &|s| s.fault == fault);
        }
        has("a bare pod", &|s| s.workload == Workload::Bare);
        has("several pods", &|s| s.workload.replicas() > 1);
    }
}
