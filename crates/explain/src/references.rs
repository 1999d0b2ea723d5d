//! Who refers to which Topology, and which reference wins.
//!
//! A service inherits the control plane's reference where its template has none, and each of its parts inherits the
//! service's where it has none: the most specific one wins as a whole. A reference without a name (`topologyRef: {}`)
//! opts out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, Serializer};
use stead_model::{GlanceApi, ObjectKey, Objects, TopologyRef, Typed, controller_of, topology_references};

use crate::services::{SpecPart, inherits, is_created_by};

/// A reference to a Topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// The object that has it: kind and name.
    pub object: String,
    #[serde(skip)]
    pub(crate) key: ObjectKey,
    /// The field.
    pub field: String,
}

impl Reference {
    pub(crate) fn new(object: &ObjectKey, field: &str) -> Reference {
        Reference { object: titled(object), key: object.clone(), field: field.to_owned() }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.object, self.field)
    }
}

/// The Topology that an object's pods are to follow.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceLevel {
    /// The object's own, wherever it is written.
    Own,
    /// Inherited from an object of this kind, such as a Glance.
    Service(String),
    /// Inherited from the control plane.
    ControlPlane,
}

impl ReferenceLevel {
    fn of(kind: &str) -> ReferenceLevel {
        match kind {
            "OpenStackControlPlane" => ReferenceLevel::ControlPlane,
            kind => ReferenceLevel::Service(kind.to_owned()),
        }
    }
}

impl std::fmt::Display for ReferenceLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReferenceLevel::Own => f.write_str("its own"),
            ReferenceLevel::Service(kind) => write!(f, "inherited from {kind}"),
            ReferenceLevel::ControlPlane => f.write_str("inherited from the control plane"),
        }
    }
}

impl Serialize for ReferenceLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            ReferenceLevel::Own => "own",
            ReferenceLevel::Service(_) => "service",
            ReferenceLevel::ControlPlane => "control-plane",
        })
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

/// The Topology that an object's pods are to follow; none where there is no reference.
///
/// A service's spec repeats what it inherited from the control plane, so that each reference is looked for in the object
/// furthest up that has a place for it.
pub(crate) fn chosen(objects: &Objects, key: &ObjectKey) -> Option<ChosenTopology> {
    // The object, its service, and so on up to the control plane, as far as they were read and their templates are known.
    let mut line = vec![key.clone()];
    for owner in objects.controllers(key) {
        let last = line.last().expect("the object itself is in it");
        let known = objects.contains(&owner) && is_created_by(&last.kind, &owner.kind);
        if !known {
            break;
        }
        line.push(owner);
    }
    let levels = if inherits(&key.kind) { line.len() } else { 1 };
    let in_templates = (0..levels).find_map(|level| {
        let holders = (level + 1..line.len()).rev();
        let found = holders.into_iter().find_map(|holder| in_template(objects, &line, level, holder));
        // What nobody created has only its own spec.
        found.or_else(|| (level + 1 == line.len()).then(|| in_own_spec(objects, &line, level))?)
    });
    // The services may have references that the control plane does not have, and so may the object itself.
    in_templates
        .or_else(|| (1..levels).find_map(|level| in_own_spec(objects, &line, level)))
        .or_else(|| in_own_spec(objects, &line, 0))
}

/// The reference in the template that an object of the line has in another one further up.
fn in_template(objects: &Objects, line: &[ObjectKey], level: usize, holder: usize) -> Option<ChosenTopology> {
    let mut part = SpecPart::of(objects.raw(&line[holder])?);
    for at in (level..holder).rev() {
        part = part.template_of(objects, &line[at], &line[at + 1])?;
    }
    chosen_by(line, level, &line[holder], part.reference(&line[level].kind))
}

fn in_own_spec(objects: &Objects, line: &[ObjectKey], level: usize) -> Option<ChosenTopology> {
    let reference = SpecPart::of(objects.raw(&line[level])?).reference(&line[level].kind);
    chosen_by(line, level, &line[level], reference)
}

fn chosen_by(
    line: &[ObjectKey],
    level: usize,
    holder: &ObjectKey,
    reference: Option<(String, TopologyRef)>,
) -> Option<ChosenTopology> {
    let (field, reference) = reference?;
    let level = if level == 0 { ReferenceLevel::Own } else { ReferenceLevel::of(&line[level].kind) };
    let topology = reference.topology().map(str::to_owned);
    Some(ChosenTopology { topology, reference: Reference::new(holder, &field), level })
}

/// Every reference to a Topology in its namespace, wherever it is in an object, control planes first.
pub(crate) fn references(objects: &Objects, topology: &ObjectKey) -> Vec<Reference> {
    let mut out = Vec::new();
    for object in objects.openstack_resources_in(&topology.namespace) {
        let found = topology_references(object.raw()).into_iter();
        let found = found.filter(|found| found.reference.topology() == Some(&topology.name));
        out.extend(found.map(|found| Reference::new(object.key(), &found.field)));
    }
    out.sort_by_key(|reference| reference.key.kind != "OpenStackControlPlane");
    out
}

/// Kind and name as they are written in a sentence.
pub(crate) fn titled(key: &ObjectKey) -> String {
    format!("{} {}", key.kind, key.name)
}
