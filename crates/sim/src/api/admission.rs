//! The admission plugins that are on by default (`plugin/pkg/admission`), as far as controllers see what they do.
//!
//! Not modelled: LimitRanger, ResourceQuota, RuntimeClass, PodSecurity, webhooks and policies; the projected token volume
//! of a pod's service account; that the service account and the namespace of a new object exist.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Taint, Toleration};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use stead_model::{NOT_READY, UNREACHABLE};

use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::settings::Settings;
use crate::store::Store;

/// The node labels that a pod with a node gets, from 1.35 on (PodTopologyLabels).
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
/// The finalizer of a claim that pods may use (StorageObjectInUseProtection).
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer of a volume that may be bound (StorageObjectInUseProtection).
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The annotations of a default StorageClass.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The annotation with the storage class of a claim, before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The priority classes that the API server creates.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Completes an object that is created. `key` is for messages.
pub(super) fn create(object: &mut SimObject, key: &SimKey, store: &Store, settings: &Settings) -> Result<(), ApiError> {
    match object {
        SimObject::Pod(pod) => {
            let pod = Arc::make_mut(pod);
            set_service_account(pod);
            set_priority(pod, key, store)?;
            set_tolerations(pod, settings);
            if settings.since(35) {
                set_topology_labels(pod, store);
            }
        }
        SimObject::Node(node) => taint_new(Arc::make_mut(node)),
        SimObject::PersistentVolume(volume) => {
            protect(&mut Arc::make_mut(volume).metadata.finalizers, VOLUME_PROTECTION)
        }
        SimObject::PersistentVolumeClaim(claim) => {
            let claim = Arc::make_mut(claim);
            set_class(claim, store);
            protect(&mut claim.metadata.finalizers, CLAIM_PROTECTION);
        }
        SimObject::PriorityClass(class) if class.global_default == Some(true) => {
            if let Some(other) = default_priority(store) {
                let name = other.metadata.name.as_deref().unwrap_or_default();
                let message = format!("PriorityClass {name} is already marked as default. Only one default can exist");
                return Err(ApiError::Forbidden { key: key.clone(), message });
            }
        }
        _ => {}
    }
    Ok(())
}

/// Completes an object that is changed.
pub(super) fn update(object: &mut SimObject, before: &SimObject, settings: &Settings) {
    let (SimObject::Pod(new), SimObject::Pod(old)) = (object, before) else { return };
    let (Some(new_spec), Some(old)) = (&new.spec, &old.spec) else { return };
    let lost = (new_spec.priority.is_none() && old.priority.is_some())
        || (new_spec.preemption_policy.is_none() && old.preemption_policy.is_some());
    if !lost && tolerations_missing(new_spec.tolerations.as_deref().unwrap_or_default()).is_empty() {
        return;
    }
    let new = Arc::make_mut(new);
    let spec = new.spec.get_or_insert_default();
    spec.priority = spec.priority.or(old.priority);
    spec.preemption_policy = spec.preemption_policy.take().or_else(|| old.preemption_policy.clone());
    set_tolerations(new, settings);
}

/// Not-ready and unreachable nodes are tolerated for a while, unless the pod says otherwise
/// (DefaultTolerationSeconds).
fn set_tolerations(pod: &mut Pod, settings: &Settings) {
    let spec = pod.spec.get_or_insert_default();
    let missing = tolerations_missing(spec.tolerations.as_deref().unwrap_or_default());
    for key in missing {
        spec.tolerations.get_or_insert_default().push(Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".into()),
            effect: Some("NoExecute".into()),
            toleration_seconds: Some(settings.timers.default_toleration.as_secs()),
            ..Toleration::default()
        });
    }
}

fn tolerations_missing(tolerations: &[Toleration]) -> Vec<&'static str> {
    let covers = |toleration: &Toleration, key: &str| {
        let of =
            |field: &Option<String>, text: &str| field.as_deref().is_none_or(|field| field.is_empty() || field == text);
        of(&toleration.key, key) && of(&toleration.effect, "NoExecute")
    };
    let is_missing = |key: &&str| !tolerations.iter().any(|toleration| covers(toleration, key));
    [NOT_READY, UNREACHABLE].into_iter().filter(is_missing).collect()
}

/// The priority is that of the class (Priority).
fn set_priority(pod: &mut Pod, key: &SimKey, store: &Store) -> Result<(), ApiError> {
    let forbidden = |message: String| Err(ApiError::Forbidden { key: key.clone(), message });
    let spec = pod.spec.get_or_insert_default();
    let name = spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
    let class = name.map_or_else(|| default_priority(store), |name| store.get::<PriorityClass>("", name));
    let system = SYSTEM_CLASSES.iter().find(|(system, _)| Some(*system) == name);
    let (priority, policy) = match (class, system, name) {
        (Some(class), ..) => (class.value.unwrap_or(0), class.preemption_policy.clone()),
        (None, Some((_, value)), _) => (*value, Some("PreemptLowerPriority".into())),
        (None, None, None) => (0, Some("PreemptLowerPriority".into())),
        (None, None, Some(name)) => return forbidden(format!("no PriorityClass with name {name} was found")),
    };
    if let Some(given) = spec.priority.filter(|given| *given != priority) {
        return forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    if let (Some(given), Some(policy)) = (&spec.preemption_policy, &policy)
        && given != policy
    {
        return forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    if name.is_none() {
        spec.priority_class_name = class.and_then(|class| class.metadata.name.clone());
    }
    spec.priority = Some(priority);
    spec.preemption_policy = policy.or_else(|| spec.preemption_policy.take());
    Ok(())
}

/// The default class; of several, the one with the lowest value.
fn default_priority(store: &Store) -> Option<&Arc<PriorityClass>> {
    store.all::<PriorityClass>().filter(|class| class.global_default == Some(true)).min_by_key(|class| class.value)
}

/// The name of the service account, in both of its fields (ServiceAccount). A mirror pod has none.
fn set_service_account(pod: &mut Pod) {
    if pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return;
    }
    let spec = pod.spec.get_or_insert_default();
    let given =
        spec.service_account_name.take().filter(|name| !name.is_empty()).or_else(|| spec.service_account.take());
    let name = given.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into());
    spec.service_account = Some(name.clone());
    spec.service_account_name = Some(name);
}

fn set_topology_labels(pod: &mut Pod, store: &Store) {
    let Some(node) = crate::pods::node_of(pod).and_then(|name| store.get::<Node>("", name)) else { return };
    let labels = topology_labels(node);
    if !labels.is_empty() {
        pod.metadata.labels.get_or_insert_default().extend(labels);
    }
}

/// The labels of a node that its pods get.
pub(super) fn topology_labels(node: &Node) -> Vec<(String, String)> {
    let labels = node.metadata.labels.as_ref();
    let labels = TOPOLOGY_LABELS.iter().filter_map(|label| labels?.get_key_value(*label));
    labels.map(|(label, value)| (label.clone(), value.clone())).collect()
}

/// A new node is not ready until its lifecycle controller says so (TaintNodesByCondition).
fn taint_new(node: &mut Node) {
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if !taints.iter().any(|taint| taint.key == NOT_READY && taint.effect == "NoSchedule") {
        taints.push(Taint { key: NOT_READY.into(), effect: "NoSchedule".into(), ..Taint::default() });
    }
}

fn protect(finalizers: &mut Option<Vec<String>>, finalizer: &str) {
    let finalizers = finalizers.get_or_insert_default();
    if !finalizers.iter().any(|other| other == finalizer) {
        finalizers.push(finalizer.to_owned());
    }
}

/// A claim that names no class gets the default one; of several, the newest (DefaultStorageClass).
fn set_class(claim: &mut PersistentVolumeClaim, store: &Store) {
    let annotated = claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CLASS_ANNOTATION));
    let spec = claim.spec.get_or_insert_default();
    if annotated || spec.storage_class_name.is_some() {
        return;
    }
    let is_default = |class: &&Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        DEFAULT_CLASS.iter().any(|name| annotations.and_then(|all| all.get(*name)).is_some_and(|value| value == "true"))
    };
    let created = |class: &Arc<StorageClass>| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // The classes come by name, and the last of equals would be taken.
    let classes: Vec<_> = store.all::<StorageClass>().filter(is_default).collect();
    let default = classes.iter().rev().max_by_key(|class| created(class));
    if let Some(name) = default.and_then(|class| class.metadata.name.clone()) {
        spec.storage_class_name = Some(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiServer;
    use crate::settings::Settings;
    use serde_json::{Value, json};

    fn object(value: Value) -> SimObject {
        SimObject::from_json(&value).expect("an object")
    }

    fn class(name: &str, value: i32, default: bool) -> SimObject {
        object(json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
            "value": value, "globalDefault": default, "preemptionPolicy": "Never" }))
    }

    fn pod(spec: Value) -> SimObject {
        object(
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" }, "spec": spec }),
        )
    }

    fn admitted(objects: Vec<SimObject>, mut object: SimObject) -> Result<Value, String> {
        let server = ApiServer::with_objects(&Settings::default(), objects);
        let key = object.key();
        create(&mut object, &key, server.store(), &Settings::default()).map_err(|error| error.to_string())?;
        Ok(object.to_json())
    }

    #[test]
    fn the_priority_is_that_of_the_class() {
        let classes = vec![class("low", 5, false), class("usual", 10, true), class("other-default", 20, true)];
        for (classes, spec, expected) in [
            (vec![], json!({}), Ok(json!([null, 0, "PreemptLowerPriority"]))),
            (classes.clone(), json!({}), Ok(json!(["usual", 10, "Never"]))),
            (classes.clone(), json!({ "priorityClassName": "low", "priority": 5 }), Ok(json!(["low", 5, "Never"]))),
            (
                vec![],
                json!({ "priorityClassName": "system-node-critical" }),
                Ok(json!(["system-node-critical", 2_000_001_000, "PreemptLowerPriority"])),
            ),
            (
                classes.clone(),
                json!({ "priorityClassName": "low", "priority": 6 }),
                Err(
                    "pods \"p\" is forbidden: the integer value of priority (6) must not be provided in pod spec; priority \
                     admission controller computed 5 from the given PriorityClass name",
                ),
            ),
            (
                classes.clone(),
                json!({ "priorityClassName": "low", "preemptionPolicy": "PreemptLowerPriority" }),
                Err(
                    "pods \"p\" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be \
                     provided in pod spec; priority admission controller computed Never from the given PriorityClass name",
                ),
            ),
            (
                classes.clone(),
                json!({ "priorityClassName": "high" }),
                Err("pods \"p\" is forbidden: no PriorityClass with name high was found"),
            ),
        ] {
            let mut with_containers = spec.clone();
            with_containers["containers"] = json!([]);
            let found = admitted(classes, pod(with_containers)).map(|pod| {
                let spec = &pod["spec"];
                json!([spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]])
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{spec}");
        }
    }

    #[test]
    fn lost_nodes_are_tolerated_for_five_minutes() {
        let of =
            |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        let (not_ready, unreachable) = (of(NOT_READY), of(UNREACHABLE));
        let all = json!({ "operator": "Exists" });
        let other_effect = json!({ "key": NOT_READY, "operator": "Exists", "effect": "NoSchedule" });
        let own = json!({ "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 });
        for (given, expected) in [
            (json!([]), json!([not_ready, unreachable])),
            (json!([all]), json!([all])),
            (json!([own]), json!([own, not_ready])),
            (json!([other_effect]), json!([other_effect, not_ready, unreachable])),
        ] {
            let found = admitted(vec![], pod(json!({ "containers": [], "tolerations": given }))).expect("admitted");
            assert_eq!(found["spec"]["tolerations"], expected, "{given}");
        }
    }

    #[test]
    fn a_claim_gets_the_newest_default_class() {
        let storage = |name: &str, created: &str, annotation: &str| {
            object(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x",
                "metadata": { "name": name, "creationTimestamp": created, "annotations": { annotation: "true" } } }))
        };
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        let [stable, beta] = DEFAULT_CLASS;
        let classes =
            [storage("a", old, stable), storage("c", new, beta), storage("d", new, stable), storage("z", new, "no")];
        let claim = |spec: Value| {
            object(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": "c", "namespace": "n" }, "spec": spec }))
        };
        for (spec, expected) in [
            (json!({}), json!("c")),
            (json!({ "storageClassName": "a" }), json!("a")),
            (json!({ "storageClassName": "" }), json!("")),
        ] {
            let found = admitted(classes.to_vec(), claim(spec)).expect("admitted");
            assert_eq!(found["spec"]["storageClassName"], expected);
            assert_eq!(found["metadata"]["finalizers"], json!([CLAIM_PROTECTION]));
        }
        assert_eq!(admitted(vec![], claim(json!({}))).expect("admitted")["spec"]["storageClassName"], Value::Null);
    }

    #[test]
    fn a_new_node_is_tainted_and_a_bound_pod_has_the_labels_of_its_zone() {
        let node = object(json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "a", "labels": { "topology.kubernetes.io/zone": "z", "other": "x" } } }));
        let taints = &admitted(vec![], node.clone()).expect("admitted")["spec"]["taints"];
        assert_eq!(*taints, json!([{ "key": NOT_READY, "effect": "NoSchedule" }]));
        let bound = admitted(vec![node], pod(json!({ "containers": [], "nodeName": "a" }))).expect("admitted");
        assert_eq!(bound["metadata"]["labels"], json!({ "topology.kubernetes.io/zone": "z" }));
        assert_eq!(bound["spec"]["serviceAccountName"], "default");
    }
}
