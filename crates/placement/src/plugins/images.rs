//! ImageLocality: prefers nodes that already have the pod's images.

use super::MAX_SCORE;
use crate::cluster::Cluster;
use crate::node::Node;
use crate::pod::PodSpec;

const MB: i64 = 1024 * 1024;
const MIN: i64 = 23 * MB;
const MAX_PER_CONTAINER: i64 = 1000 * MB;

pub(crate) fn score(cluster: &Cluster, pod: &PodSpec, node: &Node) -> i64 {
    let nodes = cluster.node_count() as f64;
    let sum: i64 = pod
        .images
        .iter()
        .filter(|name| node.images.iter().any(|(n, _)| **n == ***name))
        .filter_map(|name| cluster.image(name))
        // An image on few nodes counts less, to avoid concentrating pods there.
        .map(|state| (state.size as f64 * (state.nodes as f64 / nodes)) as i64)
        .fold(0, i64::wrapping_add);
    let max = MAX_PER_CONTAINER * pod.containers as i64;
    let sum = if sum < MIN { MIN } else { sum.min(max) };
    if max == MIN { 0 } else { MAX_SCORE * (sum - MIN) / (max - MIN) }
}
