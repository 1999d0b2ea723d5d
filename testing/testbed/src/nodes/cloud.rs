//! The cloud of the machines, as the node lifecycle controller of a cloud controller manager shows it to Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::machine::is_ready;
use super::world::World;

/// What the cloud's controller manager says of a machine that is off.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// How often the cloud is asked about machines that are not ready. The real one has 5 s.
const PERIOD: Duration = Duration::from_millis(500);

/// A machine, as its cloud has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Instance {
    /// It runs. A suspended one does too, for all that the cloud's controller manager is told.
    #[default]
    Running,
    /// It is shut down.
    Off,
    /// It was deleted.
    Gone,
}

/// Looks at the nodes that are not ready: the object of a machine that is gone is deleted, one that is off gets a taint,
/// which goes when the node is ready again.
pub(super) async fn run(world: Arc<World>) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tick.tick().await;
        for name in world.names() {
            let Some(node) = world.node(name) else { continue };
            // What fails is tried again in a moment.
            let _ = look(&nodes, &node, world.instance(name)).await;
        }
    }
}

async fn look(nodes: &Api<Node>, node: &Node, instance: Instance) -> kube::Result<()> {
    let name = node.name_any();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tainted = taints.iter().any(|taint| taint.key == SHUTDOWN);
    let mut wanted: Vec<Value> = taints.iter().filter(|t| t.key != SHUTDOWN).map(|taint| json!(taint)).collect();
    match (is_ready(node), instance) {
        (true, _) if tainted => {}
        (false, Instance::Off) if !tainted => wanted.push(json!({ "key": SHUTDOWN, "effect": "NoSchedule" })),
        (false, Instance::Gone) => {
            let preconditions = Some(Preconditions { uid: node.uid(), resource_version: None });
            return nodes.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await.map(drop);
        }
        _ => return Ok(()),
    }
    // Somebody else's taints are in the list too: a version that is not the newest is refused.
    let version = node.resource_version();
    let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": wanted } });
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}
