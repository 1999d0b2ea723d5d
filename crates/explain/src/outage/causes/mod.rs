//! Why a pod is Terminating, or has a node and is not Ready: line by line, in Kubernetes' own words where there are any.

mod containers;
mod node;
mod terminating;
mod volumes;

use std::collections::BTreeSet;

use stead_model::{Objects, PodView, pod_volumes};

use super::forecast::{Future, Scene};
use super::time_text::when;
use super::timers::Clock;

/// Explains pods and nodes of an outage.
pub(crate) struct OutageExplainer<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
    /// The kinds that were read.
    pub(crate) kinds: &'a BTreeSet<String>,
    /// What becomes of the pod or the pods of the node; none where nothing happens to them.
    pub(crate) future: Option<&'a Future<'a>>,
}

impl OutageExplainer<'_> {
    /// Why a pod that has a node is not Ready.
    pub(crate) fn not_ready(&self, pod: PodView, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        for volume in pod_volumes(self.objects, pod) {
            out.extend(self.volume(pod, &volume, scene));
        }
        out.extend(self.containers(pod));
        out.extend(self.on_not_ready_node(pod));
        if out.is_empty() {
            let since = pod.condition_since("PodScheduled", "True");
            let since = since.map(|at| format!(" at {}", when(at, self.clock.now))).unwrap_or_default();
            out.push(format!("it was scheduled{since}; no object that was read tells why it is not Ready"));
        }
        out
    }

    /// Phase, node and readiness of a pod.
    pub(super) fn state(&self, pod: PodView) -> String {
        let place = pod.node().map(|n| format!(" on {n}")).unwrap_or_default();
        let ready = if pod.is_ready() { "Ready" } else { "not Ready" };
        format!("{}{place}, {ready}", pod.phase())
    }
}
