//! The cluster of a run: five machines in two zones, workloads with and without volumes, one storage driver.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_chance::Chance;
use stead_recovery::{EvidenceKind, RecoveryPolicy};
use stead_sim::{Choices, ControllerId, DriverSettings, MachineSpec, Settings, SimObject, Simulation, Write};

/// The number of nodes.
pub(crate) const NODES: usize = 5;

/// The driver whose volumes a machine can no longer write after a detach, and the one without this.
const REVOKING: &str = "revoking.test";
const NOT_REVOKING: &str = "not-revoking.test";

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "x";

/// The workload whose pod stays on an unreachable node.
const CLINGS: &str = "clings";

/// The components that the workloads of a run need.
const COMPONENTS: [ControllerId; 13] = [
    ControllerId::Scheduler,
    ControllerId::ReplicaSets,
    ControllerId::StatefulSets,
    ControllerId::NodeLifecycle,
    ControllerId::TaintEviction,
    ControllerId::PodGc,
    ControllerId::GarbageCollector,
    ControllerId::VolumeBinder,
    ControllerId::ClaimProtection,
    ControllerId::AttachDetach,
    ControllerId::Provisioner,
    ControllerId::Attacher,
    ControllerId::Kubelet,
];

/// Which taints the pods of a workload tolerate for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerates {
    Nothing,
    /// The taints of an unreachable or not ready node.
    NotReady,
    /// The out-of-service taint.
    OutOfService,
    All,
    /// The out-of-service taint, but only for a minute.
    OutOfServiceForAMinute,
}

/// A workload. The pods of a StatefulSet have fixed names, and are replaced after they are deleted.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    stateful: bool,
    replicas: usize,
    volumes: bool,
    pub(crate) tolerates: Tolerates,
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// How long a change takes to reach a controller.
    pub(crate) reaction: SignedDuration,
    /// From the start of a machine to the first report of its kubelet.
    pub(crate) boot: SignedDuration,
    /// How long a kubelet takes to remove the mounts of a pod.
    pub(crate) unmount: SignedDuration,
    /// Whether a machine can still write to a volume after it was detached.
    pub(crate) not_revoking: bool,
    /// The number of pods per node.
    pub(crate) slots: usize,
    /// Whether the pods of StatefulSets are created one after the other.
    pub(crate) ordered: bool,
    /// The percentage of requests that fail.
    pub(crate) flaky: u64,
    /// The percentage of reads that get everything except nodes from an older read.
    pub(crate) stale: u64,
    /// Whether users give false confirmations.
    pub(crate) lies: bool,
    pub(crate) workloads: Vec<Workload>,
}

impl Setting {
    pub(crate) fn draw(chance: &mut Chance, lies: bool) -> Setting {
        let workload =
            |name, stateful, replicas, volumes, tolerates| Workload { name, stateful, replicas, volumes, tolerates };
        let mut workloads = vec![
            workload("db", true, 2, true, Tolerates::Nothing),
            workload("web", false, 1, true, Tolerates::Nothing),
        ];
        let tolerates = if chance.percent(50) { Tolerates::All } else { Tolerates::OutOfService };
        workloads.extend(chance.percent(60).then(|| workload("any", true, 2, false, tolerates)));
        workloads.extend(chance.percent(40).then(|| workload("plain", false, 2, false, Tolerates::Nothing)));
        let clings = chance.percent(40);
        let mut setting = Setting {
            reaction: SignedDuration::from_millis([2, 2, 500, 5_000][chance.below(4) as usize]),
            boot: SignedDuration::from_secs(30),
            unmount: SignedDuration::from_millis([300, 20_000][chance.below(2) as usize]),
            not_revoking: chance.percent(30),
            slots: if chance.percent(30) { 2 } else { 4 },
            ordered: chance.percent(30),
            flaky: chance.below(3) * 12,
            stale: chance.below(3) * 15,
            lies,
            workloads,
        };
        if clings {
            setting.add_clinging();
        }
        setting
    }

    /// A pod with a volume that stays on an unreachable node, and may be scheduled to one.
    pub(crate) fn add_clinging(&mut self) {
        self.workloads.retain(|workload| workload.name != CLINGS);
        let tolerates = Tolerates::NotReady;
        self.workloads.push(Workload { name: CLINGS, stateful: true, replicas: 1, volumes: true, tolerates });
    }

    fn driver(&self) -> &'static str {
        if self.not_revoking { NOT_REVOKING } else { REVOKING }
    }

    /// The workload of a pod.
    pub(crate) fn workload_of(&self, pod: &str) -> &Workload {
        self.workloads.iter().find(|workload| pod.starts_with(workload.name)).expect("each pod has a workload")
    }
}

/// What the owners of the cluster allow.
pub(crate) fn draw_policy(chance: &mut Chance) -> RecoveryPolicy {
    let mut accept = BTreeSet::from([EvidenceKind::Person]);
    accept.extend(chance.percent(40).then_some(EvidenceKind::CloudShutdown));
    accept.extend(chance.percent(40).then_some(EvidenceKind::BootIdChanged));
    RecoveryPolicy {
        accept,
        at_once: 1 + chance.below(2) as usize,
        at_once_per_zone: 1,
        allow_pending: chance.percent(50),
        include_tolerating: chance.percent(50),
        detach_revokes: BTreeSet::from([REVOKING.to_owned()]),
    }
}

/// The name of a node.
pub(crate) fn node_name(n: usize) -> String {
    format!("n{n}")
}

/// The zone of a node.
pub(crate) fn zone(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "a" } else { "b" }
}

/// The cluster, with its workloads created.
pub(crate) fn build(setting: &Setting, seed: u64) -> Simulation {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut settings = Settings::default().with_components(&COMPONENTS);
    settings.timers.reaction = setting.reaction;
    settings.kubelet.boot = setting.boot;
    settings.kubelet.unmount = setting.unmount;
    settings.kubelet.events = false;
    settings.storage.events = false;
    let keeps_access = DriverSettings { detach_revokes: false, ..DriverSettings::default() };
    settings.storage.drivers.insert(NOT_REVOKING.into(), keeps_access);
    let mut simulation = Simulation::new(start, settings, Choices::seeded(seed));
    simulation.follow();
    for n in 0..NODES {
        simulation.add_machine(machine(setting, n)).unwrap();
    }
    for object in objects(setting) {
        simulation.request(Write::Create(SimObject::from_json(&object).unwrap())).unwrap();
    }
    simulation
}

fn machine(setting: &Setting, n: usize) -> MachineSpec {
    let name = node_name(n);
    let mut spec =
        MachineSpec::named(&name).with_label("topology.kubernetes.io/zone", zone(n)).with_driver(setting.driver(), &[]);
    spec.provider_id = Some(format!("openstack:///{name}"));
    spec.capacity.insert("pods".into(), setting.slots.to_string());
    spec
}

fn objects(setting: &Setting) -> Vec<Value> {
    let driver = setting.driver();
    let mut objects = vec![
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": driver },
            "spec": { "attachRequired": true } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disks" },
            "provisioner": driver, "volumeBindingMode": "Immediate" }),
    ];
    for workload in &setting.workloads {
        let claim = json!({ "storageClassName": "disks", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } });
        if workload.volumes && !workload.stateful {
            objects.push(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": "data", "namespace": NAMESPACE }, "spec": claim }));
        }
        objects.push(object(workload, setting, claim));
    }
    objects
}

/// The StatefulSet or ReplicaSet of a workload.
fn object(workload: &Workload, setting: &Setting, claim: Value) -> Value {
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    let labels = json!({ "app": workload.name });
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": if workload.stateful { "StatefulSet" } else { "ReplicaSet" },
        "metadata": { "name": workload.name, "namespace": NAMESPACE },
        "spec": {
            "replicas": workload.replicas, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "i" }], "tolerations": tolerations(workload.tolerates) } },
        },
    });
    if workload.stateful {
        object["spec"]["serviceName"] = workload.name.into();
        object["spec"]["podManagementPolicy"] = if setting.ordered { "OrderedReady" } else { "Parallel" }.into();
        if workload.volumes {
            object["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": claim }]);
        }
    } else if workload.volumes {
        object["spec"]["template"]["spec"]["volumes"] = volumes;
    }
    object
}

fn tolerations(tolerates: Tolerates) -> Vec<Value> {
    let exists = |key: &str| json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists" });
    match tolerates {
        Tolerates::Nothing => Vec::new(),
        Tolerates::NotReady => vec![exists("not-ready"), exists("unreachable")],
        Tolerates::OutOfService => vec![exists("out-of-service")],
        Tolerates::OutOfServiceForAMinute => {
            let mut toleration = exists("out-of-service");
            toleration["effect"] = "NoExecute".into();
            toleration["tolerationSeconds"] = 60.into();
            vec![toleration]
        }
        Tolerates::All => vec![exists("out-of-service"), exists("not-ready"), exists("unreachable")],
    }
}
