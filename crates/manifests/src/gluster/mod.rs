//! A Gluster pool as plain Kubernetes objects, without an operator or CRD.
//!
//! [`Pool`] has the values that a user sets, [`check`] validates them before anything is applied, and [`pool`] returns
//! the objects in the order in which they are created. The agent in each pod manages the pool; it relies on the names
//! defined here.

mod check;
mod network;
mod placement;
mod pod;
mod policy;
mod record;
mod rights;
mod service;
mod storage;
mod values;

pub use check::{Checked, Fault, check};
pub use pod::AGENT_PORT_NAME;
pub use rights::{AgentRight, rights};
pub use values::{Network, Pool, PoolStorageClass, Privilege, Probe, Source, Spread};

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};

/// The label with the name of the pool.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Where glusterd keeps its state.
const STATE_PATH: &str = "/var/lib/glusterd";

/// What is not checked in a cluster without the admission policy.
pub const UNCHECKED: &str = "a scale-down that would strand bricks is not denied, and neither is a recreated pool that is \
                             too small for its bricks";

/// Returns all objects of a pool in the order in which they are created: what pods need exists before them.
pub fn pool(pool: &Pool) -> Vec<Manifest> {
    let mut all = Vec::new();
    all.extend(pool.create_namespace.then(|| service::namespace(pool)));
    all.extend(storage::class(pool));
    all.extend(rights::objects(pool));
    all.push(record::record(pool));
    all.push(record::key(pool));
    if pool.policy {
        all.extend(policy::objects(pool));
    }
    all.extend(network::policy(pool));
    all.push(service::service(pool));
    all.push(service::budget(pool));
    all.push(pod::stateful_set(pool));
    all
}

/// Whether an object of a cluster belongs to this pool.
pub fn is_of(object: &Value, pool: &str) -> bool {
    crate::is_ours(object) && object["metadata"]["labels"][INSTANCE] == pool
}

/// The labels that select the pool's pods. They never change: the selector of a StatefulSet is immutable.
fn labels(pool: &Pool) -> Value {
    json!(stead_pool::config_map::labels(&pool.name))
}

/// Builds an object of the pool, in its namespace.
fn manifest(pool: &Pool, plural: &'static str, api_version: &str, kind: &str, rest: Value) -> Manifest {
    let metadata = json!({"name": pool.name, "namespace": pool.namespace, "labels": labels(pool)});
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    Manifest::new(Part::Pool, plural, object)
}
