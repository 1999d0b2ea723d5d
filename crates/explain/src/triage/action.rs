//! The recommended action of a cause: a command as a rule, with what to do about its answer.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};
use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Group, Root};
use super::summary::{named, rejected_objects};
use crate::suggested_command::{ClientAtHand, SuggestedCommand};

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriageAction {
    /// A sentence; empty where the command says enough.
    advice: String,
    command: Option<SuggestedCommand>,
}

impl TriageAction {
    fn run(command: SuggestedCommand) -> TriageAction {
        TriageAction { advice: String::new(), command: Some(command) }
    }

    fn and(self, advice: &str) -> TriageAction {
        TriageAction { advice: advice.into(), ..self }
    }

    fn advise(advice: impl Into<String>) -> TriageAction {
        TriageAction { advice: advice.into(), command: None }
    }

    /// Writes the command for this client.
    pub(crate) fn use_client(&mut self, client: &ClientAtHand) {
        if let Some(command) = &mut self.command {
            command.use_client(client);
        }
    }
}

impl Display for TriageAction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.command, self.advice.as_str()) {
            (Some(command), "") => write!(f, "{command}"),
            (Some(command), advice) => write!(f, "{advice}: {command}"),
            (None, advice) => write!(f, "{advice}"),
        }
    }
}

impl Serialize for TriageAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn describe(key: &ObjectKey) -> TriageAction {
    TriageAction::run(SuggestedCommand::client(
        &key.namespace,
        format!("describe {} {}", key.kind.to_lowercase(), key.name),
    ))
}

fn explain(key: &ObjectKey) -> TriageAction {
    let namespace = if key.namespace.is_empty() { String::new() } else { format!(" -n {}", key.namespace) };
    TriageAction::run(SuggestedCommand::stead(format!("explain {}/{}{namespace}", key.kind.to_lowercase(), key.name)))
}

fn logs(pod: &ObjectKey) -> TriageAction {
    TriageAction::run(SuggestedCommand::client(
        &pod.namespace,
        format!("logs {} --all-containers --previous", pod.name),
    ))
}

/// What to do about a cause.
pub(super) fn action(evidence: &Evidence<'_>, root: &Root, group: &Group) -> TriageAction {
    let about = &root.about;
    let pod = group.objects.iter().find(|key| key.kind == "Pod");
    let exists = |key: &ObjectKey| evidence.objects.contains(key);
    match root.cause {
        StuckCause::NodeUnreachable | StuckCause::NodeNotReady if exists(about) => explain(about),
        StuckCause::NodeUnreachable | StuckCause::NodeNotReady => pod.map_or_else(|| describe(about), explain),
        StuckCause::Unschedulable if group.cordoned.is_some() => {
            let node = group.cordoned.as_deref().unwrap_or_default();
            TriageAction::run(SuggestedCommand::client("", format!("uncordon {node}")))
        }
        StuckCause::CrashLoop => pod.map_or_else(|| describe(about), logs),
        StuckCause::MissingReference => match pod {
            Some(pod) if about.kind == "Pod" || !evidence.workloads(pod).is_empty() && exists(about) => describe(pod),
            _ => TriageAction::advise(format!("create {}, or correct the reference to it", named(about))),
        },
        StuckCause::QuotaExceeded => {
            describe(about).and(&format!("raise the quota or delete {}", rejected_objects(group)))
        }
        StuckCause::FinalizerBlocks => describe(about).and("find what removes the finalizer"),
        StuckCause::SchedulingGated => TriageAction::advise("the controller that set the gate has to remove it"),
        StuckCause::TopologyUnsatisfiable => explain(about),
        StuckCause::BudgetBlocks => describe(about).and("add replicas or relax the budget"),
        StuckCause::ClaimUnbound | StuckCause::CreateRejected | StuckCause::ReplicasMissing => describe(about),
        StuckCause::DriverFailing => match pod.or(group.objects.iter().next()) {
            Some(object) => describe(object).and("check the pods of the driver"),
            None => describe(about),
        },
        StuckCause::ImagePull
        | StuckCause::ProbeFailing
        | StuckCause::InitNotFinished
        | StuckCause::ConfigInvalid
        | StuckCause::SandboxFailing => describe(pod.unwrap_or(about)),
        StuckCause::VolumeHeld
        | StuckCause::Unschedulable
        | StuckCause::NotStarting
        | StuckCause::NotReady
        | StuckCause::TerminationStuck => pod.map_or_else(|| describe(about), explain),
    }
}
