//! Stand-ins for machines, kubelets and storage. They use only the public API.
//!
//! They see the cluster through watches (`world.rs`). Each task has a file: a node's lease (`heartbeats.rs`) and status
//! (`machine.rs`), the lifecycle of a pod (`pods.rs`, with its status in `pod_status.rs`), volumes that are created for
//! claims (`provision.rs`), attached to nodes (`attach.rs`) by the storage (`disks.rs`), reported as in use
//! (`in_use.rs`) and awaited by pods (`mounts.rs`), and what a cloud reports about its machines (`cloud.rs`).

mod attach;
mod cloud;
mod disks;
mod heartbeats;
mod in_use;
mod machine;
mod mounts;
mod pod_status;
mod pods;
mod provision;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{ClusterSpec, ControlPlane};
pub use cloud::Instance;
pub use disks::Disks;
use heartbeats::Heartbeats;
pub use pods::Kubelets;
pub use world::{World, observe};

/// How the containers of a Job terminate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// With exit code 0.
    Succeed,
    /// With exit code 1.
    Fail,
    /// Not at all.
    KeepRunning,
}

/// Nodes with kubelets and storage drivers. They all become unreachable when this value is dropped.
pub struct Nodes {
    world: Arc<World>,
    _heartbeats: Heartbeats,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

impl Nodes {
    /// Registers the nodes and the drivers, and starts them. Existing nodes of the same names are taken over, with
    /// their pods.
    pub async fn start(plane: &ControlPlane, spec: ClusterSpec) -> Result<Nodes> {
        Nodes::start_with(plane, spec, Arc::new(pods::Delays)).await
    }

    /// Like [`Nodes::start`], with another implementation of the kubelets.
    pub async fn start_with(plane: &ControlPlane, spec: ClusterSpec, kubelets: Arc<dyn Kubelets>) -> Result<Nodes> {
        let client = plane.client();
        machine::register(&client, &spec).await?;
        let mut tasks = JoinSet::new();
        let world = Arc::new(World::new(client, spec, kubelets.clone(), &mut tasks));
        world.ready().await?;
        for node in &world.spec.nodes {
            tasks.spawn(machine::report_status(world.clone(), node.name.clone()));
        }
        let heartbeats = Heartbeats::start(plane.config().await?, world.clone())?;
        if world.spec.cloud.is_some() {
            tasks.spawn(cloud::run(world.clone()));
        }
        tasks.spawn(provision::run(world.clone()));
        tasks.spawn(attach::run(world.clone()));
        tasks.spawn(pods::run(world.clone(), kubelets));
        Ok(Nodes { world, _heartbeats: heartbeats, _tasks: tasks })
    }

    /// The nodes' view of the cluster.
    pub fn world(&self) -> Arc<World> {
        self.world.clone()
    }

    /// Waits until every reachable node is Ready and has no taint. It needs a controller manager, which removes the
    /// taint of a new node.
    pub async fn ready(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(900);
        let mut changed = self.world.changed();
        loop {
            let late: Vec<&str> =
                self.world.names().filter(|n| self.world.is_reachable(n) && !self.is_schedulable(n)).collect();
            if late.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("nodes not ready after 15 minutes: {}", late.join(", "));
            }
            let _ = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
        }
    }

    fn is_schedulable(&self, name: &str) -> bool {
        self.world.node(name).is_some_and(|node| {
            machine::is_ready(&node) && node.spec.as_ref().is_none_or(|s| s.taints.as_ref().is_none_or(Vec::is_empty))
        })
    }

    /// Whether a node is Ready according to the API server.
    pub fn is_ready(&self, name: &str) -> bool {
        self.world.node(name).is_some_and(|node| machine::is_ready(&node))
    }

    /// Makes a node unreachable: it renews no lease, and does nothing to its pods.
    pub fn make_unreachable(&self, node: &str) -> Result<()> {
        self.world.set_reachable(node, false)
    }

    /// Makes a node reachable again.
    pub fn resume(&self, node: &str) -> Result<()> {
        self.world.set_reachable(node, true)
    }

    /// The storage behind attachable volumes.
    pub fn disks(&self) -> &Disks {
        &self.world.disks
    }

    /// Sets the state of a node's machine in the cloud. It has an effect only with [`ClusterSpec::cloud`].
    pub fn set_instance(&self, node: &str, instance: Instance) {
        self.world.set_instance(node, instance);
    }

    /// Creates the Node again if it was deleted.
    pub async fn register(&self, name: &str) -> Result<()> {
        let spec = &self.world.spec;
        let node =
            spec.nodes.iter().find(|node| node.name == name).with_context(|| format!("node {name} does not exist"))?;
        machine::register_node(&self.world.client, node, spec).await
    }

    /// Sets a label of a node, or removes it.
    pub async fn set_label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.world.client.clone());
        let patch = json!({ "metadata": { "labels": { key: value } } });
        nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("node {node}"))?;
        Ok(())
    }

    /// Sets how containers of Jobs terminate, including the running ones. The default is success.
    pub fn end_jobs(&self, how: JobEnd) {
        self.world.end_jobs(how);
    }
}
