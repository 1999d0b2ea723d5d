//! The conditions of a namespace that is being deleted (`deletion/status_condition_utils.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NamespaceCondition, NamespaceStatus};
use stead_model::Kind;

use crate::api::whole_seconds;

/// What is left of one kind.
#[derive(Debug)]
pub(super) struct Remaining {
    /// The kind.
    pub(super) kind: &'static Kind,
    /// How many objects.
    pub(super) count: usize,
    /// How many objects have each finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// The conditions of a namespace whose content is being deleted, each with its reason and message if all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (CONTENT_FAILURE, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    (CONTENT_REMAINING, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS_REMAINING, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT_REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS_REMAINING: &str = "NamespaceFinalizersRemaining";

/// Why a condition is True, if it is.
fn trouble(kind: &str, remaining: &[Remaining], errors: &[String]) -> Option<(&'static str, String)> {
    let joined = |mut texts: Vec<String>| {
        texts.sort();
        texts.join(", ")
    };
    match kind {
        CONTENT_FAILURE if !errors.is_empty() => {
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                errors.len(),
                joined(errors.to_vec())
            );
            Some(("ContentDeletionFailed", message))
        }
        CONTENT_REMAINING if !remaining.is_empty() => {
            let of_kind = |left: &Remaining| {
                format!("{}.{} has {} resource instances", left.kind.plural, left.kind.group(), left.count)
            };
            let texts = joined(remaining.iter().map(of_kind).collect());
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {texts}")))
        }
        FINALIZERS_REMAINING => {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for (finalizer, count) in remaining.iter().flat_map(|left| &left.finalizers) {
                *counts.entry(finalizer).or_default() += count;
            }
            let texts = counts.iter().map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
            let texts = joined(texts.collect());
            let message = format!("Some content in the namespace has finalizers remaining: {texts}");
            (!counts.is_empty()).then_some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

/// Sets all conditions. The time of the last change of one is kept if its status stays the same.
pub(super) fn update(status: &mut NamespaceStatus, remaining: &[Remaining], errors: &[String], now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    for (kind, reason, message) in CONDITIONS {
        let trouble = trouble(kind, remaining, errors);
        let value = if trouble.is_some() { "True" } else { "False" };
        let (reason, message) = trouble.unwrap_or_else(|| (reason, message.to_owned()));
        let before = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = before.as_ref().filter(|before| before.status == value);
        let new = NamespaceCondition {
            type_: kind.into(),
            status: value.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: since
                .map_or_else(|| Some(whole_seconds(now)), |before| before.last_transition_time.clone()),
        };
        match before {
            Some(before) => *before = new,
            None => conditions.push(new),
        }
    }
}
