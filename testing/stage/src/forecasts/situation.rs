//! Random situations: a workload, its storage, and what happens to its node.

use std::fmt;

use crate::disturb::SeededRandom;

/// The options, as named in the JSON output of `stead explain`.
pub const OPTIONS: [&str; 6] =
    ["do-nothing", "node-returns", "force-delete-pod", "delete-node", "out-of-service", "recreate-strategy"];

/// The controller of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment with strategy Recreate: old pods are deleted first.
    Recreate(u32),
    /// A Deployment with strategy RollingUpdate: new pods are created first.
    Rolling(u32),
    /// A StatefulSet that creates its pods one after the other.
    Ordered(u32),
    /// A StatefulSet that creates its pods in parallel.
    Parallel(u32),
    /// A pod without a controller.
    Bare,
}

/// The storage of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// No storage.
    None,
    /// Storage that all nodes can use at the same time, without attaching.
    Shared,
    /// A disk that is attached to one node at a time.
    Disk,
    /// A disk that can be attached only to the nodes of its zone.
    ZoneDisk,
    /// Local storage of the node.
    Local,
}

/// The other nodes in the zone of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// There is no other node.
    Alone,
    /// There is one other node, and it is Ready.
    Shared,
    /// There are three other nodes, and two of them are already unreachable.
    MostlyUnreachable,
}

/// The event that the forecast is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The node is suspended.
    Suspended,
    /// The node's kubelet cannot reach the API server; its containers keep running.
    Disconnected,
    /// The node loses power.
    PowerLost,
    /// The node is healthy, but the Deployment is updated, and its new pod prefers another node.
    Updated,
}

/// What a person does before `stead explain` is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManualAction {
    /// Nothing.
    Nothing,
    /// Deletes the pod just before its node fails.
    PodDeletedBefore,
    /// The same, and the last status that the kubelet reports is that the pod has terminated.
    PodTerminatedBefore,
    /// Deletes the pod.
    PodDeleted,
    /// Force-deletes the pod.
    PodForceDeleted,
    /// Deletes the Node object.
    NodeDeleted,
}

/// How long the pods tolerate an unreachable node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TolerationTime {
    /// The default of the cluster.
    Default,
    /// A third of the default.
    Third,
    /// Forever.
    Forever,
}

/// A situation in which a forecast is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    /// The number of the situation within its seed.
    pub number: u32,
    /// The option that is chosen.
    pub option: &'static str,
    /// The controller of the pods.
    pub workload: Workload,
    /// The storage of the pods.
    pub storage: Storage,
    /// The other nodes in the zone of the node.
    pub zone: Zone,
    /// The event that the forecast is about.
    pub trigger: Trigger,
    /// What a person does before `stead explain` is called.
    pub manual_action: ManualAction,
    /// How long the pods tolerate an unreachable node.
    pub toleration: TolerationTime,
    /// Whether to explain the waiting pod, if there is one, instead of the pod that blocks it.
    pub explains_waiting_pod: bool,
    /// Whether to use `stead recover`, if it is part of the option, instead of applying the taint manually.
    pub uses_recover: bool,
    /// When `stead explain` is called, as a fraction of the time in which the cluster changes by itself.
    pub explain_at: f64,
    /// When the person acts, as a fraction of the time until `stead explain` is called.
    pub act_at: f64,
}

impl Situation {
    /// Draws the situation with this number from a seed. Six consecutive situations cover all options.
    pub fn draw(seed: u64, number: u32) -> Situation {
        let mut random = SeededRandom(seed.wrapping_mul(1_000_003).wrapping_add(number.into()));
        let mut fraction = || f64::from(random.below(1000)) / 1000.0;
        let (explain_at, act_at) = (fraction(), fraction());
        let option = OPTIONS[number as usize % OPTIONS.len()];
        let updated = option == "recreate-strategy" || (option == "do-nothing" && random.below(5) == 0);
        let of = |random: &mut SeededRandom, all: &[Storage]| all[random.below(all.len() as u32) as usize];
        let zone = match random.below(5) {
            0 | 1 => Zone::Alone,
            4 if !updated => Zone::MostlyUnreachable,
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
        // The pods of a Deployment share one claim: with a disk they would have to be on the same node.
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
        let manual_action = match random.below(8) {
            _ if updated => ManualAction::Nothing,
            0 => ManualAction::PodDeletedBefore,
            1 => ManualAction::PodDeleted,
            2 if movable && workload != Workload::Bare && option != "force-delete-pod" => ManualAction::PodForceDeleted,
            4 => ManualAction::PodTerminatedBefore,
            3 if matches!(option, "do-nothing" | "force-delete-pod") => ManualAction::NodeDeleted,
            _ => ManualAction::Nothing,
        };
        let trigger = match random.below(3) {
            _ if updated => Trigger::Updated,
            0 => Trigger::Suspended,
            1 => Trigger::Disconnected,
            _ => Trigger::PowerLost,
        };
        let toleration = match random.below(8) {
            0 => TolerationTime::Third,
            1 => TolerationTime::Forever,
            _ => TolerationTime::Default,
        };
        let (explains_waiting_pod, uses_recover) = (random.below(2) == 0, random.below(2) == 0);
        Situation {
            number,
            option,
            workload,
            storage,
            zone,
            trigger,
            manual_action,
            toleration,
            explains_waiting_pod,
            uses_recover,
            explain_at,
            act_at,
        }
    }

    /// Returns the name of the node of the situation, which is also the name of the namespace.
    pub fn name(&self) -> String {
        format!("s{:02}", self.number)
    }

    /// Returns the other nodes in the zone.
    pub fn other_nodes(&self) -> Vec<String> {
        let count = match self.zone {
            Zone::Alone => 0,
            Zone::Shared => 1,
            Zone::MostlyUnreachable => 3,
        };
        (0..count).map(|n| format!("{}-{n}", self.name())).collect()
    }
}

impl Workload {
    /// Returns the number of pods.
    pub fn replicas(self) -> u32 {
        match self {
            Workload::Recreate(n) | Workload::Rolling(n) | Workload::Ordered(n) | Workload::Parallel(n) => n,
            Workload::Bare => 1,
        }
    }

    /// Whether a replacement pod has the name of the old pod.
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
            Storage::ZoneDisk => ", zonal disk",
            Storage::Local => ", local storage",
        })?;
        f.write_str(match self.zone {
            Zone::Alone => ", alone in its zone",
            Zone::Shared => "",
            Zone::MostlyUnreachable => ", most of its zone unreachable",
        })?;
        f.write_str(match self.toleration {
            TolerationTime::Default => "",
            TolerationTime::Third => ", a third of the default toleration",
            TolerationTime::Forever => ", tolerates it forever",
        })?;
        f.write_str(match self.trigger {
            Trigger::Suspended => "; suspended",
            Trigger::Disconnected => "; disconnected",
            Trigger::PowerLost => "; power lost",
            Trigger::Updated => "; updated",
        })?;
        f.write_str(match self.manual_action {
            ManualAction::Nothing => "",
            ManualAction::PodDeletedBefore => ", pod deleted before",
            ManualAction::PodTerminatedBefore => ", pod deleted and terminated before",
            ManualAction::PodDeleted => ", pod deleted",
            ManualAction::PodForceDeleted => ", pod force-deleted",
            ManualAction::NodeDeleted => ", Node deleted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_all_situations() {
        let all = |seed| (0..60).map(|n| Situation::draw(seed, n)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        for option in OPTIONS {
            assert_eq!(all(1).iter().filter(|s| s.option == option).count(), 10, "{option}");
        }
        let drawn = all(1);
        let has =
            |what: &str, is: &dyn Fn(&Situation) -> bool| assert!(drawn.iter().any(is), "no situation with {what}");
        for storage in [Storage::None, Storage::Shared, Storage::Disk, Storage::ZoneDisk, Storage::Local] {
            has(&format!("{storage:?}"), &|s| s.storage == storage);
        }
        for manual_action in [
            ManualAction::PodDeletedBefore,
            ManualAction::PodTerminatedBefore,
            ManualAction::PodDeleted,
            ManualAction::PodForceDeleted,
            ManualAction::NodeDeleted,
        ] {
            has(&format!("{manual_action:?}"), &|s| s.manual_action == manual_action);
        }
        for trigger in [Trigger::Suspended, Trigger::Disconnected, Trigger::PowerLost, Trigger::Updated] {
            has(&format!("{trigger:?}"), &|s| s.trigger == trigger);
        }
        has("a bare pod", &|s| s.workload == Workload::Bare);
        has("several pods", &|s| s.workload.replicas() > 1);
    }
}
