//! The objects of a namespace at one moment of a walk.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::Step;
use crate::Objects;

/// The objects by which a step's end is told, by kind and name.
pub struct Scene(BTreeMap<(&'static str, String), Value>);

const KINDS: [&str; 5] = ["OpenStackControlPlane", "Glance", "GlanceAPI", "StatefulSet", "Topology"];

impl Scene {
    /// Looks at a namespace.
    pub async fn look(objects: &Objects) -> Result<Scene> {
        let mut found = BTreeMap::new();
        for kind in KINDS {
            for object in objects.list(kind).await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                found.insert((kind, name), object);
            }
        }
        Ok(Scene(found))
    }

    /// An object, if it is there.
    pub fn get(&self, kind: &'static str, name: &str) -> Option<&Value> {
        self.0.get(&(kind, name.to_owned()))
    }

    /// A value in an object, by its JSON pointer; null where there is none.
    pub fn at(&self, kind: &'static str, name: &str, pointer: &str) -> &Value {
        self.get(kind, name).and_then(|object| object.pointer(pointer)).unwrap_or(&Value::Null)
    }

    fn of(&self, kind: &'static str) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().filter(move |((k, _), _)| *k == kind).map(|((_, name), object)| (name.as_str(), object))
    }

    /// What is still missing for a step to be done; empty when it is.
    pub(super) fn missing(&self, step: &Step, before: &Scene) -> Vec<String> {
        let mut missing = Vec::new();
        let wanted: Vec<&str> = step.sets.iter().map(|(set, ..)| *set).collect();
        let extra = self.of("StatefulSet").map(|(name, _)| name).filter(|name| !wanted.contains(name));
        missing.extend(extra.map(|name| format!("StatefulSet {name} is still there")));
        for (set, replicas, topology) in step.sets {
            missing.extend(self.set(set, *replicas, topology).err());
        }
        for set in step.restarts {
            if hash(self.get("StatefulSet", set)) == hash(before.get("StatefulSet", set)) {
                missing.push(format!("StatefulSet {set} has its old configuration"));
            }
        }
        for kind in ["OpenStackControlPlane", "Glance", "GlanceAPI"] {
            let late = self.of(kind).filter(|(_, object)| !is_ready(object));
            missing.extend(late.map(|(name, object)| format!("{kind} {name} is not ready: {}", said(object))));
        }
        if !(step.and)(self) {
            missing.push("what else the step asks for".to_owned());
        }
        missing
    }

    /// Whether a StatefulSet is all that it should be.
    fn set(&self, name: &str, replicas: i64, topology: &str) -> Result<(), String> {
        let set = self.get("StatefulSet", name).ok_or_else(|| format!("StatefulSet {name} is not there"))?;
        let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let status = |field: &str| number(&format!("/status/{field}"));
        let counts = ["replicas", "readyReplicas", "updatedReplicas"].map(status);
        if number("/spec/replicas") != replicas
            || counts != [replicas; 3]
            || !observed(set)
            || set["status"]["currentRevision"] != set["status"]["updateRevision"]
        {
            return Err(format!("StatefulSet {name} has {counts:?} pods (all, ready, updated), not {replicas}"));
        }
        let api = name.strip_suffix("-api").unwrap_or(name);
        let applied = self.at("GlanceAPI", api, "/status/lastAppliedTopology/name").as_str().unwrap_or_default();
        if applied != topology {
            return Err(format!("GlanceAPI {api} is placed by {applied:?}, not by {topology:?}"));
        }
        let part = |field: &str| self.at("GlanceAPI", api, &format!("/status/hash/{field}")).as_str().unwrap_or("?");
        let expected = format!("{}-{}", part("input"), part("backendHash"));
        match hash(Some(set)) {
            Some(found) if found == expected => Ok(()),
            _ => Err(format!("StatefulSet {name} is not configured as GlanceAPI {api} says")),
        }
    }
}

fn hash(set: Option<&Value>) -> Option<&str> {
    let env = set?.pointer("/spec/template/spec/containers/0/env")?.as_array()?;
    env.iter().find(|e| e["name"] == "CONFIG_HASH")?["value"].as_str()
}

fn observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn is_ready(object: &Value) -> bool {
    observed(object) && condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn said(object: &Value) -> String {
    let ready = condition(object, "Ready").map(|c| c["message"].as_str().unwrap_or_default().to_owned());
    format!("{} (observed: {})", ready.unwrap_or_default(), observed(object))
}
