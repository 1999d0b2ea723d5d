//! Pods, as far as a recovery looks at them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde_json::Value;
use stead_model::{ObjectKey, Objects};
use stead_semantics::taints::tolerates;

/// A pod that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodSeen<'a> {
    pub(crate) value: &'a Value,
}

impl<'a> PodSeen<'a> {
    /// All pods.
    pub(crate) fn all(objects: &'a Objects) -> impl Iterator<Item = PodSeen<'a>> {
        objects.raw_of_kind("Pod").map(|(_, value)| PodSeen { value })
    }

    /// The pods of a node.
    pub(crate) fn on(objects: &'a Objects, node: &'a str) -> impl Iterator<Item = PodSeen<'a>> {
        PodSeen::all(objects).filter(move |pod| pod.value["spec"]["nodeName"] == node)
    }

    /// The pod of this name, whatever its identity.
    pub(crate) fn named(objects: &'a Objects, namespace: &str, name: &str) -> Option<PodSeen<'a>> {
        objects.raw(&ObjectKey::new("Pod", namespace, name)).map(|value| PodSeen { value })
    }

    pub(crate) fn namespace(&self) -> &'a str {
        // The API server always has it; a file may leave it out.
        self.value["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    pub(crate) fn name(&self) -> &'a str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new("Pod", self.namespace(), self.name())
    }

    pub(crate) fn uid(&self) -> &'a str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub(crate) fn resource_version(&self) -> &'a str {
        self.value["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }

    pub(crate) fn node(&self) -> Option<&'a str> {
        self.value["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())
    }

    /// Whether it is being deleted: when its grace ends, or has ended.
    pub(crate) fn terminating(&self) -> Option<&'a str> {
        self.value["metadata"]["deletionTimestamp"].as_str()
    }

    /// Since when it is being deleted.
    pub(crate) fn terminating_since(&self) -> Option<Timestamp> {
        let ends: Timestamp = self.terminating()?.parse().ok()?;
        let grace = self.value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        Some(ends.checked_sub(SignedDuration::from_secs(grace)).unwrap_or(ends))
    }

    /// When it was made, to the second.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.value["metadata"]["creationTimestamp"].as_str()?.parse().ok()
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    }

    pub(crate) fn is_ready(&self) -> bool {
        let mut conditions = self.value["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    /// Whether a kubelet has it from a file: its object is only a picture of it.
    pub(crate) fn is_mirror(&self) -> bool {
        self.mirrors().is_some()
    }

    /// The identity that the kubelet itself has for it, where it has it from a file.
    pub(crate) fn mirrors(&self) -> Option<&'a str> {
        self.value["metadata"]["annotations"]["kubernetes.io/config.mirror"].as_str()
    }

    /// The owner that makes it anew.
    pub(crate) fn controller(&self) -> Option<&'a Value> {
        let mut owners = self.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.find(|o| o["controller"] == true)
    }

    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &'a str> {
        self.value["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    pub(crate) fn tolerations(&self) -> &'a [Value] {
        self.value["spec"]["tolerations"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// How many seconds of these taints a pod with these tolerations bears; none for ever. As the taint eviction controller
/// has it: for each taint the first toleration that covers it counts, and the shortest of them.
pub(crate) fn bears(tolerations: &[Value], taints: &[Taint]) -> Option<i64> {
    let read: Vec<Toleration> = tolerations.iter().filter_map(|t| serde_json::from_value(t.clone()).ok()).collect();
    let seconds = |taint: &Taint| match read.iter().find(|t| tolerates(t, taint)) {
        Some(toleration) => toleration.toleration_seconds.map(|s| s.max(0)),
        None => Some(0),
    };
    taints.iter().filter_map(seconds).min()
}

/// A taint of effect NoExecute.
pub(crate) fn no_execute(key: &str, value: &str) -> Taint {
    Taint { key: key.into(), value: Some(value.into()), effect: "NoExecute".into(), time_added: None }
}
