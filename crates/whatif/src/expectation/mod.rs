//! What a rehearsal expects of the cluster, and whether it is so.
//!
//! One file for each group of questions; all of them only read the simulation.

mod network;
mod objects;
mod pattern;
mod reference;
mod row_matching;
mod storage;
mod tables;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_semantics::labels::Selector;
use stead_sim::Simulation;

use crate::pod_table::COLUMNS;
use crate::rehearsal::RehearsalError;

pub(crate) use pattern::Pattern;
pub(crate) use reference::{WaitedFor, reference, waited_for};
use row_matching::TextTable;
use tables::NODE_COLUMNS;
pub(crate) use tables::{ZONE_LABELS, node_ready, zone_of};

/// What has to be so: all fields that are given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// The namespace; that of the rehearsal if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Which pods the table is about: a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Only pods with such a name: `*` matches any text, `|` separates several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// Only pods on these nodes, or in these zones: `worker-0`, `zone:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// The pods, as `kubectl get pods -o wide` prints them, with any of its columns. Every pod has to match one row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<String>,
    /// The nodes, as `kubectl get nodes` prints them, with any of its columns. Every node has to match one row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// An event that was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventExpectation>,
    /// A condition of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionExpectation>,
    /// The value of a field of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<FieldExpectation>,
    /// A service that has ready endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<ServingExpectation>,
    /// The pods that can write to the volume of a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<WritersExpectation>,
    /// Where the volume of a claim is, and where it can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeExpectation>,
    /// What `kubectl exec` in a pod answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecExpectation>,
    /// An object that does not exist, such as `pod/web-0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventExpectation {
    /// The object, such as `pod/web-0`; `*` matches any text.
    pub about: String,
    /// The reason.
    pub reason: String,
    /// The message; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A condition of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConditionExpectation {
    /// The object, such as `node/worker-0`.
    pub of: String,
    /// The type of the condition.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its message; `*` matches any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A field of an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldExpectation {
    /// The object, such as `sts/web`.
    pub of: String,
    /// The path, such as `status.readyReplicas`.
    pub path: String,
    /// The value; null for a field that is missing.
    pub is: Value,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServingExpectation {
    /// The name of the service.
    pub service: String,
    /// How many of its endpoints are ready.
    pub endpoints: usize,
}

/// The pods that can write to a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WritersExpectation {
    /// The claim.
    pub claim: String,
    /// The names of the pods; `*` matches any text.
    pub pods: Vec<String>,
}

/// The volume of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeExpectation {
    /// The claim.
    pub claim: String,
    /// The nodes that can use it, by its node affinity; `zone:NAME` for all nodes of a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_on: Option<Vec<String>>,
    /// The nodes that the storage has attached it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_to: Option<Vec<String>>,
}

/// A command in a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecExpectation {
    /// The pod.
    pub pod: String,
    /// The error; `*` matches any text. None if the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Expectation {
    /// Whether it asks for nothing.
    fn is_empty(&self) -> bool {
        let asks = Expectation { namespace: None, selector: None, names: None, on: Vec::new(), ..self.clone() };
        asks == Expectation::default()
    }

    /// Checks what the types alone do not say.
    pub(crate) fn check(&self, field: &str) -> Result<(), RehearsalError> {
        let invalid = |name: &str, message: String| RehearsalError::new(format!("{field}.{name}"), message);
        if self.is_empty() {
            let names = "pods, nodes, event, condition, field, serving, writers, volume, exec, absent";
            return Err(RehearsalError::new(field, format!("one of {names} is needed")));
        }
        let filters =
            [("selector", self.selector.is_some()), ("names", self.names.is_some()), ("on", !self.on.is_empty())];
        if let Some((name, _)) = filters.iter().find(|(_, given)| *given && self.pods.is_none()) {
            return Err(invalid(name, "belongs to pods".to_owned()));
        }
        if let Some(selector) = &self.selector {
            Selector::parse(selector).map_err(|error| invalid("selector", error.to_string()))?;
        }
        if let Some(text) = &self.pods {
            TextTable::parse(text, &COLUMNS).map_err(|message| invalid("pods", message))?;
        }
        if let Some(text) = &self.nodes {
            TextTable::parse(text, &NODE_COLUMNS).map_err(|message| invalid("nodes", message))?;
        }
        let references = [
            ("condition.of", self.condition.as_ref().map(|condition| &condition.of)),
            ("field.of", self.field.as_ref().map(|field| &field.of)),
            ("absent", self.absent.as_ref()),
        ];
        for (name, text) in references {
            text.map(|text| reference(text, "default")).transpose().map_err(|message| invalid(name, message))?;
        }
        Ok(())
    }

    /// Checks whether it is so; the error says what is so instead. The namespace is for an expectation that names none. Ages
    /// may differ by the tolerance.
    pub fn holds(&self, simulation: &Simulation, namespace: &str, age_tolerance: SignedDuration) -> Result<(), String> {
        let namespace = self.namespace.as_deref().unwrap_or(namespace);
        let view = View { simulation, namespace, age_tolerance };
        self.check_pods(view)?;
        self.check_nodes(view)?;
        self.event.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.condition.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.field.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.serving.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.writers.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.volume.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.exec.as_ref().map_or(Ok(()), |wanted| wanted.holds(view))?;
        self.absent.as_ref().map_or(Ok(()), |text| objects::is_absent(view, text))
    }

    /// Whether it is about ages, which change without an event.
    pub(crate) fn has_ages(&self) -> bool {
        [&self.pods, &self.nodes].into_iter().flatten().any(|text| {
            let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            header.split_whitespace().any(|column| column == "AGE")
        })
    }

    /// What it is about, in a few words.
    pub(crate) fn subject(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some(text) = &self.pods {
            let rows = text.lines().filter(|line| !line.trim().is_empty()).count().saturating_sub(1);
            parts.push(if rows == 1 { "1 pod".to_owned() } else { format!("{rows} pods") });
        }
        parts.extend(self.nodes.iter().map(|_| "nodes".to_owned()));
        parts.extend(self.event.iter().map(|event| format!("event {} of {}", event.reason, event.about)));
        parts.extend(self.condition.iter().map(|wanted| format!("{} of {}", wanted.condition_type, wanted.of)));
        parts.extend(self.field.iter().map(|field| format!("{} of {}", field.path, field.of)));
        parts.extend(self.serving.iter().map(|serving| format!("endpoints of {}", serving.service)));
        parts.extend(self.writers.iter().map(|writers| format!("writers of {}", writers.claim)));
        parts.extend(self.volume.iter().map(|volume| format!("volume of {}", volume.claim)));
        parts.extend(self.exec.iter().map(|exec| format!("exec in {}", exec.pod)));
        parts.extend(self.absent.iter().map(|name| format!("no {name}")));
        parts.join(", ")
    }
}

/// What an expectation looks at.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    simulation: &'a Simulation,
    namespace: &'a str,
    age_tolerance: SignedDuration,
}
