//! Pods that no node takes: what the scheduler says, and the best way out.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use stead_explain::explain_placement;
use stead_model::{ObjectKey, Objects, placement_kinds};

use crate::object::{items, name, namespace, present, text, uid};
use crate::step::World;

/// What is to be said about the pods of a GlanceAPI that wait for a node.
pub(crate) struct Waiting {
    pub(crate) message: String,
    /// The same without a way out, which may change from minute to minute.
    pub(crate) reason: String,
    /// Whether the whole cluster would have told a way out.
    pub(crate) wants_cluster: bool,
    /// When to look again: what else changes in the cluster may open a way out, and is not told to us.
    pub(crate) again: Duration,
}

/// So often is a way out looked for while pods wait.
const OFTEN: Duration = Duration::from_secs(60);

/// So soon where the cluster was read before the pod waited.
const SOON: Duration = Duration::from_secs(3);

/// None where none waits.
pub(crate) fn waiting(world: &World<'_>, api: &Value) -> Option<Waiting> {
    let pods: Vec<(&Value, &str)> = world
        .store
        .list("Pod", namespace(api))
        .filter(|pod| pod["metadata"]["labels"]["owner"] == api["metadata"]["name"])
        .filter(|pod| waits(pod))
        .filter_map(|pod| {
            let scheduled = items(pod, "/status/conditions").find(|c| c["type"] == "PodScheduled")?;
            (scheduled["status"] == "False").then(|| (pod, text(scheduled, "/message")))
        })
        .collect();
    let (first, reason) = *pods.first()?;
    let others = match pods.len() {
        1 => String::new(),
        2 => " (and one more pod)".to_owned(),
        n => format!(" (and {} more pods)", n - 1),
    };
    let key = ObjectKey::new("Pod", namespace(first), name(first));
    let way_out = world.cluster.and_then(|cluster| {
        let kinds: BTreeSet<String> = placement_kinds().map(|k| k.kind.to_owned()).collect();
        let explanation = explain_placement(cluster, &key, &kinds).ok()?;
        explanation.fixes.into_iter().next().map(|offer| offer.text)
    });
    let advice = match (&way_out, world.cluster) {
        (Some(way_out), _) => format!(" A way out: {way_out}."),
        (None, _) => String::new(),
    };
    let reason = format!("{}{others}: {reason}", name(first));
    let message = format!("{reason}{advice} See: stead explain pod/{} -n {}", name(first), namespace(first));
    let is_there = |cluster: &Objects| cluster.raw(&key).is_some_and(|pod| waits(pod) && uid(pod) == uid(first));
    let again = if world.cluster.is_some_and(is_there) { OFTEN } else { SOON };
    Some(Waiting { message, reason, wants_cluster: world.cluster.is_none(), again })
}

/// Whether a pod is on no node, and is to be.
fn waits(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty() && present(pod, "/metadata/deletionTimestamp").is_none()
}
