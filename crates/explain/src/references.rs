//! Who refers to which Topology, and which reference wins.
//!
//! The control plane's reference is handed to Glance where Glance's template has none, and Glance's to each of its
//! APIs that has none: the most specific one wins as a whole. A reference without a name (`topologyRef: {}`) opts out.

use serde::Serialize;
use serde_json::Value;

use stead_model::{ObjectKey, Objects};

/// A reference to a Topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// The object that has it: kind and name.
    pub object: String,
    /// The field.
    pub field: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.object, self.field)
    }
}

/// The Topology that is meant for a GlanceAPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// Its name; none where the reference opts out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The reference that won.
    pub reference: Reference,
    /// Whose reference it is.
    pub level: Level,
}

/// Whose reference it is that won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The API's own.
    Api,
    /// Inherited from the Glance.
    Glance,
    /// Inherited from the control plane.
    ControlPlane,
}

impl Level {
    /// A word or two for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Api => "its own",
            Level::Glance => "inherited from Glance",
            Level::ControlPlane => "inherited from the control plane",
        }
    }
}

/// The object that controls another, of this kind.
pub(crate) fn controller<'a>(objects: &'a Objects, object: &Value, kind: &str) -> Option<(ObjectKey, &'a Value)> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|o| o["controller"] == true && o["kind"] == kind)?;
    let key = ObjectKey::new(kind, namespace, owner["name"].as_str()?);
    objects.raw(&key).map(|value| (key, value))
}

/// The entry of `glanceAPIs` that a GlanceAPI was made for.
pub(crate) fn entry<'a>(api: &'a ObjectKey, object: &'a Value, glance: &'a Value) -> Option<&'a str> {
    if let Some(name) = object["metadata"]["labels"]["api-name"].as_str() {
        return Some(name);
    }
    // It is called GLANCE-ENTRY-TYPE.
    let glance = glance["metadata"]["name"].as_str()?;
    api.name.strip_prefix(glance)?.strip_prefix('-')?.rsplit_once('-').map(|(entry, _)| entry)
}

/// The Topology that is meant for a GlanceAPI; none where nobody refers to any.
pub(crate) fn chosen(objects: &Objects, key: &ObjectKey, api: &Value) -> Option<Chosen> {
    let own = || reference(key, "spec.topologyRef", &api["spec"]["topologyRef"], Level::Api);
    let Some((glance_key, glance)) = controller(objects, api, "Glance") else { return own() };
    let Some(entry) = entry(key, api, glance) else { return own() };
    let plane = controller(objects, glance, "OpenStackControlPlane");
    let of_entry = match &plane {
        Some((plane, spec)) => {
            let template = &spec["spec"]["glance"]["template"]["glanceAPIs"][entry]["topologyRef"];
            reference(plane, &format!("spec.glance.template.glanceAPIs.{entry}.topologyRef"), template, Level::Api)
        }
        None => None,
    };
    let in_glance = || {
        let field = format!("spec.glanceAPIs.{entry}.topologyRef");
        reference(&glance_key, &field, &glance["spec"]["glanceAPIs"][entry]["topologyRef"], Level::Api)
    };
    let of_glance = || match &plane {
        Some((plane, spec)) => {
            let template = &spec["spec"]["glance"]["template"]["topologyRef"];
            reference(plane, "spec.glance.template.topologyRef", template, Level::Glance)
                .or_else(|| reference(plane, "spec.topologyRef", &spec["spec"]["topologyRef"], Level::ControlPlane))
        }
        None => None,
    };
    of_entry
        .or_else(in_glance)
        .or_else(of_glance)
        .or_else(|| reference(&glance_key, "spec.topologyRef", &glance["spec"]["topologyRef"], Level::Glance))
}

fn reference(object: &ObjectKey, field: &str, value: &Value, level: Level) -> Option<Chosen> {
    let topology = name(value)?.map(str::to_owned);
    Some(Chosen { topology, reference: Reference { object: titled(object), field: field.to_owned() }, level })
}

/// The name in a reference: none where there is no reference, none inside where it opts out.
fn name(reference: &Value) -> Option<Option<&str>> {
    reference.as_object().map(|r| r.get("name").and_then(Value::as_str).filter(|n| !n.is_empty()))
}

/// Every reference to a Topology in its namespace, wherever in an object it stands.
pub(crate) fn references(objects: &Objects, topology: &ObjectKey) -> Vec<Reference> {
    let mut out = Vec::new();
    for kind in ["OpenStackControlPlane", "Glance", "GlanceAPI"] {
        for (key, object) in objects.raw_of_kind(kind).filter(|(k, _)| k.namespace == topology.namespace) {
            walk(&object["spec"], "spec", &mut |field, value| {
                if name(value) == Some(Some(&topology.name)) {
                    out.push(Reference { object: titled(key), field: field.to_owned() });
                }
            });
        }
    }
    out
}

fn walk(value: &Value, path: &str, found: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let path = format!("{path}.{field}");
                if field == "topologyRef" {
                    found(&path, value);
                }
                walk(value, &path, found);
            }
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| walk(v, &format!("{path}[{i}]"), found)),
        _ => {}
    }
}

/// Kind and name as they are written in a sentence.
pub(crate) fn titled(key: &ObjectKey) -> String {
    format!("{} {}", key.kind, key.name)
}

/// The GlanceAPIs that follow a Topology, or are meant to.
pub(crate) fn followers<'a>(objects: &'a Objects, topology: &ObjectKey) -> Vec<(&'a ObjectKey, &'a Value)> {
    let (namespace, wanted) = (topology.namespace.clone(), Some(topology.name.clone()));
    let apis = objects.raw_of_kind("GlanceAPI").filter(|(key, _)| key.namespace == namespace);
    apis.filter(|(key, api)| {
        let own = api["spec"]["topologyRef"]["name"].as_str();
        own == wanted.as_deref() || chosen(objects, key, api).is_some_and(|c| c.topology == wanted)
    })
    .collect()
}
