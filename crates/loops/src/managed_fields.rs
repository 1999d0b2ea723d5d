//! Who set which fields of an object, as the API server records it in `metadata.managedFields`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::step::MANAGER;

/// The entries of an object's `metadata.managedFields` about the object itself, not about a subresource such as its
/// status. None where there are none, or they are malformed.
pub fn managed_fields(object: &Value) -> Vec<ManagedFieldsEntry> {
    let entries = object.pointer("/metadata/managedFields").cloned().unwrap_or_default();
    let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(entries).unwrap_or_default();
    entries.into_iter().filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty()).collect()
}

/// Whether an entry is about what Stead applied.
pub(crate) fn is_applied_by_stead(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}
