//! Who refers to which Topology, and which reference wins.
//!
//! Glance inherits the control plane's reference where Glance's template has none, and each of its APIs inherits Glance's
//! where it has none: the most specific one wins as a whole. A reference without a name (`topologyRef: {}`) opts out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use stead_model::{
    Glance, GlanceApi, GlanceSpec, ObjectKey, Objects, OpenStackControlPlane, TopologyRef, Typed, controller_of,
};

use crate::change::part;

/// A reference to a Topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// The object that has it: kind and name.
    pub object: String,
    /// The kind of the object.
    #[serde(skip)]
    pub(crate) kind: String,
    /// The field.
    pub field: String,
}

impl Reference {
    pub(crate) fn new(object: &ObjectKey, field: &str) -> Reference {
        Reference { object: titled(object), kind: object.kind.clone(), field: field.to_owned() }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.object, self.field)
    }
}

/// The Topology that a GlanceAPI is to follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChosenTopology {
    /// Its name; none where the reference opts out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The reference that won.
    pub reference: Reference,
    /// Whose reference it is.
    pub level: ReferenceLevel,
}

/// Whose reference it is that won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceLevel {
    /// The API's own.
    Api,
    /// Inherited from the Glance.
    Glance,
    /// Inherited from the control plane.
    ControlPlane,
}

impl ReferenceLevel {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            ReferenceLevel::Api => "its own",
            ReferenceLevel::Glance => "inherited from Glance",
            ReferenceLevel::ControlPlane => "inherited from the control plane",
        }
    }
}

/// The object of this type that controls another one of a namespace, with its key.
pub(crate) fn controller<'a, T: Typed>(
    objects: &'a Objects,
    namespace: &str,
    metadata: &ObjectMeta,
) -> Option<(ObjectKey, &'a T)> {
    let owner = controller_of(metadata).filter(|owner| owner.kind == T::KIND)?;
    let key = ObjectKey::namespaced(T::KIND, namespace, &owner.name);
    let object = objects.get(&key).ok().flatten()?;
    Some((key, object))
}

/// The entry of `glanceAPIs` that a GlanceAPI was created for.
pub(crate) fn entry<'a>(key: &'a ObjectKey, api: &'a GlanceApi, glance: Option<&ObjectKey>) -> Option<&'a str> {
    if let Some(name) = api.metadata.labels.as_ref().and_then(|labels| labels.get("api-name")) {
        return Some(name);
    }
    // Its name is GLANCE-ENTRY-TYPE.
    key.name.strip_prefix(&glance?.name)?.strip_prefix('-')?.rsplit_once('-').map(|(entry, _)| entry)
}

/// The Topology that a GlanceAPI is to follow; none where there is no reference.
pub(crate) fn chosen(objects: &Objects, key: &ObjectKey, api: &GlanceApi) -> Option<ChosenTopology> {
    let own = || chosen_by(key, "spec.topologyRef", api.spec.topology_ref.as_ref(), ReferenceLevel::Api);
    let Some((glance_key, glance)) = controller::<Glance>(objects, &key.namespace, &api.metadata) else { return own() };
    let Some(entry) = entry(key, api, Some(&glance_key)) else { return own() };
    let plane = controller::<OpenStackControlPlane>(objects, &key.namespace, &glance.metadata);
    let template = plane.as_ref().and_then(|(_, plane)| plane.spec.glance.as_ref()?.template.as_ref());
    let of_entry = |spec: &'_ GlanceSpec| spec.glance_apis.get(entry).and_then(|api| api.topology_ref.clone());
    let in_plane = |field: &str, reference: Option<TopologyRef>, level: ReferenceLevel| {
        chosen_by(&plane.as_ref()?.0, field, reference.as_ref(), level)
    };
    let in_glance = |field: &str, reference: Option<TopologyRef>, level: ReferenceLevel| {
        chosen_by(&glance_key, field, reference.as_ref(), level)
    };
    let api_field = format!("spec.glance.template.glanceAPIs.{entry}.topologyRef");
    in_plane(&api_field, template.and_then(of_entry), ReferenceLevel::Api)
        .or_else(|| {
            in_glance(&format!("spec.glanceAPIs.{entry}.topologyRef"), of_entry(&glance.spec), ReferenceLevel::Api)
        })
        .or_else(|| {
            let reference = template.and_then(|template| template.topology_ref.clone());
            in_plane("spec.glance.template.topologyRef", reference, ReferenceLevel::Glance)
        })
        .or_else(|| {
            let reference = plane.as_ref().and_then(|(_, plane)| plane.spec.topology_ref.clone());
            in_plane("spec.topologyRef", reference, ReferenceLevel::ControlPlane)
        })
        .or_else(|| in_glance("spec.topologyRef", glance.spec.topology_ref.clone(), ReferenceLevel::Glance))
}

fn chosen_by(
    object: &ObjectKey,
    field: &str,
    reference: Option<&TopologyRef>,
    level: ReferenceLevel,
) -> Option<ChosenTopology> {
    let topology = reference?.topology().map(str::to_owned);
    Some(ChosenTopology { topology, reference: Reference::new(object, field), level })
}

/// Every reference to a Topology in its namespace, wherever it is in an object.
pub(crate) fn references(objects: &Objects, topology: &ObjectKey) -> Vec<Reference> {
    let mut out = Vec::new();
    for kind in ["OpenStackControlPlane", "Glance", "GlanceAPI"] {
        for (key, object) in objects.raw_of_kind(kind).filter(|(k, _)| k.namespace == topology.namespace) {
            walk(&object["spec"], "spec", &mut |field, value| {
                let reference: Option<TopologyRef> = part(value);
                if reference.is_some_and(|reference| reference.topology() == Some(&topology.name)) {
                    out.push(Reference::new(key, field));
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

/// The GlanceAPIs that follow a Topology, or are to follow it.
pub(crate) fn followers<'a>(objects: &'a Objects, topology: &ObjectKey) -> Vec<(&'a ObjectKey, &'a GlanceApi)> {
    let follows = |key: &ObjectKey, api: &GlanceApi| {
        let own = api.spec.topology_ref.as_ref().and_then(TopologyRef::topology);
        let chosen = || chosen(objects, key, api).is_some_and(|c| c.topology.as_ref() == Some(&topology.name));
        own == Some(&topology.name) || chosen()
    };
    let apis = objects.all::<GlanceApi>().filter(|(key, _)| key.namespace == topology.namespace);
    apis.filter(|(key, api)| follows(key, api)).collect()
}
