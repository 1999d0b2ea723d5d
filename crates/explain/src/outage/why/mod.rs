//! Why a pod is Terminating, or on a node and not Ready: line by line, in Kubernetes' own words where it has some.

mod node;
mod plain;
mod terminating;
mod volumes;

use std::collections::BTreeSet;

use super::forecast::Scene;
use super::pod::PodSeen;
use super::timers::Clock;
use super::volumes::volumes_of;
use super::words::when;
use stead_model::Objects;

/// What is said of the pods and nodes of an outage.
pub(crate) struct Why<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
    /// The kinds that were read.
    pub(crate) kinds: &'a BTreeSet<String>,
}

impl Why<'_> {
    /// Why a pod that has a node is not Ready.
    pub(crate) fn not_ready(&self, pod: PodSeen, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        for volume in volumes_of(self.objects, pod.namespace(), pod.0) {
            out.extend(self.volume(pod, &volume, scene));
        }
        out.extend(self.plain(pod));
        out.extend(self.unwell(pod));
        if out.is_empty() {
            let since = pod.since("PodScheduled").map(|at| format!(" since {}", when(at, self.clock.now)));
            let since = since.unwrap_or_default();
            out.push(format!("it has its node{since}; nothing that was read tells why it is not Ready"));
        }
        out
    }

    /// How a pod is, in a few words.
    pub(super) fn standing(&self, pod: PodSeen) -> String {
        let place = pod.node().map(|n| format!(" on {n}")).unwrap_or_default();
        let ready = if pod.ready() { "Ready" } else { "not Ready" };
        format!("{}{place}, {ready}", pod.phase())
    }
}
