//! The format of a rehearsal: a cluster, and what is done, what fails and what is expected in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::duration::HumanDuration;
use crate::expectation::Expectation;

/// The apiVersion of a rehearsal.
pub const API_VERSION: &str = "stead.dev/v1alpha1";

/// A rehearsal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rehearsal {
    /// `stead.dev/v1alpha1`.
    pub api_version: String,
    /// `Rehearsal`.
    pub kind: String,
    /// Its name.
    pub metadata: RehearsalMetadata,
    /// What it shows, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The Kubernetes version, such as `1.31`; that of the nodes if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The namespace of commands without `-n`, and of expectations that name none; `default` if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Where the cluster comes from.
    pub cluster: ClusterSource,
    /// How long containers take to start, to become ready and to stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadTiming>,
    /// What happens, one after the other.
    pub steps: Vec<RehearsalStep>,
}

/// The metadata of a rehearsal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RehearsalMetadata {
    /// The name.
    pub name: String,
}

/// Where the cluster comes from: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSource {
    /// A cluster that is part of Stead: one of [`crate::EXAMPLES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// A dump: a file or a directory, relative to the rehearsal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Objects. Those with a UID are taken as they are; the others are created at the beginning, and a Node that is created
    /// gets a healthy machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<Value>>,
    /// The cluster of the kubeconfig, as it is now. It is only read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub live: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The delays of the pods of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadTiming {
    /// The workload, such as `sts/web`; all workloads if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// From available volumes to running containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<HumanDuration>,
    /// From running to ready containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<HumanDuration>,
    /// From the deletion of a pod to the end of its containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<HumanDuration>,
}

/// One step: exactly one of `run`, `fail`, `heal`, `skip`, `wait` and `expect`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RehearsalStep {
    /// The heading of this step and of those after it that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A command that begins with `kubectl` or `oc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The objects that `-f -` of the command reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<Value>,
    /// The lines that the command prints; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prints: Option<String>,
    /// The error with which the command fails; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Something fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<FailureTarget>,
    /// Something that failed is repaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heal: Option<FailureTarget>,
    /// Time passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<HumanDuration>,
    /// Time passes until something is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitStep>,
    /// Something has to be so now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expectation>,
}

/// What fails or is repaired: exactly one of `node`, `zone` and `driver`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailureTarget {
    /// A node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// All nodes of a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// A storage driver: it attaches, detaches and creates no volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// How a node fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<FailureKind>,
    /// What the driver reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a machine fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// It stops at once.
    Crash,
    /// It is paused: everything on it goes on later.
    Suspend,
    /// It is shut down.
    Shutdown,
    /// It runs, but does not reach the API server.
    Partition,
    /// Its kubelet stops; containers go on.
    Kubelet,
}

/// Waits for something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitStep {
    /// What to wait for: an expectation, or `rest`.
    #[serde(rename = "for")]
    pub until: WaitFor,
    /// How long at most.
    pub within: HumanDuration,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WaitFor {
    /// `rest`: until nothing happens any more; or `ready KIND/NAME`, `gone KIND/NAME`.
    Text(String),
    /// Until an expectation holds.
    Expectation(Box<Expectation>),
}

/// What is wrong with a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RehearsalError {
    /// The field, such as `steps[3].run`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl RehearsalError {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> RehearsalError {
        RehearsalError { field: field.into(), message: message.into() }
    }
}

/// Refuses all but one of several fields.
fn exactly_one(field: &str, given: &[(&str, bool)]) -> Result<(), RehearsalError> {
    let set: Vec<&str> = given.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
    match set.as_slice() {
        [_] => Ok(()),
        [] => Err(RehearsalError::new(field, format!("one of {} is needed", names.join(", ")))),
        _ => Err(RehearsalError::new(field, format!("only one of {} is allowed", set.join(", ")))),
    }
}

impl Rehearsal {
    /// The namespace of commands and expectations that name none.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Checks what the types alone do not say.
    pub fn check(&self) -> Result<(), RehearsalError> {
        if self.api_version != API_VERSION {
            return Err(RehearsalError::new(
                "apiVersion",
                format!("must be {API_VERSION}, not {:?}", self.api_version),
            ));
        }
        if self.kind != "Rehearsal" {
            return Err(RehearsalError::new("kind", format!("must be Rehearsal, not {:?}", self.kind)));
        }
        if self.metadata.name.is_empty() {
            return Err(RehearsalError::new("metadata.name", "must not be empty"));
        }
        let cluster = &self.cluster;
        let sources = [
            ("example", cluster.example.is_some()),
            ("from", cluster.from.is_some()),
            ("objects", cluster.objects.is_some()),
            ("live", cluster.live),
        ];
        exactly_one("cluster", &sources)?;
        if let Some(name) = cluster.example.as_ref().filter(|name| crate::example::example(name).is_none()) {
            let known: Vec<&str> = crate::EXAMPLES.iter().map(|example| example.name).collect();
            let message = format!("there is no example {name:?}; the examples are {}", known.join(", "));
            return Err(RehearsalError::new("cluster.example", message));
        }
        for (i, timing) in self.workloads.iter().enumerate() {
            let reference = timing.of.as_ref().map(|of| crate::expectation::reference(of, self.namespace()));
            reference.transpose().map_err(|message| RehearsalError::new(format!("workloads[{i}].of"), message))?;
        }
        if let Some(version) = &self.kubernetes {
            version
                .parse::<stead_model::ClusterVersion>()
                .map_err(|error| RehearsalError::new("kubernetes", error.to_string()))?;
        }
        if self.steps.is_empty() {
            return Err(RehearsalError::new("steps", "at least one step is needed"));
        }
        self.steps.iter().enumerate().try_for_each(|(i, step)| step.check(&format!("steps[{i}]")))
    }
}

impl RehearsalStep {
    fn check(&self, field: &str) -> Result<(), RehearsalError> {
        let kinds = [
            ("run", self.run.is_some()),
            ("fail", self.fail.is_some()),
            ("heal", self.heal.is_some()),
            ("skip", self.skip.is_some()),
            ("wait", self.wait.is_some()),
            ("expect", self.expect.is_some()),
        ];
        exactly_one(field, &kinds)?;
        let of_run =
            [("objects", !self.objects.is_empty()), ("prints", self.prints.is_some()), ("error", self.error.is_some())];
        if let Some((name, _)) = of_run.iter().find(|(_, given)| *given && self.run.is_none()) {
            return Err(RehearsalError::new(format!("{field}.{name}"), "belongs to run"));
        }
        if let Some(line) = &self.run {
            let parsed = stead_kubectl::KubectlCommand::parse(line);
            parsed.map_err(|error| RehearsalError::new(format!("{field}.run"), error.to_string()))?;
        }
        for (name, target) in [("fail", &self.fail), ("heal", &self.heal)] {
            let Some(target) = target else { continue };
            let field = format!("{field}.{name}");
            let targets =
                [("node", target.node.is_some()), ("zone", target.zone.is_some()), ("driver", target.driver.is_some())];
            exactly_one(&field, &targets)?;
            if target.how.is_some() && (target.driver.is_some() || name == "heal") {
                return Err(RehearsalError::new(format!("{field}.how"), "is only for nodes and zones that fail"));
            }
            if target.message.is_some() && (target.driver.is_none() || name == "heal") {
                return Err(RehearsalError::new(format!("{field}.message"), "is only for a driver that fails"));
            }
            if name == "fail" && target.driver.is_none() && target.how.is_none() {
                let message = "is needed: crash, suspend, shutdown, partition or kubelet";
                return Err(RehearsalError::new(format!("{field}.how"), message));
            }
        }
        match &self.wait {
            Some(WaitStep { until: WaitFor::Expectation(expectation), .. }) => {
                expectation.check(&format!("{field}.wait.for"))?;
            }
            Some(WaitStep { until: WaitFor::Text(text), .. }) => {
                crate::expectation::waited_for(text)
                    .map_err(|message| RehearsalError::new(format!("{field}.wait.for"), message))?;
            }
            None => {}
        }
        self.expect.iter().try_for_each(|expectation| expectation.check(&format!("{field}.expect")))
    }
}
