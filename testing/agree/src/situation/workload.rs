//! The workloads of a situation.

use std::fmt;

use stead_chance::Chance;
use stead_testbed::ClusterSpec;

use super::actions::ActionKind;

/// The controller of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment {
        /// Whether old pods are deleted first.
        recreate: bool,
    },
    /// A StatefulSet.
    StatefulSet {
        /// In which order it creates its pods.
        management: Management,
        /// The partition of its rolling update.
        partition: u64,
    },
    /// A DaemonSet.
    DaemonSet,
    /// A Job.
    Job {
        /// Whether each pod has an index.
        indexed: bool,
    },
    /// A CronJob.
    CronJob,
    /// A pod without a controller.
    Bare,
}

/// The order in which a StatefulSet creates its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Management {
    /// One after the other.
    Ordered,
    /// All at the same time.
    Parallel,
}

/// The storage of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// No storage.
    None,
    /// Storage of the node.
    Local,
    /// A disk that can be attached to the nodes of one zone.
    ZoneDisk,
    /// A disk that can be attached to any node.
    Disk,
    /// Storage that all nodes can use at the same time.
    Shared,
}

/// Where the pods may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere.
    Free,
    /// Evenly over the zones.
    SpreadZones {
        /// Whether a pod waits if it cannot be.
        required: bool,
    },
    /// Evenly over the nodes.
    SpreadNodes {
        /// Whether a pod waits if it cannot be.
        required: bool,
    },
    /// Each on a node of its own.
    Apart {
        /// Whether a pod waits if there is none.
        required: bool,
    },
    /// In one zone.
    Zone,
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The controller.
    pub kind: WorkloadKind,
    /// The number of pods.
    pub replicas: u64,
    /// The storage.
    pub storage: Storage,
    /// Where the pods may run.
    pub placement: Placement,
    /// The priority class.
    pub priority: Option<&'static str>,
    /// The CPUs that each pod requests, in thousandths.
    pub cpu: u64,
    /// How many pods a budget allows to be disrupted; none without a budget.
    pub budget: Option<u64>,
    /// How long the pods tolerate a lost node, in seconds; none for the default.
    pub toleration: Option<u64>,
    /// `minReadySeconds`.
    pub min_ready: u64,
}

impl WorkloadKind {
    /// The kind, for statistics.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::Deployment { .. } => "Deployment",
            WorkloadKind::StatefulSet { partition: 1.., .. } => "StatefulSet, partition",
            WorkloadKind::StatefulSet { management: Management::Ordered, .. } => "StatefulSet, ordered",
            WorkloadKind::StatefulSet { .. } => "StatefulSet, parallel",
            WorkloadKind::DaemonSet => "DaemonSet",
            WorkloadKind::Job { .. } => "Job",
            WorkloadKind::CronJob => "CronJob",
            WorkloadKind::Bare => "bare pod",
        }
    }

    /// The resource, as in kubectl's command lines.
    pub fn resource(self) -> &'static str {
        match self {
            WorkloadKind::Deployment { .. } => "deployment",
            WorkloadKind::StatefulSet { .. } => "statefulset",
            WorkloadKind::DaemonSet => "daemonset",
            WorkloadKind::Job { .. } => "job",
            WorkloadKind::CronJob => "cronjob",
            WorkloadKind::Bare => "pod",
        }
    }

    /// Whether it has a template that can be changed.
    pub fn has_rollout(self) -> bool {
        matches!(self, WorkloadKind::Deployment { .. } | WorkloadKind::StatefulSet { .. } | WorkloadKind::DaemonSet)
    }

    /// Whether it can be scaled.
    pub fn is_scalable(self) -> bool {
        matches!(self, WorkloadKind::Deployment { .. } | WorkloadKind::StatefulSet { .. })
    }
}

impl Storage {
    /// All kinds.
    pub const ALL: [Storage; 5] = [Storage::None, Storage::Local, Storage::ZoneDisk, Storage::Disk, Storage::Shared];

    /// The storage class, which is also the name of its driver.
    pub fn class(self) -> Option<&'static str> {
        match self {
            Storage::None => None,
            Storage::Local => Some("local"),
            Storage::ZoneDisk => Some("zone-disk"),
            Storage::Disk => Some("disk"),
            Storage::Shared => Some("shared"),
        }
    }

    /// Whether a volume has to be attached.
    pub fn is_attached(self) -> bool {
        matches!(self, Storage::ZoneDisk | Storage::Disk)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} x{}", self.kind.name(), self.name, self.replicas)?;
        if let Some(class) = self.storage.class() {
            write!(f, " on {class}")?;
        }
        Ok(())
    }
}

/// One to four workloads. The first one is of a kind that the number selects, or that the first action needs.
pub(super) fn draw_all(
    chance: &mut Chance,
    number: u64,
    first: ActionKind,
    attached: bool,
    cluster: &ClusterSpec,
) -> Vec<Workload> {
    let count = 1 + chance.below(4) as usize;
    let mut workloads: Vec<Workload> = Vec::new();
    for place in 0..count as u64 {
        let kind = kind(chance, number * 3 + place);
        workloads.push(draw(chance, place, kind, cluster));
    }
    if !workloads.iter().any(|workload| first.suits(workload.kind)) {
        let wanted = (0..8).map(|number| kind(chance, number)).find(|kind| first.suits(*kind));
        workloads[0] = draw(chance, 0, wanted.unwrap_or(WorkloadKind::Deployment { recreate: false }), cluster);
    }
    if attached && !workloads.iter().any(|workload| workload.storage.is_attached()) {
        let kinds = [
            WorkloadKind::StatefulSet { management: Management::Ordered, partition: 0 },
            WorkloadKind::StatefulSet { management: Management::Parallel, partition: 0 },
            WorkloadKind::Deployment { recreate: true },
        ];
        let kind = chance.one_of(&kinds).unwrap_or(WorkloadKind::Bare);
        let mut workload = draw(chance, workloads.len() as u64, kind, cluster);
        workload.storage = chance.one_of(&[Storage::Disk, Storage::Disk, Storage::ZoneDisk]).unwrap_or(Storage::Disk);
        if !matches!(kind, WorkloadKind::StatefulSet { .. }) {
            workload.replicas = 1;
        }
        workloads.push(workload);
    }
    workloads
}

/// The kind with a number: eight consecutive ones are all kinds.
fn kind(chance: &mut Chance, number: u64) -> WorkloadKind {
    match number % 8 {
        0 => WorkloadKind::Deployment { recreate: chance.percent(30) },
        1 => WorkloadKind::StatefulSet { management: Management::Ordered, partition: 0 },
        2 => WorkloadKind::DaemonSet,
        3 => WorkloadKind::StatefulSet { management: Management::Parallel, partition: 0 },
        4 => WorkloadKind::Job { indexed: chance.percent(40) },
        5 => {
            let management = if chance.percent(50) { Management::Ordered } else { Management::Parallel };
            WorkloadKind::StatefulSet { management, partition: 1 + chance.below(2) }
        }
        6 => WorkloadKind::Bare,
        _ => WorkloadKind::CronJob,
    }
}

fn draw(chance: &mut Chance, place: u64, kind: WorkloadKind, cluster: &ClusterSpec) -> Workload {
    let storage = match kind {
        WorkloadKind::StatefulSet { .. } => chance.one_of(&Storage::ALL),
        WorkloadKind::Deployment { .. } | WorkloadKind::Bare => {
            chance.one_of(&[Storage::None, Storage::None, Storage::Disk, Storage::ZoneDisk, Storage::Shared])
        }
        _ => None,
    };
    let storage = storage.unwrap_or(Storage::None);
    let shares_disk = storage.is_attached() && !matches!(kind, WorkloadKind::StatefulSet { .. });
    let replicas = match kind {
        WorkloadKind::Bare => 1,
        WorkloadKind::DaemonSet => cluster.nodes.len() as u64,
        _ if shares_disk => 1,
        _ => 1 + chance.below(5),
    };
    let placement = match chance.below(12) {
        0 | 1 => Placement::SpreadZones { required: chance.percent(50) },
        2 => Placement::SpreadNodes { required: chance.percent(50) },
        3 | 4 => Placement::Apart { required: chance.percent(50) },
        5 => Placement::Zone,
        _ => Placement::Free,
    };
    let placement = if kind == WorkloadKind::DaemonSet { Placement::Free } else { placement };
    Workload {
        name: format!("w{place}"),
        kind,
        replicas,
        storage,
        placement,
        priority: chance.one_of(&[None, None, None, Some("high"), Some("low")]).flatten(),
        cpu: chance.one_of(&[0, 100, 500, 1000]).unwrap_or(0),
        budget: chance.percent(30).then(|| chance.below(2)),
        toleration: chance.percent(20).then(|| 5 + chance.below(10)),
        min_ready: if chance.percent(20) { 3 } else { 0 },
    }
}
