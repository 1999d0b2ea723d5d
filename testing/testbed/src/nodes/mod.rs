//! Stand-ins for machines, kubelets and storage. They use only the public API.
//!
//! They see the cluster through watches (`world.rs`). What they do is in a file each: a node's lease (`heartbeats.rs`)
//! and status (`machine.rs`), the life of a pod (`pods.rs`, with its status as data in `pod_status.rs`), volumes
//! created for claims (`provision.rs`), attached to nodes (`attach.rs`) by the storage (`disks.rs`), reported as in
//! use (`in_use.rs`) and awaited by pods (`mounts.rs`), and what a cloud reports about its machines (`cloud.rs`).

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

/// How the containers of a Job end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// With exit code 0.
    Succeed,
    /// With exit code 1.
    Fail,
    /// Not at all.
    RunOn,
}

/// Nodes with kubelets and storage drivers. They go silent, all at once, when this value is dropped.
pub struct Nodes {
    world: Arc<World>,
    _heartbeats: Heartbeats,
    /// Aborted when it is dropped.
    _tasks: JoinSet<()>,
}

impl Nodes {
    /// Registers the nodes and the drivers, and starts what they do. Nodes that are there already are taken over, with
    /// the pods on them.
    pub async fn start(plane: &ControlPlane, spec: ClusterSpec) -> Result<Nodes> {
        Nodes::start_with(plane, spec, Arc::new(pods::Delays)).await
    }

    /// The same, with somebody else who leads the lives of the pods.
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

    /// What the nodes see.
    pub fn world(&self) -> Arc<World> {
        self.world.clone()
    }

    /// Waits until every node that is not silent is Ready and has no taint. Somebody has to take the taint of a new
    /// node away: a controller manager must run.
    pub async fn ready(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(900);
        let mut changed = self.world.changed();
        loop {
            let late: Vec<&str> =
                self.world.names().filter(|n| self.world.is_awake(n) && !self.takes_pods(n)).collect();
            if late.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("nodes that are not ready after 15 minutes: {}", late.join(", "));
            }
            let _ = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
        }
    }

    fn takes_pods(&self, name: &str) -> bool {
        self.world.node(name).is_some_and(|node| {
            machine::is_ready(&node) && node.spec.as_ref().is_none_or(|s| s.taints.as_ref().is_none_or(Vec::is_empty))
        })
    }

    /// Whether the API server has this node as Ready.
    pub fn is_ready(&self, name: &str) -> bool {
        self.world.node(name).is_some_and(|node| machine::is_ready(&node))
    }

    /// The node is heard of no more: it renews no lease, and does nothing to its pods.
    pub fn silence(&self, node: &str) -> Result<()> {
        self.world.power(node, false)
    }

    /// The node is back.
    pub fn resume(&self, node: &str) -> Result<()> {
        self.world.power(node, true)
    }

    /// The storage behind the volumes that are attached.
    pub fn disks(&self) -> &Disks {
        &self.world.disks
    }

    /// What the cloud has of a node's machine from now on. It has a say if [`ClusterSpec::cloud`] is set.
    pub fn set_instance(&self, node: &str, instance: Instance) {
        self.world.set_instance(node, instance);
    }

    /// The node registers itself, if somebody deleted its object meanwhile.
    pub async fn register(&self, name: &str) -> Result<()> {
        let spec = &self.world.spec;
        let node = spec.nodes.iter().find(|node| node.name == name).with_context(|| format!("no node {name}"))?;
        machine::register_node(&self.world.client, node, spec).await
    }

    /// Sets a label of a node, or takes it away.
    pub async fn set_label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.world.client.clone());
        let patch = json!({ "metadata": { "labels": { key: value } } });
        nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("node {node}"))?;
        Ok(())
    }

    /// How the containers of Jobs end from now on, those that run among them. They succeed unless told otherwise.
    pub fn end_jobs(&self, how: JobEnd) {
        self.world.end_jobs(how);
    }
}
