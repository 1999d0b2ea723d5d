//! A pod on a node, for one boot of the node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::Value;
use stead_testbed::World;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::container::RunningContainer;
use crate::enter::Network;
use crate::environment::PodLocation;
use crate::group::Group;
use crate::host::Host;
use crate::objects::Objects;
use crate::pod_state::{ContainerState, PodState};
use crate::storage::DiskUser;

/// A pod on a node, for one boot of the node.
pub(crate) struct Run {
    pub(crate) host: Arc<Host>,
    pub(crate) world: Arc<World>,
    pub(crate) node: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) objects: Objects,
    pub(crate) api: Api<Pod>,
    /// The pod as it was last seen.
    pub(crate) pod: watch::Receiver<Arc<Pod>>,
    /// The control group of all its containers.
    pub(crate) group: Group,
    /// The deadline for the last container to terminate; none while the pod is not being stopped.
    pub(crate) stop: watch::Sender<Option<Instant>>,
    /// Signals every change of the state.
    pub(crate) changed: watch::Sender<()>,
    /// The status that was last written to the API server.
    pub(crate) written: tokio::sync::Mutex<Option<Value>>,
    /// Why the API server refused the last status.
    pub(crate) refused: Mutex<Option<String>>,
    state: Mutex<PodState>,
    running: Mutex<BTreeMap<String, RunningContainer>>,
}

/// The network and volumes of a pod, once they are set up.
pub(crate) struct PreparedPod {
    pub(crate) network: Network,
    pub(crate) location: PodLocation,
    pub(crate) volumes: BTreeMap<String, PathBuf>,
}

impl Run {
    pub(crate) fn new(
        host: Arc<Host>,
        world: Arc<World>,
        node: String,
        pod: watch::Receiver<Arc<Pod>>,
    ) -> anyhow::Result<Run> {
        let object = pod.borrow().clone();
        let (namespace, uid) = (object.namespace().unwrap_or_default(), object.uid().unwrap_or_default());
        Ok(Run {
            objects: Objects::new(world.client(), namespace.clone()),
            api: Api::namespaced(world.client(), &namespace),
            group: host.group(&node)?.child(&uid)?,
            stop: watch::Sender::new(None),
            changed: watch::Sender::new(()),
            written: tokio::sync::Mutex::default(),
            state: Mutex::new(PodState::of(&object, &now())),
            running: Mutex::default(),
            refused: Mutex::default(),
            name: object.name_any(),
            host,
            world,
            node,
            namespace,
            uid,
            pod,
        })
    }

    pub(crate) fn pod(&self) -> Arc<Pod> {
        self.pod.borrow().clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PodState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and signals the change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut PodState)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    /// Changes the state of a container, and signals the change if there is one.
    pub(crate) fn update_container(&self, container: &str, change: impl FnOnce(&mut ContainerState)) {
        let mut state = self.state();
        let Some(known) = state.containers.get_mut(container) else { return };
        let before = known.clone();
        change(known);
        let changed = *known != before;
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Identifies the pod to the storage.
    pub(crate) fn disk_user(&self) -> anyhow::Result<DiskUser> {
        Ok(DiskUser {
            node: self.node.clone(),
            node_group: self.host.group(&self.node)?.clone(),
            pod: format!("{}/{}", self.namespace, self.name),
            uid: self.uid.clone(),
            group: self.group.clone(),
        })
    }

    /// Waits until the pod's node is running.
    pub(crate) async fn wait_for_node(&self) {
        self.host.wait_until_running(&self.node).await;
    }

    /// Whether the pod's node is running.
    pub(crate) fn is_node_running(&self) -> bool {
        self.host.power(&self.node).is_ok_and(|power| power.borrow().on)
    }

    /// Whether the pod must stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Waits until the pod must stop.
    pub(crate) async fn wait_until_stopping(&self) {
        // It cannot fail: the sender is in this value.
        let _ = self.stop.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns a running container by name.
    pub(crate) fn running(&self, container: &str) -> Option<RunningContainer> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(container).cloned()
    }

    /// Returns the names of the running containers.
    pub(crate) fn running_containers(&self) -> Vec<String> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn set_running(&self, container: &str, running: Option<RunningContainer>) {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running {
            Some(running) => drop(all.insert(container.to_owned(), running)),
            None => drop(all.remove(container)),
        }
    }

    pub(crate) fn uses_host_network(&self) -> bool {
        self.pod().spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
    }
}

/// Returns the current time in the API server's format.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
