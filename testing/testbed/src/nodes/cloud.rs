//! Simulates the cloud node lifecycle controller of a cloud controller manager.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::machine::is_ready;
use super::world::World;

/// The taint for a machine that is shut down.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// How often nodes are checked. The real controller uses 5 s.
const PERIOD: Duration = Duration::from_millis(500);

/// The state of a machine in its cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Instance {
    /// It runs. A suspended machine is reported as running too.
    #[default]
    Running,
    /// It is shut down.
    Off,
    /// It was deleted.
    Deleted,
}

/// Checks the nodes that are not Ready: deletes the Node of a deleted machine, and taints the Node of a machine that is
/// off. The taint is removed when the node is Ready again.
pub(super) async fn run(world: Arc<World>) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tick.tick().await;
        for name in world.names() {
            let Some(node) = world.node(name) else { continue };
            // A failure is retried in the next period.
            let _ = update_node(&nodes, &node, world.instance(name)).await;
        }
    }
}

async fn update_node(nodes: &Api<Node>, node: &Node, instance: Instance) -> kube::Result<()> {
    let name = node.name_any();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tainted = taints.iter().any(|taint| taint.key == SHUTDOWN);
    let mut wanted: Vec<Value> = taints.iter().filter(|t| t.key != SHUTDOWN).map(|taint| json!(taint)).collect();
    match (is_ready(node), instance) {
        (true, _) if tainted => {}
        (false, Instance::Off) if !tainted => wanted.push(json!({ "key": SHUTDOWN, "effect": "NoSchedule" })),
        (false, Instance::Deleted) => {
            let preconditions = Some(Preconditions { uid: node.uid(), resource_version: None });
            return nodes.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await.map(drop);
        }
        _ => return Ok(()),
    }
    // The patch replaces all taints, so it must fail if the Node was modified meanwhile.
    let version = node.resource_version();
    let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": wanted } });
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}
