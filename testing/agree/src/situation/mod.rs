//! Random situations: a cluster, workloads on it, and what is done to them.

mod actions;
mod objects;
mod workload;

use std::fmt;

use serde_json::Value;
use stead_chance::Chance;
use stead_testbed::{ClusterSpec, DriverSpec, NodeSpec};

pub use actions::{ActionKind, PlannedAction, Target};
pub use workload::{Management, Placement, Storage, Workload, WorkloadKind};

/// The namespace of a situation's objects.
pub const NAMESPACE: &str = "play";

/// The node label of a zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The waiting times of a run, which its length depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// Whether they are Kubernetes' own, or a tenth of them.
    pub real: bool,
}

impl Timers {
    /// From the last heartbeat of a node to the end of its pods' tolerations, in seconds.
    fn eviction(self) -> u64 {
        if self.real { 355 } else { 40 }
    }

    /// From the eviction to the detachment by force, in seconds.
    fn force_detach(self) -> u64 {
        if self.real { 380 } else { 45 }
    }
}

/// A situation.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    /// The seed that it is drawn from.
    pub seed: u64,
    /// Its number within the seed.
    pub number: u64,
    /// The waiting times.
    pub timers: Timers,
    /// The machines and the storage.
    pub cluster: ClusterSpec,
    /// Whether the containers of Jobs fail.
    pub jobs_fail: bool,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// What is done, in the order of time.
    pub actions: Vec<PlannedAction>,
    /// When the snapshot is taken, in milliseconds since all is set up.
    pub snapshot_at: u64,
    /// When the run ends, in milliseconds since all is set up.
    pub ends_at: u64,
}

impl Situation {
    /// Draws the situation with this number from a seed. Consecutive situations cover all kinds of actions and workloads;
    /// a node fails in every second one, and every second or third has an attached volume.
    pub fn draw(seed: u64, number: u64, timers: Timers) -> Situation {
        let mut chance = Chance::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let first = ActionKind::ALL[(number as usize * 7 + seed as usize) % ActionKind::ALL.len()];
        let node_fails = number.is_multiple_of(2) || first.needs_failed_node();
        let attached = matches!(number % 5, 0 | 2 | 3) || first.needs_attached_volume();
        let cluster = cluster(&mut chance);
        let workloads = workload::draw_all(&mut chance, number, first, attached, &cluster);
        let plan = actions::Plan { cluster: &cluster, workloads: &workloads, timers, first, node_fails };
        let actions = actions::draw_all(&mut chance, &plan);
        let last = actions.last().map_or(0, |action| action.at);
        let tail = match node_fails {
            true if chance.percent(50) => timers.eviction() + timers.force_detach(),
            true => timers.eviction() + 5,
            false => 20,
        };
        let ends_at = last + tail * 1000 + chance.below(8000);
        // Every second snapshot is taken while things are going on, most of them before the last action.
        let snapshot_at = match chance.below(10) {
            0..=4 => 0,
            5..=8 => chance.below(last.max(1)),
            _ => last + chance.below(tail * 300),
        };
        let jobs_fail = chance.percent(25);
        Situation { seed, number, timers, cluster, jobs_fail, workloads, actions, snapshot_at, ends_at }
    }

    /// Its name.
    pub fn name(&self) -> String {
        let timers = if self.timers.real { "-real" } else { "" };
        format!("{}-{}{timers}", self.seed, self.number)
    }

    /// Whether a volume is attached to a node.
    pub fn has_attached_volumes(&self) -> bool {
        self.workloads.iter().any(|workload| workload.storage.is_attached())
    }

    /// Whether a node fails.
    pub fn node_fails(&self) -> bool {
        self.actions.iter().any(|action| action.kind.fails_node())
    }

    /// The objects that are created first: storage classes, priority classes and the namespace.
    pub fn base_objects(&self) -> Vec<Value> {
        objects::base(self)
    }

    /// The workloads with their claims and budgets.
    pub fn objects(&self) -> Vec<Value> {
        self.workloads.iter().flat_map(objects::workload).collect()
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes", self.cluster.nodes.len())?;
        for workload in &self.workloads {
            write!(f, ", {workload}")?;
        }
        for action in &self.actions {
            write!(f, "; {:.1} s: {}", action.at as f64 / 1000.0, action)?;
        }
        Ok(())
    }
}

/// The machines and the storage of a situation.
fn cluster(chance: &mut Chance) -> ClusterSpec {
    let nodes = match chance.below(20) {
        0..=2 => 1 + chance.below(3),
        3..=13 => 4 + chance.below(7),
        14..=18 => 11 + chance.below(10),
        _ => 21 + chance.below(20),
    };
    let zones = 1 + chance.below(nodes.min(4));
    let cpus = chance.one_of(&["16", "16", "4", "2"]).unwrap_or("16");
    let node = |number: u64| NodeSpec {
        name: format!("node-{number}"),
        labels: [(ZONE.to_owned(), format!("zone-{}", number % zones))].into(),
        capacity: [("cpu".to_owned(), cpus.to_owned())].into(),
        address: None,
    };
    ClusterSpec {
        nodes: (0..nodes).map(node).collect(),
        drivers: Storage::ALL.iter().filter_map(|storage| driver(*storage)).collect(),
        start_seconds: seconds(chance, 5, 20),
        ready_seconds: seconds(chance, 5, 30),
        stop_seconds: seconds(chance, 5, 40),
        job_seconds: seconds(chance, 20, 200),
        ..ClusterSpec::default()
    }
}

/// Tenths of a second between two limits.
fn seconds(chance: &mut Chance, least: u64, most: u64) -> f64 {
    (least + chance.below(most - least)) as f64 / 10.0
}

fn driver(storage: Storage) -> Option<DriverSpec> {
    let topology = match storage {
        Storage::None => return None,
        Storage::Local => Some("kubernetes.io/hostname".to_owned()),
        Storage::ZoneDisk => Some(ZONE.to_owned()),
        Storage::Disk | Storage::Shared => None,
    };
    let name = storage.class()?.to_owned();
    Some(DriverSpec { name, topology, attach: storage.is_attached(), disk: false })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stead_kubectl::KubectlCommand;

    use super::*;

    const FAST: Timers = Timers { real: false };

    #[test]
    fn a_seed_determines_its_situations() {
        for number in 0..20 {
            assert_eq!(Situation::draw(7, number, FAST), Situation::draw(7, number, FAST));
        }
        assert_ne!(Situation::draw(7, 1, FAST).to_string(), Situation::draw(8, 1, FAST).to_string());
    }

    #[test]
    fn one_hundred_and_fifty_situations_cover_everything() {
        let all: Vec<Situation> = (0..150).map(|number| Situation::draw(1, number, FAST)).collect();
        let mut actions: BTreeMap<ActionKind, usize> = BTreeMap::new();
        let mut workloads: BTreeMap<&str, usize> = BTreeMap::new();
        for situation in &all {
            let kinds: std::collections::BTreeSet<ActionKind> = situation.actions.iter().map(|a| a.kind).collect();
            kinds.into_iter().for_each(|kind| *actions.entry(kind).or_default() += 1);
            let kinds: std::collections::BTreeSet<&str> = situation.workloads.iter().map(|w| w.kind.name()).collect();
            kinds.into_iter().for_each(|kind| *workloads.entry(kind).or_default() += 1);
            assert!(!situation.actions.is_empty() && situation.actions.len() <= 8, "{situation}");
            assert!(situation.snapshot_at < situation.ends_at);
        }
        for kind in ActionKind::ALL {
            assert!(actions.get(&kind).copied().unwrap_or_default() >= 5, "{kind:?}: {actions:?}");
        }
        assert!(workloads.len() >= 7 && workloads.values().all(|count| *count >= 5), "{workloads:?}");
        assert!(all.iter().filter(|situation| situation.node_fails()).count() >= 75);
        assert!(all.iter().filter(|situation| situation.has_attached_volumes()).count() >= 60);
        assert!(all.iter().any(|situation| situation.cluster.nodes.len() > 30));
    }

    #[test]
    fn the_commands_are_understood() {
        for number in 0..200 {
            for action in Situation::draw(2, number, FAST).actions {
                for line in action.lines(&|_| vec!["x".to_owned()]) {
                    KubectlCommand::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                }
            }
        }
    }
}
