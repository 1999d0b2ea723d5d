//! Places a queue of pods, one after the other.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as RawNode, Pod as RawPod};
use serde::{Deserialize, Serialize};
use stead_model::KubernetesVersion;

use crate::cluster::Cluster;
use crate::error::InputError;
use crate::pod::Pod;
use crate::snapshot::Snapshot;
use crate::verdict::Unmodelled;

/// A cluster and a queue of pending pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Batch {
    /// The nodes.
    pub nodes: Vec<RawNode>,
    /// The existing pods.
    pub pods: Vec<RawPod>,
    /// The pods to place, in this order.
    pub queue: Vec<RawPod>,
}

/// Why a batch cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// An object that Kubernetes would reject.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A pod that uses a feature that is not modelled.
    #[error(transparent)]
    Unmodelled(#[from] Unmodelled),
}

impl Batch {
    /// The cluster before the queue is placed.
    pub fn cluster(&self) -> Result<Cluster, InputError> {
        let snapshot = Snapshot { nodes: self.nodes.clone(), pods: self.pods.clone(), ..Snapshot::default() };
        Cluster::from_snapshot(&snapshot, KubernetesVersion::NEWEST)
    }
}

/// Places pods in order. Each is assumed on one of its best nodes before the next is placed. Returns the node of each
/// pod, or none if no node is feasible. The seed chooses among equally good nodes.
pub fn place_all(cluster: &mut Cluster, queue: &[RawPod], seed: u64) -> Result<Vec<Option<Arc<str>>>, BatchError> {
    let mut nodes = Vec::with_capacity(queue.len());
    for (raw, turn) in queue.iter().zip(0..) {
        let pod = Pod::compile(raw, cluster.version())?;
        let node = cluster.place(&pod)?.choose(seed.wrapping_add(turn)).cloned();
        if let Some(node) = &node {
            cluster.assume(&pod, node).expect("the best nodes are nodes of the cluster");
        }
        nodes.push(node);
    }
    Ok(nodes)
}
