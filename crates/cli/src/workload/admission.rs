//! What the API server's admission plugins fill in.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod, PodAffinityTerm, PodSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::Value;
use stead_model::Typed;

use super::{kind_of, parse};

/// The kinds that are looked up to fill in a pod, in addition to those that placement reads.
pub(crate) const DEFAULT_KINDS: [&str; 3] = ["PriorityClass", "LimitRange", "RuntimeClass"];

/// The kinds of the objects of a cluster that [`first_pod`](super::first_pod) needs.
pub(crate) const NEEDED_KINDS: [&str; 5] =
    ["PriorityClass", "LimitRange", "RuntimeClass", "StorageClass", "PersistentVolumeClaim"];

/// The built-in priority classes.
const SYSTEM_PRIORITIES: [(&str, i32); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// The objects of a cluster that admission plugins take defaults from.
pub(super) struct Defaults {
    priority_classes: Vec<PriorityClass>,
    runtime_classes: Vec<RuntimeClass>,
    limit_ranges: Vec<LimitRange>,
    storage_classes: Vec<StorageClass>,
    /// Objects that are malformed or missing.
    pub(super) warnings: Vec<String>,
}

impl Defaults {
    /// Reads them from a cluster's objects.
    pub(super) fn read(cluster: &[Value]) -> Defaults {
        let mut warnings = Vec::new();
        Defaults {
            priority_classes: all(cluster, &mut warnings),
            runtime_classes: all(cluster, &mut warnings),
            limit_ranges: all(cluster, &mut warnings),
            storage_classes: all(cluster, &mut warnings),
            warnings,
        }
    }

    /// Fills in a pod.
    pub(super) fn apply_to_pod(&mut self, pod: &mut Pod) {
        let namespace = pod.metadata.namespace.clone();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let spec = pod.spec.get_or_insert_default();
        self.runtime_class(spec);
        self.priority(spec);
        self.limit_ranges(spec, namespace.as_deref());
        default_tolerations(spec);
        match_label_keys(spec, &labels);
    }

    /// Admission plugin Priority.
    fn priority(&mut self, spec: &mut PodSpec) {
        if spec.priority.is_some() {
            return;
        }
        let class = match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => {
                if let Some((_, value)) = SYSTEM_PRIORITIES.iter().find(|(system, _)| *system == name) {
                    spec.priority = Some(*value);
                    return;
                }
                let found = self.priority_classes.iter().find(|c| c.metadata.name.as_deref() == Some(name));
                if found.is_none() {
                    self.warnings.push(format!("priorityclass {name} not found: the pod is placed with priority 0"));
                }
                found
            }
            None => self.priority_classes.iter().find(|c| c.global_default == Some(true)),
        };
        let Some(class) = class else { return };
        spec.priority = class.value;
        if spec.preemption_policy.is_none() {
            spec.preemption_policy.clone_from(&class.preemption_policy);
        }
    }

    /// Admission plugin RuntimeClass.
    fn runtime_class(&mut self, spec: &mut PodSpec) {
        let Some(name) = spec.runtime_class_name.as_deref() else { return };
        let found = self.runtime_classes.iter().find(|c| c.metadata.name.as_deref() == Some(name));
        let Some(class) = found else {
            self.warnings.push(format!("runtimeclass {name} not found: its overhead and node selector are ignored"));
            return;
        };
        if spec.overhead.is_none() {
            spec.overhead = class.overhead.as_ref().and_then(|o| o.pod_fixed.clone());
        }
        let Some(scheduling) = &class.scheduling else { return };
        for (key, value) in scheduling.node_selector.iter().flatten() {
            spec.node_selector.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
        }
        spec.tolerations.get_or_insert_default().extend(scheduling.tolerations.iter().flatten().cloned());
    }

    /// Admission plugin LimitRanger: the defaults of containers without requests or limits.
    fn limit_ranges(&self, spec: &mut PodSpec, namespace: Option<&str>) {
        let ranges = self.limit_ranges.iter().filter(|r| r.metadata.namespace.as_deref() == namespace);
        let items = ranges.flat_map(|r| r.spec.iter().flat_map(|s| &s.limits));
        for item in items.filter(|item| item.type_ == "Container") {
            for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
                limit_container(item, container.resources.get_or_insert_default());
            }
        }
    }

    /// Admission plugin DefaultStorageClass: the newest of the classes that are marked as default.
    pub(super) fn apply_to_claim(&self, claim: &mut PersistentVolumeClaim) {
        let spec = claim.spec.get_or_insert_default();
        if spec.storage_class_name.is_some() {
            return;
        }
        let is_default = |class: &&StorageClass| {
            let annotations = class.metadata.annotations.as_ref();
            annotations.and_then(|a| a.get("storageclass.kubernetes.io/is-default-class")).is_some_and(|v| v == "true")
        };
        let newest = self
            .storage_classes
            .iter()
            .filter(is_default)
            .min_by_key(|class| (Reverse(class.metadata.creation_timestamp.clone()), class.metadata.name.clone()));
        spec.storage_class_name = newest.and_then(|class| class.metadata.name.clone());
    }
}

/// The objects of a type; a malformed one becomes a warning.
fn all<T: Typed>(cluster: &[Value], warnings: &mut Vec<String>) -> Vec<T> {
    let mut parsed = Vec::new();
    for object in cluster.iter().filter(|o| kind_of(o) == T::KIND) {
        match parse(object) {
            Ok(object) => parsed.push(object),
            Err(error) => warnings.push(format!("{error:#}")),
        }
    }
    parsed
}

fn limit_container(item: &LimitRangeItem, resources: &mut ResourceRequirements) {
    for (name, amount) in item.default_request.iter().flatten() {
        // A limit without a request is the request, too.
        if resources.limits.as_ref().is_none_or(|limits| !limits.contains_key(name)) {
            resources.requests.get_or_insert_default().entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
    for (name, amount) in item.default.iter().flatten() {
        resources.limits.get_or_insert_default().entry(name.clone()).or_insert_with(|| amount.clone());
    }
}

/// Admission plugin DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or unreachable.
fn default_tolerations(spec: &mut PodSpec) {
    let tolerations = spec.tolerations.get_or_insert_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is = |value: &Option<String>, wanted: &str| {
            value.as_deref().is_none_or(|value| value.is_empty() || value == wanted)
        };
        if !tolerations.iter().any(|t| is(&t.key, key) && is(&t.effect, "NoExecute")) {
            tolerations.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoExecute".to_owned()),
                toleration_seconds: Some(300),
                value: None,
            });
        }
    }
}

/// The API server's part in `matchLabelKeys` and `mismatchLabelKeys`: adds the values of the pod's labels to the selector.
fn match_label_keys(spec: &mut PodSpec, labels: &BTreeMap<String, String>) {
    let Some(affinity) = &mut spec.affinity else { return };
    let mut terms: Vec<&mut PodAffinityTerm> = Vec::new();
    if let Some(pods) = &mut affinity.pod_affinity {
        terms.extend(pods.required_during_scheduling_ignored_during_execution.iter_mut().flatten());
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        terms.extend(preferred.map(|weighted| &mut weighted.pod_affinity_term));
    }
    if let Some(pods) = &mut affinity.pod_anti_affinity {
        terms.extend(pods.required_during_scheduling_ignored_during_execution.iter_mut().flatten());
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        terms.extend(preferred.map(|weighted| &mut weighted.pod_affinity_term));
    }
    for term in terms {
        let Some(selector) = &mut term.label_selector else { continue };
        for (keys, operator) in [(&term.match_label_keys, "In"), (&term.mismatch_label_keys, "NotIn")] {
            for key in keys.iter().flatten() {
                let Some(value) = labels.get(key) else { continue };
                selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                    key: key.clone(),
                    operator: operator.to_owned(),
                    values: Some(vec![value.clone()]),
                });
            }
        }
    }
}
