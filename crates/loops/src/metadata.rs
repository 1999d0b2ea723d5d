//! What the loops read of the metadata of objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::{ObjectKey, controller_of};

/// Labels, annotations and the like.
pub(crate) type Texts = BTreeMap<String, String>;

pub(crate) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// The value of a label; none where the object does not have it, or it is empty.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, label: &str) -> Option<&'a str> {
    value(&metadata.labels, label)
}

/// The value of an annotation; none where the object does not have it, or it is empty.
pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, annotation: &str) -> Option<&'a str> {
    value(&metadata.annotations, annotation)
}

fn value<'a>(texts: &'a Option<Texts>, name: &str) -> Option<&'a str> {
    texts.as_ref()?.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// The key of the object that controls this one, if it is of a kind.
pub(crate) fn controller(metadata: &ObjectMeta, kind: &str) -> Option<ObjectKey> {
    let owner = controller_of(metadata).filter(|owner| owner.kind == kind)?;
    Some(ObjectKey::namespaced(kind, namespace(metadata), &owner.name))
}

/// Whether an object controls another.
pub(crate) fn controls(owner: &ObjectMeta, object: &ObjectMeta) -> bool {
    controller_of(object).is_some_and(|reference| owner.uid.as_ref() == Some(&reference.uid))
}

/// Labels or annotations from pairs.
pub(crate) fn texts<const N: usize>(pairs: [(&str, &str); N]) -> Texts {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
