//! The health of a node.

use stead_model::{NodeHealth, OUT_OF_SERVICE, Readiness, SHUTDOWN};

use super::OutageExplainer;
use crate::outage::events;
use crate::outage::eviction::{self, Brake};
use crate::outage::node::health;
use crate::outage::time_text::{moment, when};

impl OutageExplainer<'_> {
    /// The health of a node: since when it is unreachable, by which evidence, and what the control plane did.
    pub(crate) fn node(&self, name: &str) -> Vec<String> {
        let now = self.clock.now;
        let Some(node) = health(self.objects, name) else {
            let gone = events::node_gone(self.objects, name);
            let since = gone.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
            return vec![format!("node {name}: the Node object does not exist{since}")];
        };
        let mut out = Vec::new();
        let ready = match node.readiness {
            Readiness::Ready => "Ready",
            Readiness::NotReady => "not Ready, as its kubelet reports",
            Readiness::Unknown => "Unknown",
        };
        let since = node.since.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
        out.push(format!("node {name} is {ready}{since}"));
        if let Some(message) = ready_message(&node) {
            out.push(format!("its condition says {message:?}"));
        }
        if node.is_unreachable(self.clock.leases) {
            let source = if node.lease.is_some() { "Lease renewal" } else { "status report of its kubelet" };
            out.push(match node.last_heard() {
                Some(at) => format!("no heartbeat since {} (last {source})", when(at, now)),
                None => "no heartbeat: the time of the last one is unknown".to_owned(),
            });
            let found = self.future.and_then(|future| future.undisturbed.found_unreachable.get(name));
            if let Some(at) = found.copied().filter(|_| node.readiness == Readiness::Ready) {
                out.push(format!("the node controller will mark it Unknown at about {}", when(at, now)));
            }
        }
        if let Some(lease) = node.lease.filter(|_| node.clock_is_behind(self.clock.leases)) {
            out.push(format!(
                "its Lease was last renewed at {} by the node's own clock, which must be behind: otherwise the node \
                 controller would have marked it Unknown",
                when(lease.renewed, now)
            ));
        }
        out.extend(self.taints(&node));
        out
    }

    fn taints(&self, node: &NodeHealth) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(taint) = node.taints().iter().find(|t| eviction::is_ours(t)) {
            let since = eviction::added(taint).map(|at| format!(" since {}", moment(at))).unwrap_or_default();
            out.push(format!("it has the taint {}:NoExecute{since}, which evicts its pods", taint.key));
        } else if node.is_unreachable(self.clock.leases) {
            out.extend(eviction::brake(self.objects, self.clock, node).map(|brake| {
                let why = match brake {
                    Brake::AllDown => "no node is ready, so Kubernetes assumes that the control plane is at fault",
                    Brake::ZoneDisturbed => "most nodes of its zone are not ready",
                    Brake::NoRate => "the eviction rate of the cluster is 0",
                };
                format!("no pods are evicted: {why}")
            }));
        }
        if let Some(taint) = node.taint(OUT_OF_SERVICE) {
            let by = node.annotation("stead.dev/recovery").map(|_| ", set by a Stead recovery").unwrap_or_default();
            let hint = if node.readiness == Readiness::Ready {
                "; the node is Ready, so volumes are detached while they are mounted: remove the taint"
            } else {
                ""
            };
            out.push(format!("it has the taint {OUT_OF_SERVICE}:{}{by}{hint}", taint.effect));
        }
        if node.taint(SHUTDOWN).is_some() {
            out.push(format!("the cloud provider reports that the machine is shut down (taint {SHUTDOWN})"));
        }
        out
    }
}

/// The message of a node's condition Ready, where that is not True.
fn ready_message<'a>(node: &NodeHealth<'a>) -> Option<&'a str> {
    let ready = node.condition("Ready").filter(|condition| condition.status != "True")?;
    ready.message.as_deref().filter(|message| !message.is_empty())
}
