//! Who set a field of a pod, by its managed fields.

use std::collections::BTreeSet;

use serde_json::Value;
use stead_model::PodView;

/// The managers of a field, and of one of its items where a key is given (as in `v:"example.org/finalizer"`).
pub(crate) fn managers_of(pod: PodView<'_>, path: &[&str], item: Option<&str>) -> BTreeSet<String> {
    let entries = pod.raw()["metadata"]["managedFields"].as_array().into_iter().flatten();
    let manages = |entry: &&Value| {
        let keys = path.iter().map(|field| format!("f:{field}")).chain(item.map(str::to_owned));
        keys.into_iter().try_fold(&entry["fieldsV1"], |fields, key| fields.get(key)).is_some()
    };
    entries.filter(manages).filter_map(|entry| entry["manager"].as_str().map(str::to_owned)).collect()
}
