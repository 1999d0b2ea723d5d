//! A whole queue of pods, placed one after the other.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as RawNode, Pod as RawPod};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::error::InputError;
use crate::pod::Pod;
use crate::snapshot::Snapshot;
use crate::verdict::Unmodelled;

/// A cluster and the pods that wait for a place in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Batch {
    /// The nodes.
    pub nodes: Vec<RawNode>,
    /// The pods that are there.
    pub pods: Vec<RawPod>,
    /// The pods to place, in this order.
    pub queue: Vec<RawPod>,
}

/// Why a batch cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// An object that Kubernetes would have refused.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A pod that asks for what is not modelled.
    #[error(transparent)]
    Unmodelled(#[from] Unmodelled),
}

impl Batch {
    /// The cluster as it is before the queue.
    pub fn cluster(&self) -> Result<Cluster, InputError> {
        Cluster::from_snapshot(&Snapshot { nodes: self.nodes.clone(), pods: self.pods.clone(), ..Snapshot::default() })
    }
}

/// Places pods in their order, each assumed on one of its best nodes before the next is looked at: the node of each,
/// none where nothing fits. The seed chooses among equals.
pub fn place_all(cluster: &mut Cluster, queue: &[RawPod], seed: u64) -> Result<Vec<Option<Arc<str>>>, BatchError> {
    let mut nodes = Vec::with_capacity(queue.len());
    for (raw, turn) in queue.iter().zip(0..) {
        let pod = Pod::compile(raw)?;
        let node = cluster.place(&pod)?.choose(seed.wrapping_add(turn)).cloned();
        if let Some(node) = &node {
            cluster.assume(&pod, node).expect("the best nodes are nodes of the cluster");
        }
        nodes.push(node);
    }
    Ok(nodes)
}
