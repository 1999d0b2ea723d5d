//! All nodes of a cluster: their power, their network, what runs on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
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
    /// By namespace and name.
    runs: Mutex<BTreeMap<(String, String), Arc<Run>>>,
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
        Ok(Host { places, images, fabric, back_off, back_off_limit, nodes, runs: Mutex::default() })
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
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn begun(&self, run: &Arc<Run>) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert((run.namespace.clone(), run.name.clone()), run.clone());
    }

    pub(crate) fn ended(&self, run: &Arc<Run>) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.namespace.clone(), run.name.clone());
        if runs.get(&key).is_some_and(|other| Arc::ptr_eq(other, run)) {
            runs.remove(&key);
        }
    }
}

/// Leads the lives of pods as processes.
pub(crate) struct Processes {
    pub(crate) host: Arc<Host>,
    /// Where the API server asks for logs and runs commands.
    pub(crate) port: u16,
}

impl Kubelets for Processes {
    fn port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn live(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()> {
        Box::pin(life::live(self.host.clone(), world, node, pod))
    }
}
