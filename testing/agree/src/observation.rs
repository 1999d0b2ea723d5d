//! What is compared of an object: the part of its state that does not depend on chance.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::recording::Deed;

/// A state of an object, from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Seconds since the beginning.
    pub at: f64,
    /// The object, such as `pod default/web-0`.
    pub subject: String,
    /// Its state.
    pub state: Value,
}

/// Names that differ between two runs by chance, and what they stand for: volumes are named after the UIDs of claims.
#[derive(Debug, Clone, Default)]
pub struct Names {
    volumes: BTreeMap<String, String>,
}

impl Names {
    /// A volume belongs to a claim.
    pub fn add_volume(&mut self, volume: &str, claim: &str) {
        self.volumes.insert(volume.to_owned(), format!("<volume of {claim}>"));
    }

    /// A text with volumes replaced by their claims.
    pub fn stable(&self, text: &str) -> String {
        // Only texts with the name of a provisioned volume are changed.
        if !text.contains("pvc-") {
            return text.to_owned();
        }
        self.volumes.iter().fold(text.to_owned(), |text, (name, stable)| text.replace(name, stable))
    }
}

/// Turns changes of objects into observations. Equal states of an object in a row are one.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    names: Names,
    last: BTreeMap<String, Value>,
    observations: Vec<Observation>,
}

impl Observer {
    /// Everything that was observed.
    pub fn finish(self) -> Vec<Observation> {
        let names = self.names;
        let stable = |text: &str| names.stable(text);
        let observations = self.observations.into_iter();
        observations
            .map(|o| Observation { subject: stable(&o.subject), state: map_texts(o.state, &stable), ..o })
            .collect()
    }

    /// An object was created or changed, or removed.
    pub fn object(&mut self, at: f64, object: &Value, removed: bool) {
        if object["kind"] == "PersistentVolume"
            && let (Some(name), Some(claim)) =
                (object["metadata"]["name"].as_str(), object["spec"]["claimRef"]["name"].as_str())
        {
            self.names.add_volume(name, claim);
        }
        let Some((subject, state)) = observed(object) else { return };
        let state = if removed { json!("gone") } else { state };
        self.add(at, subject, state);
    }

    /// What was observed so far is how it begins: only the last state of each object counts.
    pub fn begin(&mut self) {
        let last = self.last.iter();
        let last = last.map(|(subject, state)| Observation { at: 0.0, subject: subject.clone(), state: state.clone() });
        self.observations = last.collect();
    }

    /// An event was reported.
    pub fn event(&mut self, at: f64, event: &EventFacts<'_>) {
        let subject = format!("event {} {} {}", event.about, event.reason, single(event.message));
        self.add(at, subject, json!(event.kind));
    }

    /// Something was done, and possibly refused.
    pub fn request(&mut self, at: i64, number: usize, deed: &Deed, refused: Option<&str>) {
        let what = match deed {
            Deed::Evict { pod, .. } => format!("evict {pod}"),
            Deed::Kubectl { line, .. } => line.clone(),
            _ => return,
        };
        // kubectl's own errors differ in their beginning.
        let refused = refused.map(|text| text.rsplit(": ").next().unwrap_or(text).trim());
        self.add(at as f64 / 1000.0, format!("request {number} {what}"), json!({ "refused": refused }));
    }

    /// Adds a state of an object, unless it is the last one.
    pub fn add(&mut self, at: f64, subject: String, state: Value) {
        if self.last.get(&subject) == Some(&state) {
            return;
        }
        self.last.insert(subject.clone(), state.clone());
        self.observations.push(Observation { at, subject, state });
    }
}

/// The text of an event that may stand for several: which of more than ten texts are combined is chance (`PopAny` of
/// client-go's event aggregator).
pub fn single(message: &str) -> &str {
    message.strip_prefix("(combined from similar events): ").unwrap_or(message)
}

/// What is compared of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventFacts<'a> {
    /// The object, such as `pod default/web-0`.
    pub about: &'a str,
    /// The reason.
    pub reason: &'a str,
    /// The message.
    pub message: &'a str,
    /// `Normal` or `Warning`.
    pub kind: &'a str,
}

fn map_texts(value: Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(&text)),
        Value::Array(items) => items.into_iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, map_texts(value, change))).collect(),
        other => other,
    }
}

/// The object and the part of its state that is compared; none for kinds that are not.
fn observed(object: &Value) -> Option<(String, Value)> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let name = metadata["name"].as_str()?;
    let kind = object["kind"].as_str()?;
    let subject = match metadata["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{name}", kind.to_lowercase()),
        None => format!("{} {name}", kind.to_lowercase()),
    };
    let deleting = metadata["deletionTimestamp"].is_string();
    let condition = |kind: &str| {
        let conditions = status["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind).cloned()
    };
    let state = match kind {
        "Pod" => {
            let waiting = status["containerStatuses"].as_array().into_iter().flatten();
            let waiting: Vec<&Value> = waiting.filter_map(|c| c["state"]["waiting"].get("reason")).collect();
            json!({
                "phase": status["phase"], "reason": status["reason"], "node": spec["nodeName"], "deleting": deleting,
                "ready": condition("Ready").map(|c| c["status"].clone()),
                "waiting": waiting, "nominated": status["nominatedNodeName"],
                "unscheduled": condition("PodScheduled").filter(|c| c["status"] == "False").map(|c| json!([c["reason"], c["message"]])),
                "disruption": condition("DisruptionTarget").map(|c| json!([c["status"], c["reason"], c["message"]])),
                "finalizers": metadata["finalizers"],
            })
        }
        "Node" => {
            let taints = spec["taints"].as_array().into_iter().flatten();
            let mut taints: Vec<String> = taints
                .map(|taint| {
                    format!(
                        "{}:{}",
                        taint["key"].as_str().unwrap_or_default(),
                        taint["effect"].as_str().unwrap_or_default()
                    )
                })
                .collect();
            taints.sort();
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let conditions: BTreeMap<String, Value> = conditions
                .filter_map(|c| Some((c["type"].as_str()?.to_owned(), json!([c["status"], c["reason"], c["message"]]))))
                .collect();
            json!({ "taints": taints, "conditions": conditions, "unschedulable": spec["unschedulable"], "deleting": deleting })
        }
        "PersistentVolumeClaim" => {
            json!({ "phase": status["phase"], "volume": spec["volumeName"], "deleting": deleting,
            "finalizers": metadata["finalizers"] })
        }
        "PersistentVolume" => json!({ "phase": status["phase"], "deleting": deleting }),
        "VolumeAttachment" => {
            let volume = spec["source"]["persistentVolumeName"].as_str().unwrap_or_default();
            let node = spec["nodeName"].as_str().unwrap_or_default();
            let state = json!({ "attached": status["attached"], "deleting": deleting,
                "attachError": status["attachError"]["message"], "detachError": status["detachError"]["message"] });
            return Some((format!("volumeattachment {volume} {node}"), state));
        }
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "PodDisruptionBudget" => {
            let mut status = status.clone();
            strip_times(&mut status);
            json!({ "replicas": spec["replicas"], "generation": metadata["generation"], "status": status,
                "deleting": deleting })
        }
        "Namespace" => json!({ "phase": status["phase"], "deleting": deleting }),
        _ => return None,
    };
    Some((subject, state))
}

/// Removes what depends on the time or on chance from a status.
fn strip_times(status: &mut Value) {
    match status {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let time = name.ends_with("Time")
                    || name.ends_with("Timestamp")
                    || name == "disruptedPods"
                    || matches!(name.as_str(), "uncountedTerminatedPods" | "uid" | "resourceVersion");
                !time && !value.is_null()
            });
            fields.values_mut().for_each(strip_times);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_times),
        _ => {}
    }
}
