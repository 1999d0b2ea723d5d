//! The defaults of the fields of each kind (`SetDefaults_*` in `pkg/apis/*/v1/defaults.go`). Setting them again changes
//! nothing.

pub(super) mod pod;
pub(super) mod service;
mod storage;
mod workloads;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use stead_semantics::quantity;

use crate::object::SimObject;
use crate::settings::Settings;

/// Sets the defaults of an object that is created or replaced.
pub(super) fn apply(object: &mut SimObject, settings: &Settings) {
    match object {
        SimObject::Pod(object) => pod::pod(Arc::make_mut(object)),
        SimObject::ReplicaSet(object) => workloads::replica_set(Arc::make_mut(object)),
        SimObject::Deployment(object) => workloads::deployment(Arc::make_mut(object)),
        SimObject::StatefulSet(object) => workloads::stateful_set(Arc::make_mut(object), settings),
        SimObject::DaemonSet(object) => workloads::daemon_set(Arc::make_mut(object)),
        SimObject::ReplicationController(object) => workloads::replication_controller(Arc::make_mut(object)),
        SimObject::Job(object) => workloads::job(Arc::make_mut(object)),
        SimObject::CronJob(object) => workloads::cron_job(Arc::make_mut(object)),
        SimObject::PersistentVolume(object) => storage::volume(Arc::make_mut(object)),
        SimObject::PersistentVolumeClaim(object) => storage::claim(Arc::make_mut(object)),
        SimObject::StorageClass(object) => storage::class(Arc::make_mut(object)),
        SimObject::CSIDriver(object) => storage::driver(Arc::make_mut(object)),
        SimObject::Service(object) => service::service(Arc::make_mut(object)),
        SimObject::EndpointSlice(object) => service::endpoint_slice(Arc::make_mut(object)),
        SimObject::Namespace(object) => namespace(Arc::make_mut(object)),
        SimObject::Node(object) => node(Arc::make_mut(object)),
        SimObject::PriorityClass(object) => {
            set(&mut Arc::make_mut(object).preemption_policy, "PreemptLowerPriority");
        }
        _ => {}
    }
}

/// Whether an object obviously has its defaults. Pods are many, and those of a real cluster have them.
pub(super) fn are_set(object: &SimObject) -> bool {
    match object {
        SimObject::Pod(pod) => pod.spec.as_ref().is_some_and(|spec| {
            let of_pod = spec.enable_service_links.is_some() && spec.scheduler_name.is_some();
            of_pod && spec.containers.iter().all(|container| container.termination_message_policy.is_some())
        }),
        _ => false,
    }
}

/// Sets a text that is missing or empty.
fn set(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}

/// Sets a number that is missing or zero.
fn set_number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

/// Writes quantities as the API server does: `1000m` is `1`.
fn canonical(quantities: &mut Option<BTreeMap<String, Quantity>>) {
    for value in quantities.iter_mut().flat_map(BTreeMap::values_mut) {
        // A plain number is what it is.
        if value.0.bytes().all(|byte| byte.is_ascii_digit()) && !value.0.starts_with('0') {
            continue;
        }
        if let Ok(parsed) = quantity::Quantity::parse(&value.0) {
            let text = parsed.to_string();
            if text != value.0 {
                value.0 = text;
            }
        }
    }
}

fn namespace(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    if !name.is_empty() {
        let labels = namespace.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/metadata.name".into(), name);
    }
}

fn node(node: &mut Node) {
    let Some(status) = &mut node.status else { return };
    canonical(&mut status.capacity);
    canonical(&mut status.allocatable);
    if status.allocatable.is_none() {
        status.allocatable.clone_from(&status.capacity);
    }
}
