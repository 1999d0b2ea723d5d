//! The objects of a namespace during a walk, and what they lack for a step to be done.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::Step;
use crate::Objects;

/// The objects that decide whether a step is done, by kind and name.
pub struct NamespaceSnapshot(BTreeMap<(&'static str, String), Value>);

const KINDS: [&str; 5] = ["OpenStackControlPlane", "Glance", "GlanceAPI", "StatefulSet", "Topology"];

impl NamespaceSnapshot {
    /// Reads the objects of a namespace.
    pub async fn read(objects: &Objects) -> Result<NamespaceSnapshot> {
        let mut found = BTreeMap::new();
        for kind in KINDS {
            for object in objects.list(kind).await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                found.insert((kind, name), object);
            }
        }
        Ok(NamespaceSnapshot(found))
    }

    /// Returns an object; none if it does not exist.
    pub fn get(&self, kind: &'static str, name: &str) -> Option<&Value> {
        self.0.get(&(kind, name.to_owned()))
    }

    /// Returns a value of an object by JSON pointer; null if there is none.
    pub fn at(&self, kind: &'static str, name: &str, pointer: &str) -> &Value {
        self.get(kind, name).and_then(|object| object.pointer(pointer)).unwrap_or(&Value::Null)
    }

    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().filter(move |((k, _), _)| *k == kind).map(|((_, name), object)| (name.as_str(), object))
    }

    /// Returns what is missing until a step is done; empty when it is done.
    pub(super) fn missing(&self, step: &Step, before: &NamespaceSnapshot) -> Vec<String> {
        let mut missing = Vec::new();
        let wanted: Vec<&str> = step.stateful_sets.iter().map(|(set, ..)| *set).collect();
        let extra = self.of_kind("StatefulSet").map(|(name, _)| name).filter(|name| !wanted.contains(name));
        missing.extend(extra.map(|name| format!("StatefulSet {name} still exists")));
        for (set, replicas, topology) in step.stateful_sets {
            missing.extend(self.check_stateful_set(set, *replicas, topology).err());
        }
        for set in step.restarts {
            if config_hash(self.get("StatefulSet", set)) == config_hash(before.get("StatefulSet", set)) {
                missing.push(format!("StatefulSet {set} still has its old configuration"));
            }
        }
        for kind in ["OpenStackControlPlane", "Glance", "GlanceAPI"] {
            let not_ready = self.of_kind(kind).filter(|(_, object)| !is_ready(object));
            missing.extend(
                not_ready.map(|(name, object)| format!("{kind} {name} is not ready: {}", ready_message(object))),
            );
        }
        if !(step.extra_check)(self) {
            missing.push("the step's additional check fails".to_owned());
        }
        missing
    }

    /// Checks replicas, Topology and configuration of a StatefulSet.
    fn check_stateful_set(&self, name: &str, replicas: i64, topology: &str) -> Result<(), String> {
        let set = self.get("StatefulSet", name).ok_or_else(|| format!("StatefulSet {name} does not exist"))?;
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let status = |field: &str| number(&format!("/status/{field}"));
        let counts = ["replicas", "readyReplicas", "updatedReplicas"].map(status);
        if number("/spec/replicas") != replicas
            || counts != [replicas; 3]
            || !is_observed(set)
            || set["status"]["currentRevision"] != set["status"]["updateRevision"]
        {
            return Err(format!("StatefulSet {name} has {counts:?} pods (all, ready, updated), not {replicas}"));
        }
        let api = name.strip_suffix("-api").unwrap_or(name);
        let applied = self.at("GlanceAPI", api, "/status/lastAppliedTopology/name").as_str().unwrap_or_default();
        if applied != topology {
            return Err(format!("GlanceAPI {api} has applied Topology {applied:?}, not {topology:?}"));
        }
        let part = |field: &str| self.at("GlanceAPI", api, &format!("/status/hash/{field}")).as_str().unwrap_or("?");
        let expected = format!("{}-{}", part("input"), part("backendHash"));
        match config_hash(Some(set)) {
            Some(found) if found == expected => Ok(()),
            _ => Err(format!("StatefulSet {name} does not have the configuration hash of GlanceAPI {api}")),
        }
    }
}

fn config_hash(set: Option<&Value>) -> Option<&str> {
    let env = set?.pointer("/spec/template/spec/containers/0/env")?.as_array()?;
    env.iter().find(|e| e["name"] == "CONFIG_HASH")?["value"].as_str()
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn is_ready(object: &Value) -> bool {
    is_observed(object) && condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn ready_message(object: &Value) -> String {
    let ready = condition(object, "Ready").map(|c| c["message"].as_str().unwrap_or_default().to_owned());
    format!("{} (observed: {})", ready.unwrap_or_default(), is_observed(object))
}
