//! What a rehearsal expects of the cluster, and whether it is so.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_kubectl::kind_named;
use stead_semantics::labels::Selector;
use stead_sim::{ObjectKind, SimKey, SimObject, Simulation};

use crate::pattern::Pattern;
use crate::pod_table::{COLUMNS, PodRow, table};
use crate::rehearsal::RehearsalError;
use crate::row_matching::{TextTable, match_rows};

/// What has to be so: all fields that are given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// The namespace; `default` if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Which pods the table is about: a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The pods, as `kubectl get pods -o wide` prints them, with any of its columns. Every pod has to match one row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<String>,
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

/// What a `wait` with a text waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitedFor {
    /// Nothing happens any more.
    Rest,
    /// An object is Ready, or a workload has all its pods ready.
    Ready(String),
    /// An object does not exist any more.
    Gone(String),
}

/// Reads the text of a `wait`.
pub(crate) fn waited_for(text: &str) -> Result<WaitedFor, String> {
    let object = |name: &str| reference(name, "default").map(|_| name.to_owned());
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["rest"] => Ok(WaitedFor::Rest),
        ["ready", name] => object(name).map(WaitedFor::Ready),
        ["gone", name] => object(name).map(WaitedFor::Gone),
        _ => Err(format!("{text:?} is neither rest, ready KIND/NAME, gone KIND/NAME nor an expectation")),
    }
}

/// The key of `KIND/NAME` or `KIND/NAMESPACE/NAME`.
pub(crate) fn reference(text: &str, namespace: &str) -> Result<SimKey, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (kind, namespace, name),
        [kind, namespace, name] => (kind, *namespace, name),
        _ => return Err(format!("{text:?} is not KIND/NAME")),
    };
    let kind = kind_named(kind).ok_or_else(|| format!("{text:?}: there is no kind {kind:?} that Stead knows"))?;
    let namespace = if kind.namespaced { namespace } else { "" };
    Ok(SimKey::new(ObjectKind::of(kind), namespace, name))
}

impl Expectation {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Checks what the types alone do not say.
    pub(crate) fn check(&self, field: &str) -> Result<(), RehearsalError> {
        let invalid = |name: &str, message: String| RehearsalError::new(format!("{field}.{name}"), message);
        let nothing = Expectation { namespace: None, selector: None, ..self.clone() } == Expectation::default();
        if nothing {
            let names = "pods, event, condition, field, serving, writers, absent";
            return Err(RehearsalError::new(field, format!("one of {names} is needed")));
        }
        if let Some(selector) = &self.selector {
            Selector::parse(selector).map_err(|error| invalid("selector", error.to_string()))?;
        }
        if let Some(text) = &self.pods {
            TextTable::parse(text, &COLUMNS).map_err(|message| invalid("pods", message))?;
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

    /// Checks whether it is so; the error says what is so instead.
    pub fn holds(&self, simulation: &Simulation) -> Result<(), String> {
        self.check_pods(simulation)?;
        self.check_event(simulation)?;
        self.check_condition(simulation)?;
        self.check_field(simulation)?;
        self.check_serving(simulation)?;
        self.check_writers(simulation)?;
        if let Some(text) = &self.absent {
            let key = reference(text, self.namespace())?;
            if simulation.store().object(&key).is_some() {
                return Err(format!("{key} exists"));
            }
        }
        Ok(())
    }

    fn check_pods(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(text) = &self.pods else { return Ok(()) };
        let expected = TextTable::parse(text, &COLUMNS)?;
        let selector = match &self.selector {
            Some(text) => Selector::parse(text).map_err(|error| error.to_string())?,
            None => Selector::everything(),
        };
        let pods = simulation.store().all_in::<Pod>(self.namespace());
        let pods = pods.filter(|pod| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&Default::default())));
        let rows: Vec<PodRow> = pods.map(|pod| PodRow::of(pod, simulation.now())).collect();
        let zone_of = |node: &str| zone(simulation, node);
        match_rows(&expected, &rows, &zone_of).map_err(|problem| {
            let cells = |row: &PodRow| -> Vec<String> {
                expected.columns.iter().map(|column| row.cell(column).unwrap_or_default().to_owned()).collect()
            };
            let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
            format!("{problem}\nexpected:\n{}found:\n{}", expected.render(), table(&expected.columns, &rows))
        })
    }

    fn check_event(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(wanted) = &self.event else { return Ok(()) };
        let (kind, name) = wanted.about.split_once('/').unwrap_or(("*", &wanted.about));
        let kind = kind_named(kind).map_or(kind, |kind| kind.kind);
        let message = wanted.message.as_deref().unwrap_or("*");
        let similar = |event: &&stead_sim::SimEvent| {
            let about = &event.note.about;
            event.note.reason == wanted.reason
                && Pattern::new(kind).matches(about.kind.name())
                && Pattern::new(name).matches(&about.name)
        };
        let found: Vec<&str> = simulation.events().iter().filter(similar).map(|e| e.note.message.as_str()).collect();
        if found.iter().any(|text| Pattern::new(message).matches(text)) {
            return Ok(());
        }
        let about = &wanted.about;
        match found.last() {
            None => Err(format!("there is no event {} about {about}", wanted.reason)),
            Some(text) => Err(format!("the event {} about {about} says {text:?}, not {message:?}", wanted.reason)),
        }
    }

    fn check_condition(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(wanted) = &self.condition else { return Ok(()) };
        let object = existing(simulation, &wanted.of, self.namespace())?.to_json();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == wanted.condition_type.as_str());
        let Some(found) = found else {
            return Err(format!("{} has no condition {}", wanted.of, wanted.condition_type));
        };
        let parts = [
            ("status", Some(&wanted.status)),
            ("reason", wanted.reason.as_ref()),
            ("message", wanted.message.as_ref()),
        ];
        for (part, wanted_text) in parts {
            let is = found[part].as_str().unwrap_or_default();
            if let Some(text) = wanted_text.filter(|text| !Pattern::new(text).matches(is)) {
                let kind = &wanted.condition_type;
                return Err(format!("the {part} of condition {kind} of {} is {is:?}, not {text:?}", wanted.of));
            }
        }
        Ok(())
    }

    fn check_field(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(wanted) = &self.field else { return Ok(()) };
        let object = existing(simulation, &wanted.of, self.namespace())?.to_json();
        let value = wanted.path.split('.').fold(&object, |value, name| match name.parse::<usize>() {
            Ok(index) if value.is_array() => &value[index],
            _ => &value[name],
        });
        match *value == wanted.is {
            true => Ok(()),
            false => Err(format!("{} of {} is {value}, not {}", wanted.path, wanted.of, wanted.is)),
        }
    }

    fn check_serving(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(wanted) = &self.serving else { return Ok(()) };
        let of_service = |slice: &&std::sync::Arc<EndpointSlice>| {
            let labels = slice.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get("kubernetes.io/service-name")) == Some(&wanted.service)
        };
        let slices = simulation.store().all_in::<EndpointSlice>(self.namespace()).filter(of_service);
        let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
        let ready = endpoints.filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)).count();
        match ready == wanted.endpoints {
            true => Ok(()),
            false => Err(format!("service {} has {ready} ready endpoints, not {}", wanted.service, wanted.endpoints)),
        }
    }

    fn check_writers(&self, simulation: &Simulation) -> Result<(), String> {
        let Some(wanted) = &self.writers else { return Ok(()) };
        let claim = simulation.store().get::<PersistentVolumeClaim>(self.namespace(), &wanted.claim);
        let Some(claim) = claim else { return Err(format!("there is no claim {}", wanted.claim)) };
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let writers = simulation.world().writers(volume);
        let mut found: Vec<String> = writers.values().flatten().map(|pod| pod.name.to_string()).collect();
        found.sort();
        let mut left = found.clone();
        for pattern in &wanted.pods {
            match left.iter().position(|name| Pattern::new(pattern).matches(name)) {
                Some(at) => drop(left.remove(at)),
                None => return Err(format!("claim {} is written by {found:?}, not by {pattern}", wanted.claim)),
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("claim {} is also written by {left:?}", wanted.claim)),
        }
    }
}

/// An object that has to exist.
fn existing<'a>(simulation: &'a Simulation, text: &str, namespace: &str) -> Result<&'a SimObject, String> {
    let key = reference(text, namespace)?;
    simulation.store().object(&key).ok_or_else(|| format!("{key} does not exist"))
}

/// The zone of a node: the value of its zone label.
pub(crate) fn zone(simulation: &Simulation, node: &str) -> Option<String> {
    let node = simulation.store().get::<Node>("", node)?;
    let labels = node.metadata.labels.as_ref()?;
    ZONE_LABELS.iter().find_map(|label| labels.get(*label)).cloned()
}

/// The labels that say in which zone a node is.
pub(crate) const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "zone"];
