//! How a node stands.

use super::Why;
use crate::outage::events;
use crate::outage::eviction::{self, Brake};
use crate::outage::node::{NodeStanding, OUT_OF_SERVICE, Readiness, SHUTDOWN, time};
use crate::outage::words::{moment, when};
use stead_model::ObjectKey;

impl Why<'_> {
    /// How a node stands: since when it is silent, by what, and what was made of it.
    pub(crate) fn node(&self, name: &str) -> Vec<String> {
        let now = self.clock.now;
        let Some(node) = NodeStanding::find(self.objects, name) else {
            let gone = events::node_gone(self.objects, name);
            let since = gone.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
            return vec![format!("node {name}: there is no Node object of that name{since}")];
        };
        let mut out = Vec::new();
        let ready = match node.readiness {
            Readiness::Ready => "Ready",
            Readiness::NotReady => "not Ready, as its kubelet says",
            Readiness::Unknown => "Unknown",
        };
        let since = node.since.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
        out.push(format!("node {name} is {ready}{since}"));
        if let Some(message) = self.ready_message(name) {
            out.push(format!("its condition says {message:?}"));
        }
        if node.is_silent(self.clock.leases) {
            let heard = node.last_heard().map_or("nobody knows when".into(), |at| when(at, now));
            let by = if node.lease.is_some() { "its Lease was renewed last" } else { "its kubelet spoke last" };
            out.push(format!("{by} at {heard}"));
            if node.readiness == Readiness::Ready {
                let at = eviction::unknown_from(self.clock, &node).unwrap_or(now);
                out.push(format!("the node controller will say so at about {}", when(at, now)));
            }
        }
        if let Some(lease) = node.lease.filter(|_| node.is_behind(self.clock.leases)) {
            out.push(format!(
                "its Lease was renewed last at {} by its own clock, which is taken to be behind: of a node that is \
                 silent for so long, the node controller would have said so",
                when(lease.renewed, now)
            ));
        }
        out.extend(self.taints(&node));
        out
    }

    fn ready_message(&self, name: &str) -> Option<String> {
        let node = self.objects.raw(&ObjectKey::new("Node", "", name))?;
        let ready = node["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
        ready["message"].as_str().filter(|m| !m.is_empty() && ready["status"] != "True").map(str::to_owned)
    }

    fn taints(&self, node: &NodeStanding) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(taint) = node.taints.iter().find(|t| eviction::is_ours(t)) {
            let since = time(&taint["timeAdded"]).map(|at| format!(" since {}", moment(at))).unwrap_or_default();
            let key = taint["key"].as_str().unwrap_or_default();
            out.push(format!("it has the taint {key}:NoExecute{since}, which evicts its pods"));
        } else if node.is_silent(self.clock.leases) {
            match eviction::brake(self.objects, self.clock, node) {
                Some(Brake::AllDown) => out.push(
                    "no node is ready: Kubernetes evicts nobody then, and takes the fault to be its own".to_owned(),
                ),
                Some(Brake::ZoneDisturbed) => {
                    out.push("most nodes of its zone are not ready: Kubernetes evicts nobody there".to_owned());
                }
                Some(Brake::NoRate) => {
                    out.push("the cluster's rate of eviction is 0: Kubernetes evicts nobody".to_owned())
                }
                None => {}
            }
        }
        if let Some(taint) = node.taint(OUT_OF_SERVICE) {
            let by = node.annotation("stead.dev/recovery").map(|_| ", by a recovery of Stead").unwrap_or_default();
            let hint = if node.readiness == Readiness::Ready {
                "; on a node that is Ready it lets volumes be detached while they are mounted: take it away"
            } else {
                ""
            };
            let effect = taint["effect"].as_str().unwrap_or_default();
            out.push(format!("it has the taint {OUT_OF_SERVICE}:{effect}{by}{hint}"));
        }
        if node.taint(SHUTDOWN).is_some() {
            out.push(format!("its cloud says that the machine is shut down (taint {SHUTDOWN})"));
        }
        out
    }
}
