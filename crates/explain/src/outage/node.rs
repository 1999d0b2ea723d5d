//! The health of nodes whose objects were checked beforehand.

use stead_model::{ModelError, NodeHealth, Objects, PodView};

use super::timers::Clock;

/// The health of a node; none if there is no Node of this name. That it is well formed is checked beforehand.
pub(crate) fn health<'a>(objects: &'a Objects, name: &str) -> Option<NodeHealth<'a>> {
    objects.node_health(name).ok().flatten()
}

/// An error if a Node is malformed: what happens to pods depends on all nodes.
pub(crate) fn check_nodes(objects: &Objects) -> Result<(), ModelError> {
    objects.keys("Node").try_for_each(|key| objects.node(&key.name).map(|_| ()))
}

/// Whether the node of a pod is reachable, but not ready.
pub(crate) fn is_on_not_ready_node(objects: &Objects, clock: &Clock, pod: PodView) -> bool {
    let node = pod.node().and_then(|name| health(objects, name));
    node.is_some_and(|node| node.is_reachable_but_not_ready(clock.leases))
}
