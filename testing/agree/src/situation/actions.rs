//! What is done in a situation, and when.

use std::fmt;

use serde_json::Value;
use stead_chance::Chance;
use stead_testbed::ClusterSpec;

use super::objects;
use super::workload::{Workload, WorkloadKind};
use super::{NAMESPACE, Timers, ZONE};

macro_rules! kinds {
    ($($kind:ident $text:literal)*) => {
        /// A kind of action.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ActionKind {
            $(#[doc = $text] $kind,)*
        }

        impl ActionKind {
            /// All kinds.
            pub const ALL: [ActionKind; [$(ActionKind::$kind),*].len()] = [$(ActionKind::$kind),*];

            /// Its name, for statistics.
            pub fn name(self) -> &'static str {
                match self {
                    $(ActionKind::$kind => $text,)*
                }
            }
        }
    };
}

kinds! {
    Scale "scale"
    EditTemplate "edit template"
    RolloutRestart "rollout restart"
    RolloutPause "rollout pause"
    RolloutUndo "rollout undo"
    DeleteBackground "delete, background"
    DeleteForeground "delete, foreground"
    DeleteOrphan "delete, orphan"
    DeletePod "delete pod"
    ForceDeletePod "force delete pod"
    Evict "evict"
    Drain "drain"
    Cordon "cordon"
    Taint "taint"
    Label "label node"
    NodeUnreachable "node unreachable"
    NodeReturns "node returns"
    NodeShutDown "node shut down"
    NodeDeleted "node deleted"
    OutOfService "out-of-service taint"
    DetachFails "volume does not detach"
    DriverFails "driver fails"
    ClaimDeleted "claim deleted"
    BudgetAdded "budget added"
    NamespaceDeleted "namespace deleted"
}

impl ActionKind {
    /// Whether it needs a node that has failed.
    pub(super) fn needs_failed_node(self) -> bool {
        matches!(self, ActionKind::NodeReturns | ActionKind::OutOfService)
    }

    /// Whether a node fails.
    pub fn fails_node(self) -> bool {
        matches!(self, ActionKind::NodeUnreachable | ActionKind::NodeShutDown)
    }

    /// Whether it needs a volume that is attached.
    pub(super) fn needs_attached_volume(self) -> bool {
        matches!(self, ActionKind::DetachFails | ActionKind::DriverFails)
    }

    /// Whether it can be done to a workload of this kind, or has nothing to do with workloads.
    pub(super) fn suits(self, kind: WorkloadKind) -> bool {
        match self {
            ActionKind::Scale => kind.is_scalable(),
            ActionKind::EditTemplate | ActionKind::RolloutRestart | ActionKind::RolloutUndo => kind.has_rollout(),
            ActionKind::RolloutPause => matches!(kind, WorkloadKind::Deployment { .. }),
            _ => true,
        }
    }

    fn is_about_workload(self) -> bool {
        matches!(
            self,
            ActionKind::Scale
                | ActionKind::EditTemplate
                | ActionKind::RolloutRestart
                | ActionKind::RolloutPause
                | ActionKind::RolloutUndo
                | ActionKind::DeleteBackground
                | ActionKind::DeleteForeground
                | ActionKind::DeleteOrphan
                | ActionKind::BudgetAdded
        )
    }

    /// Whether it can be taken back.
    fn is_reversible(self) -> bool {
        matches!(
            self,
            ActionKind::RolloutPause
                | ActionKind::Cordon
                | ActionKind::Taint
                | ActionKind::OutOfService
                | ActionKind::DetachFails
                | ActionKind::DriverFails
        )
    }
}

/// What an action is done to. Pods and nodes are found when it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A workload.
    Workload {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
    },
    /// A pod of a workload, by its place in the order of names.
    Pod {
        /// The name of the workload.
        workload: String,
        /// The place.
        nth: usize,
    },
    /// The node of such a pod.
    NodeOf {
        /// The name of the workload.
        workload: String,
        /// The place.
        nth: usize,
    },
    /// A node.
    Node(String),
    /// The node that failed last.
    FailedNode,
    /// A claim of a workload, or its volume, by its place in the order of names.
    Claim {
        /// The name of the workload.
        workload: String,
        /// The place.
        nth: usize,
    },
    /// The driver of a workload's storage.
    Driver(String),
    /// The namespace.
    Namespace,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAction {
    /// When, in milliseconds since all is set up.
    pub at: u64,
    /// What.
    pub kind: ActionKind,
    /// To what.
    pub target: Target,
    /// Whether it is taken back.
    pub undo: bool,
    /// A random number, for what is left to choose.
    pub number: u64,
}

impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, undo) = (self.kind.name(), if self.undo { " undone" } else { "" });
        match &self.target {
            Target::Workload { name: workload, .. } | Target::Driver(workload) => write!(f, "{name}{undo} {workload}"),
            Target::Pod { workload, nth } | Target::NodeOf { workload, nth } | Target::Claim { workload, nth } => {
                write!(f, "{name}{undo} {workload}/{nth}")
            }
            Target::Node(node) => write!(f, "{name}{undo} {node}"),
            Target::FailedNode | Target::Namespace => write!(f, "{name}{undo}"),
        }
    }
}

impl PlannedAction {
    /// The command lines of kubectl; none for an action that is not done by kubectl. `names` gives the names of what the
    /// action is done to.
    pub fn lines(&self, names: &dyn Fn(&Target) -> Vec<String>) -> Vec<String> {
        let names = names(&self.target);
        names.iter().filter_map(|name| self.line(name)).collect()
    }

    fn line(&self, name: &str) -> Option<String> {
        let resource = match &self.target {
            Target::Workload { kind, .. } => kind.resource(),
            _ => "pod",
        };
        let (number, about) = (self.number, format!("{resource} {name} -n {NAMESPACE}"));
        let line = match (self.kind, self.undo) {
            (ActionKind::Scale, _) => format!("scale {about} --replicas={}", number % 6),
            (ActionKind::EditTemplate, _) => {
                let resource = about.replacen(' ', "/", 1);
                format!("set image {resource} main=image:{}", 2 + number % 2)
            }
            (ActionKind::RolloutRestart, _) => format!("rollout restart {about}"),
            (ActionKind::RolloutPause, false) => format!("rollout pause {about}"),
            (ActionKind::RolloutPause, true) => format!("rollout resume {about}"),
            (ActionKind::RolloutUndo, _) => format!("rollout undo {about}"),
            (ActionKind::DeleteBackground, _) => format!("delete {about} --wait=false --cascade=background"),
            (ActionKind::DeleteForeground, _) => format!("delete {about} --wait=false --cascade=foreground"),
            (ActionKind::DeleteOrphan, _) => format!("delete {about} --wait=false --cascade=orphan"),
            (ActionKind::DeletePod, _) => format!("delete {about} --wait=false"),
            (ActionKind::ForceDeletePod, _) => format!("delete {about} --wait=false --force --grace-period=0"),
            (ActionKind::Drain, _) | (ActionKind::Cordon, false) => format!("cordon {name}"),
            (ActionKind::Cordon, true) => format!("uncordon {name}"),
            (ActionKind::Taint, undo) => {
                let effect = if number.is_multiple_of(2) { "NoSchedule" } else { "NoExecute" };
                let key = "example.org/maintenance";
                if undo { format!("taint node {name} {key}-") } else { format!("taint node {name} {key}=yes:{effect}") }
            }
            (ActionKind::OutOfService, undo) => {
                let key = "node.kubernetes.io/out-of-service";
                if undo {
                    format!("taint node {name} {key}-")
                } else {
                    format!("taint node {name} {key}=nodeshutdown:NoExecute")
                }
            }
            (ActionKind::Label, _) => match number % 3 {
                0 => format!("label node {name} {ZONE}-"),
                1 => format!("label node {name} {ZONE}=zone-0 --overwrite"),
                _ => format!("label node {name} example.org/disk=ssd --overwrite"),
            },
            (ActionKind::NodeDeleted, _) => format!("delete node {name} --wait=false"),
            (ActionKind::ClaimDeleted, _) => format!("delete pvc {name} -n {NAMESPACE} --wait=false"),
            (ActionKind::BudgetAdded, _) => format!("create -n {NAMESPACE} -f -"),
            (ActionKind::NamespaceDeleted, _) => format!("delete namespace {NAMESPACE} --wait=false"),
            (
                ActionKind::Evict
                | ActionKind::NodeUnreachable
                | ActionKind::NodeReturns
                | ActionKind::NodeShutDown
                | ActionKind::DetachFails
                | ActionKind::DriverFails,
                _,
            ) => return None,
        };
        Some(format!("kubectl {line}"))
    }

    /// The objects of the command's standard input.
    pub fn input(&self) -> Vec<Value> {
        match (&self.kind, &self.target) {
            (ActionKind::BudgetAdded, Target::Workload { name, .. }) => {
                vec![objects::budget(&format!("{name}-added"), name, self.number % 2)]
            }
            _ => Vec::new(),
        }
    }
}

/// What actions are drawn for.
pub(super) struct Plan<'a> {
    pub(super) cluster: &'a ClusterSpec,
    pub(super) workloads: &'a [Workload],
    pub(super) timers: Timers,
    /// The kind of one of the actions.
    pub(super) first: ActionKind,
    pub(super) node_fails: bool,
}

/// One to five actions.
pub(super) fn draw_all(chance: &mut Chance, plan: &Plan<'_>) -> Vec<PlannedAction> {
    let mut kinds = vec![plan.first];
    if plan.node_fails && !plan.first.fails_node() {
        let failure = if chance.percent(70) { ActionKind::NodeUnreachable } else { ActionKind::NodeShutDown };
        // A node that fails afterwards is of interest, too.
        let place = if plan.first.needs_failed_node() || chance.percent(70) { 0 } else { 1 };
        kinds.insert(place, failure);
    }
    for _ in 0..chance.below(3) {
        let kind = chance.one_of(&ActionKind::ALL).unwrap_or(ActionKind::Scale);
        let has_failed = kinds.iter().any(|kind| kind.fails_node());
        let suits = plan.workloads.iter().any(|workload| kind.suits(workload.kind));
        if suits && (!kind.needs_failed_node() || has_failed) && !(kind.fails_node() && has_failed) {
            kinds.push(kind);
        }
    }
    // A deleted namespace leaves nothing to act on.
    kinds.sort_by_key(|kind| *kind == ActionKind::NamespaceDeleted);
    let (mut at, mut actions) = (1000 + chance.below(2000), Vec::new());
    let mut failed = false;
    for kind in kinds {
        let action = draw(chance, plan, kind, at, failed);
        failed |= kind.fails_node();
        let reversed = kind.is_reversible() && chance.percent(50);
        let undo = PlannedAction { at: at + 2000 + chance.below(20_000), undo: true, ..action.clone() };
        at += gap(chance, plan.timers, kind.fails_node());
        actions.push(action);
        actions.extend(Some(undo).filter(|_| reversed));
    }
    actions.sort_by_key(|action| action.at);
    actions
}

/// The milliseconds to the next action.
fn gap(chance: &mut Chance, timers: Timers, after_failure: bool) -> u64 {
    if !after_failure {
        return if chance.percent(30) { 0 } else { 500 + chance.below(8000) };
    }
    let scale = if timers.real { 8 } else { 1 };
    match chance.below(4) {
        0 => chance.below(7000),
        1 => scale * (10_000 + chance.below(15_000)),
        _ => scale * (41_000 + chance.below(10_000)),
    }
}

fn draw(chance: &mut Chance, plan: &Plan<'_>, kind: ActionKind, at: u64, failed: bool) -> PlannedAction {
    let suitable: Vec<&Workload> = plan
        .workloads
        .iter()
        .filter(|workload| kind.suits(workload.kind))
        .filter(|workload| !kind.needs_attached_volume() || workload.storage.is_attached())
        .filter(|workload| kind != ActionKind::ClaimDeleted || workload.storage.class().is_some())
        .collect();
    let workload = chance.one_of(&suitable).or(plan.workloads.first());
    let name = workload.map(|workload| workload.name.clone()).unwrap_or_default();
    let nth = chance.below(5) as usize;
    let target = match kind {
        ActionKind::NamespaceDeleted => Target::Namespace,
        ActionKind::NodeReturns | ActionKind::OutOfService => Target::FailedNode,
        ActionKind::NodeDeleted if failed => Target::FailedNode,
        ActionKind::ForceDeletePod if failed && chance.percent(60) => Target::Pod { workload: name, nth },
        ActionKind::DetachFails | ActionKind::ClaimDeleted => Target::Claim { workload: name, nth },
        ActionKind::DriverFails => {
            let class = workload.and_then(|workload| workload.storage.class()).unwrap_or("disk");
            Target::Driver(class.to_owned())
        }
        ActionKind::DeletePod | ActionKind::ForceDeletePod | ActionKind::Evict => Target::Pod { workload: name, nth },
        _ if kind.is_about_workload() => {
            let kind = workload.map_or(WorkloadKind::Bare, |workload| workload.kind);
            Target::Workload { kind, name }
        }
        _ if chance.percent(80) => Target::NodeOf { workload: name, nth },
        _ => Target::Node(
            chance
                .one_of(&plan.cluster.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>())
                .unwrap_or_default()
                .to_owned(),
        ),
    };
    PlannedAction { at, kind, target, undo: false, number: chance.below(1000) }
}
