//! Objects that were not read, as far as pods tell what is in them.
//!
//! A dump often has pods and nodes, but not all controllers. A pod tells the kind, the name and the UID of its controller,
//! and what its template must be.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use stead_model::{ModelError, ObjectKey, Objects, PodView, controller_of};
use stead_sim::SimObject;

use crate::part::Part;

/// Labels that a controller gives to each of its pods.
const OWN_LABELS: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
];

/// The label of pods that have none.
const STAND_IN: &str = "stead.dev/stand-in";

/// Stand-ins for the controllers and priority classes of pods, where none of their kind was read.
pub(crate) fn missing(objects: &Objects, part: &Part) -> Result<Vec<SimObject>, ModelError> {
    let kinds: Vec<&str> =
        ["ReplicaSet", "StatefulSet", "DaemonSet", "Job"].into_iter().filter(|kind| objects.has_none(kind)).collect();
    let mut pods: BTreeMap<ObjectKey, Vec<PodView<'_>>> = BTreeMap::new();
    let unread = |pod: &stead_model::PodOutline| pod.controller().is_some_and(|(kind, _)| kinds.contains(&kind));
    for pod in objects.pods_with(unread).filter(|pod| part.has_pod(pod.key())) {
        let Some(owner) = pod.controller().filter(|owner| matches!(owner.api_version.as_str(), "apps/v1" | "batch/v1"))
        else {
            continue;
        };
        pods.entry(ObjectKey::new(&owner.kind, pod.namespace(), &owner.name)).or_default().push(pod);
    }
    let controllers = pods.values().filter_map(|pods| controller(pods)).map(|object| SimObject::from_json(&object));
    let mut found = controllers.collect::<Result<Vec<SimObject>, ModelError>>()?;
    if objects.has_none("PriorityClass") {
        found.extend(priority_classes(objects, part)?);
    }
    Ok(found)
}

/// The controller of these pods.
fn controller(pods: &[PodView<'_>]) -> Option<Value> {
    let pod = pods.iter().find(|pod| !pod.is_terminating()).or(pods.first())?;
    let owner = pod.controller()?;
    let counting = pods.iter().filter(|pod| !pod.is_terminating() && !pod.has_ended()).count();
    let labels = labels(*pod);
    let (spec, claims) = template_spec(*pod);
    let template = json!({ "metadata": { "labels": labels }, "spec": spec });
    let selector = json!({ "matchLabels": labels });
    let spec = match owner.kind.as_str() {
        "ReplicaSet" => json!({ "replicas": counting.max(1), "selector": selector, "template": template }),
        "StatefulSet" => {
            // That the first pod is missing is rarer than that its ordinal is not 0.
            let ordinals: Vec<u32> = pods.iter().filter_map(|pod| pod.ordinal()).collect();
            let first = ordinals.iter().min().copied().unwrap_or_default();
            let replicas = ordinals.iter().max().map_or(1, |last| last - first + 1);
            json!({ "replicas": replicas, "ordinals": { "start": first }, "selector": selector, "template": template, "serviceName": owner.name,
                "volumeClaimTemplates": claims, "updateStrategy": { "type": "OnDelete" } })
        }
        "DaemonSet" => {
            json!({ "selector": selector, "template": template, "updateStrategy": { "type": "OnDelete" } })
        }
        _ => json!({ "selector": selector, "template": template, "parallelism": counting.max(1),
            "completions": counting.max(1), "manualSelector": true }),
    };
    let metadata = json!({ "name": owner.name, "namespace": pod.namespace(), "uid": owner.uid });
    Some(json!({ "apiVersion": owner.api_version, "kind": owner.kind, "metadata": metadata, "spec": spec }))
}

fn labels(pod: PodView<'_>) -> BTreeMap<&str, &str> {
    let labels = pod.metadata().labels.iter().flatten();
    let labels = labels.map(|(name, value)| (name.as_str(), value.as_str()));
    let mut found: BTreeMap<&str, &str> = labels.filter(|(name, _)| !OWN_LABELS.contains(name)).collect();
    if found.is_empty() {
        found.insert(STAND_IN, "true");
    }
    found
}

/// Labels a pod that its controller could not select otherwise.
pub(crate) fn label(pod: &mut ObjectMeta) {
    if controller_of(pod).is_none() {
        return;
    }
    let labels = pod.labels.get_or_insert_default();
    if labels.keys().all(|name| OWN_LABELS.contains(&name.as_str())) {
        labels.insert(STAND_IN.to_owned(), "true".to_owned());
    }
}

/// The spec of the template that a pod was created from, and the claims that its StatefulSet created for it.
fn template_spec(pod: PodView<'_>) -> (Value, Vec<Value>) {
    let mut spec = pod.raw()["spec"].clone();
    let Some(fields) = spec.as_object_mut() else { return (spec, Vec::new()) };
    for field in ["nodeName", "hostname", "subdomain", "priority", "preemptionPolicy"] {
        fields.remove(field);
    }
    let owner = pod.controller().map(|owner| owner.kind.as_str());
    if owner == Some("DaemonSet")
        && let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut)
    {
        // The controller binds each of its pods to a node by it.
        affinity.remove("nodeAffinity");
    }
    let mut claims = Vec::new();
    if owner == Some("StatefulSet")
        && let Some(volumes) = fields.get_mut("volumes").and_then(Value::as_array_mut)
    {
        volumes.retain(|volume| {
            let name = volume["name"].as_str().unwrap_or_default();
            let is_own = volume["persistentVolumeClaim"]["claimName"] == format!("{name}-{}", pod.name());
            if is_own {
                claims.push(json!({ "metadata": { "name": name }, "spec": {} }));
            }
            !is_own
        });
    }
    (spec, claims)
}

/// The priority classes that pods name.
fn priority_classes(objects: &Objects, part: &Part) -> Result<Vec<SimObject>, ModelError> {
    let mut values: BTreeMap<&str, i32> = BTreeMap::new();
    for pod in objects.keys("Pod").filter(|key| part.has_pod(key)).filter_map(|key| objects.pod(key).ok().flatten()) {
        let class = pod.spec().and_then(|spec| spec.priority_class_name.as_deref());
        if let Some(class) = class.filter(|class| !class.is_empty() && !class.starts_with("system-")) {
            values.insert(class, pod.priority());
        }
    }
    let class = |(name, value)| {
        json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
            "value": value, "preemptionPolicy": "PreemptLowerPriority" })
    };
    values.into_iter().map(|found| SimObject::from_json(&class(found))).collect()
}
