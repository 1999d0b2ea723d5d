//! All nodes of a cluster: their power state, their network, and their pods.

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
use crate::network::Fabric;
use crate::pod_lifecycle;
use crate::run::Run;
use crate::storage::Storage;
use crate::volumes::Directories;

/// The state that is shared by the pods of all nodes.
pub(crate) struct Host {
    pub(crate) directories: Directories,
    pub(crate) images: Images,
    pub(crate) fabric: Fabric,
    /// Restart delay after the second termination in a row; it doubles each time.
    pub(crate) back_off: Duration,
    pub(crate) back_off_limit: Duration,
    nodes: BTreeMap<String, Node>,
    pub(crate) storage: Storage,
    /// In the order in which they were started. Two nodes can have pods of the same name, if one of the nodes cannot
    /// see that its pod was deleted.
    runs: Mutex<Vec<Arc<Run>>>,
}

struct Node {
    power: watch::Sender<Power>,
    group: Group,
}

/// Whether a node is on, and how often it was booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Power {
    pub(crate) on: bool,
    pub(crate) boot: u32,
}

impl Host {
    pub(crate) fn new(
        directories: Directories,
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
        let (storage, runs) = (Storage::new(directories.clone()), Mutex::default());
        Ok(Host { directories, images, fabric, back_off, back_off_limit, nodes, storage, runs })
    }

    fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.get(name).with_context(|| format!("node {name} does not exist"))
    }

    /// The control group of all processes on a node.
    pub(crate) fn group(&self, node: &str) -> Result<&Group> {
        Ok(&self.node(node)?.group)
    }

    pub(crate) fn power(&self, node: &str) -> Result<watch::Receiver<Power>> {
        Ok(self.node(node)?.power.subscribe())
    }

    /// Changes the power state of a node.
    pub(crate) fn set_power(&self, node: &str, change: impl FnOnce(&mut Power)) -> Result<()> {
        self.node(node)?.power.send_modify(change);
        Ok(())
    }

    /// Waits until a node is on.
    pub(crate) async fn wait_until_running(&self, node: &str) {
        if let Some(node) = self.nodes.get(node) {
            // It cannot fail: the sender lives as long as this value.
            let _ = node.power.subscribe().wait_for(|power| power.on).await;
        }
    }

    /// Returns the pod of this name that was started last.
    pub(crate) fn run(&self, namespace: &str, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs();
        runs.iter().rev().find(|run| run.namespace == namespace && run.name == name).cloned()
    }

    /// Returns the pod of this name on a node that was started last.
    pub(crate) fn run_on(&self, node: &str, namespace: &str, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs();
        runs.iter().rev().find(|run| run.node == node && run.namespace == namespace && run.name == name).cloned()
    }

    /// Returns the pods on a node with a running container.
    pub(crate) fn running_on(&self, node: &str) -> Vec<Arc<Run>> {
        self.runs().iter().filter(|run| run.node == node && !run.running_containers().is_empty()).cloned().collect()
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_run(&self, run: &Arc<Run>) {
        self.runs().push(run.clone());
    }

    pub(crate) fn remove_run(&self, run: &Arc<Run>) {
        self.runs().retain(|other| !Arc::ptr_eq(other, run));
    }
}

/// Kubelets that run pods as processes.
pub(crate) struct Processes {
    pub(crate) host: Arc<Host>,
    /// The address of each node's kubelet.
    pub(crate) addresses: BTreeMap<String, SocketAddr>,
}

impl Kubelets for Processes {
    fn address(&self, node: &str) -> Option<SocketAddr> {
        self.addresses.get(node).copied()
    }

    fn attached(&self, volume: &str, node: &str) {
        self.host.storage.attach(volume, node);
    }

    fn detached(&self, volume: &str, node: &str) {
        self.host.storage.detach(volume, node);
    }

    fn run_pod(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()> {
        Box::pin(pod_lifecycle::run_pod(self.host.clone(), world, node, pod))
    }
}
