//! Controllers of pods, as far as a recovery asks what they want.

use serde_json::Value;

/// How many pods a controller wants.
pub(crate) fn replicas(of: &Value) -> i64 {
    of["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Whether a StatefulSet wants a pod of this name (podInOrdinalRange in pkg/controller/statefulset).
pub(crate) fn has_number(set: &Value, pod: &str) -> bool {
    let first = set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    let number = pod.rsplit_once('-').and_then(|(_, number)| number.parse::<i64>().ok());
    number.is_none_or(|number| number >= first && number - first < replicas(set))
}
