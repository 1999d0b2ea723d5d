//! All nodes of a cluster: their power, their network, and what runs on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use stead_testbed::{Kubelets, World};
use tokio::sync::watch;

use crate::group::Group;
use crate::images::Images;
use crate::life;
use crate::network::Fabric;
use crate::run::Run;
use crate::storage::Storage;
use crate::volumes::Places;

/// What pods need to live, whichever node they are on.
pub(crate) struct Host {
    pub(crate) places: Places,
    pub(crate) images: Images,
    pub(crate) fabric: Fabric,
    /// From a container's second end in a row to its next start; twice as long each time.
    pub(crate) back_off: Duration,
    pub(crate) back_off_limit: Duration,
    nodes: BTreeMap<String, Node>,
    pub(crate) storage: Storage,
    /// In the order in which they were begun. Two nodes may have pods of one name, if one of them does not hear that
    /// its pod is no more.
    runs: Mutex<Vec<Arc<Run>>>,
}

struct Node {
    power: watch::Sender<Power>,
    group: Group,
}

/// Whether a node runs, and which start of it this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Power {
    pub(crate) on: bool,
    pub(crate) boot: u32,
}

impl Host {
    pub(crate) fn new(
        places: Places,
        images: Images,
        fabric: Fabric,
        group: &Group,
        names: &[String],
        back_off: [Duration; 2],
    ) -> Result<Host> {
        let mut nodes = BTreeMap::new();
        for name in names {
            let power = watch::Sender::new(Power { on: true, boot: 0 });
            nodes.insert(name.clone(), Node { power, group: group.child(name)? });
        }
        let [back_off, back_off_limit] = back_off;
        let (storage, runs) = (Storage::new(places.clone()), Mutex::default());
        Ok(Host { places, images, fabric, back_off, back_off_limit, nodes, storage, runs })
    }

    fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.get(name).with_context(|| format!("there is no node {name}"))
    }

    /// The control group of all that runs on a node.
    pub(crate) fn group(&self, node: &str) -> Result<&Group> {
        Ok(&self.node(node)?.group)
    }

    pub(crate) fn power(&self, node: &str) -> Result<watch::Receiver<Power>> {
        Ok(self.node(node)?.power.subscribe())
    }

    /// Switches a node on or off.
    pub(crate) fn set_power(&self, node: &str, change: impl FnOnce(&mut Power)) -> Result<()> {
        self.node(node)?.power.send_modify(change);
        Ok(())
    }

    /// Waits until a node runs.
    pub(crate) async fn awake(&self, node: &str) {
        if let Some(node) = self.nodes.get(node) {
            // The sender is there as long as this value.
            let _ = node.power.subscribe().wait_for(|power| power.on).await;
        }
    }

    /// The pod of a name that was last begun.
    pub(crate) fn run(&self, namespace: &str, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs();
        runs.iter().rev().find(|run| run.namespace == namespace && run.name == name).cloned()
    }

    /// The same, of a node's own.
    pub(crate) fn run_on(&self, node: &str, namespace: &str, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs();
        runs.iter().rev().find(|run| run.node == node && run.namespace == namespace && run.name == name).cloned()
    }

    /// The pods on a node of which a container runs.
    pub(crate) fn running_on(&self, node: &str) -> Vec<Arc<Run>> {
        self.runs().iter().filter(|run| run.node == node && !run.running_containers().is_empty()).cloned().collect()
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begun(&self, run: &Arc<Run>) {
        self.runs().push(run.clone());
    }

    pub(crate) fn ended(&self, run: &Arc<Run>) {
        self.runs().retain(|other| !Arc::ptr_eq(other, run));
    }
}

/// Leads the lives of pods as processes.
pub(crate) struct Processes {
    pub(crate) host: Arc<Host>,
    /// By node, where the API server asks for logs and runs commands.
    pub(crate) addresses: BTreeMap<String, SocketAddr>,
}

impl Kubelets for Processes {
    fn address(&self, node: &str) -> Option<SocketAddr> {
        self.addresses.get(node).copied()
    }

    fn attached(&self, volume: &str, node: &str) {
        self.host.storage.plug(volume, node);
    }

    fn detached(&self, volume: &str, node: &str) {
        self.host.storage.pull(volume, node);
    }

    fn live(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()> {
        Box::pin(life::live(self.host.clone(), world, node, pod))
    }
}
