//! The faults that can be planted.

mod containers;
mod creation;
mod deletion;
mod nodes;
mod scheduling;
mod storage;

use serde_json::{Value, json};
use stead_chance::Chance;

use crate::background;
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, Owner, reference};

/// A fault: adds the objects of a broken part, and what triage has to report about them.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    plant: fn(&mut FaultyCluster, &str),
}

macro_rules! faults {
    ($($module:ident { $($name:ident)* })*) => {
        /// All faults.
        pub const FAULTS: &[Fault] = &[$($(Fault { name: stringify!($name), plant: $module::$name },)*)*];
    };
}

faults! {
    nodes { dead_node deleted_node not_ready_node dead_node_by_lease capacity_of_a_dead_node }
    storage {
        volume_held attach_fails detach_fails provisioning_fails driver_not_registered claim_without_provisioner
        claim_without_class claim_without_local_volume lost_claim selected_node_is_dead volume_on_dead_node
        exclusive_claim_on_dead_node
    }
    scheduling { too_large no_node_matches gated topology_unsatisfiable cordoned unread_by_scheduler }
    containers {
        image_pull crash_loop out_of_memory init_container_fails probe_fails config_map_missing run_as_root
        secret_volume_missing sandbox_fails init_not_finished readiness_gate cron_job_stuck
    }
    creation {
        quota_of_deployment quota_of_stateful_set quota_of_cron_job service_account_missing limit_range replicas_missing
        rollout_by_quota
    }
    deletion {
        pod_finalizer namespace_content namespace_finalizer claim_in_use claim_of_a_stuck_pod termination_stuck drain_blocked
        custom_finalizer missing_claim missing_class
    }
}

/// Plants a random selection, some faults more than once.
pub(crate) fn plant_some(cluster: &mut FaultyCluster) {
    let count = 3 + cluster.chance.below(20);
    for _ in 0..count {
        if let Some(fault) = cluster.chance.one_of(FAULTS) {
            plant_one(cluster, fault);
        }
    }
}

/// A small cluster with one fault.
pub fn plant(seed: u64, fault: &Fault) -> FaultyCluster {
    let mut cluster = FaultyCluster::new(Chance::new(seed), 6);
    background::add(&mut cluster);
    plant_one(&mut cluster, *fault);
    cluster.finish();
    cluster
}

pub(crate) fn plant_one(cluster: &mut FaultyCluster, fault: Fault) {
    let namespace = format!("fault-{}", cluster.serial());
    let mut object = cluster.object("v1", "Namespace", "", &namespace, 10 * DAY);
    object["spec"] = json!({ "finalizers": ["kubernetes"] });
    object["status"] = json!({ "phase": "Active" });
    if !fault.name.starts_with("namespace_") {
        cluster.add(object);
    }
    cluster.note(fault.name);
    (fault.plant)(cluster, &namespace);
}

/// Adds a Deployment with pods in one state. Returns the references of its pods and of the Deployment.
fn broken_deployment(
    cluster: &mut FaultyCluster,
    namespace: &str,
    pods: i64,
    spec: &Value,
    state: impl Fn(&mut FaultyCluster, &mut Value),
) -> (Vec<String>, String) {
    let (deployment, owner) = cluster.deployment(namespace, "app", pods, 0, spec);
    let of_deployment = reference(&deployment);
    cluster.add(deployment);
    let mut names = Vec::new();
    for _ in 0..pods {
        let mut pod = cluster.replica(namespace, &owner, spec, 2 * 3600);
        state(cluster, &mut pod);
        names.push(reference(&pod));
        cluster.add(pod);
    }
    (names, of_deployment)
}

/// Expects the pods of a Deployment and the Deployment: about the only pod, or about the Deployment.
fn expect_pods(cluster: &mut FaultyCluster, cause: &str, pods: Vec<String>, workload: String) {
    let about = if pods.len() == 1 { pods[0].clone() } else { workload.clone() };
    cluster.expect(cause, &about, pods.into_iter().chain([workload]));
}

/// The owner of a pod without others.
const NO_OWNER: Option<&Owner> = None;
