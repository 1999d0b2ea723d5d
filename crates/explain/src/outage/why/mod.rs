//! Why a pod is Terminating, or on a node and not Ready: line by line, in Kubernetes' own words where it has some.

mod node;
mod plain;
mod terminating;
mod volumes;

use super::forecast::Scene;
use super::pod::PodSeen;
use super::timers::Clock;
use super::volumes::volumes_of;
use crate::objects::Objects;

/// What is said of the pods and nodes of an outage.
pub(crate) struct Why<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
}

impl Why<'_> {
    /// Why a pod that has a node is not Ready.
    pub(crate) fn not_ready(&self, pod: PodSeen, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        for volume in volumes_of(self.objects, pod.namespace(), pod.0) {
            out.extend(self.volume(pod, &volume, scene));
        }
        out.extend(self.plain(pod));
        out
    }

    /// How a pod is, in a few words.
    pub(super) fn standing(&self, pod: PodSeen) -> String {
        let place = pod.node().map(|n| format!(" on {n}")).unwrap_or_default();
        let ready = if pod.ready() { "Ready" } else { "not Ready" };
        format!("{}{place}, {ready}", pod.phase())
    }
}
