//! A pod on a node, from one start of the node to the next.

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

use crate::container::Running;
use crate::enter::Network;
use crate::environment::Whereabouts;
use crate::group::Group;
use crate::host::Host;
use crate::objects::Objects;
use crate::pod_state::{ContainerState, PodState};
use crate::storage::Tenant;

/// A pod on a node.
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
    /// The group of all its containers.
    pub(crate) group: Group,
    /// When the last container has to have ended, once it is known that they should.
    pub(crate) stop: watch::Sender<Option<Instant>>,
    /// Tells of every change of the state.
    pub(crate) changed: watch::Sender<()>,
    /// What was last written to the API server.
    pub(crate) written: tokio::sync::Mutex<Option<Value>>,
    /// Why the API server did not take the last status.
    pub(crate) refused: Mutex<Option<String>>,
    state: Mutex<PodState>,
    running: Mutex<BTreeMap<String, Running>>,
}

/// Where a pod stands: known once its volumes and its network are there.
pub(crate) struct Ready {
    pub(crate) network: Network,
    pub(crate) whereabouts: Whereabouts,
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

    /// Changes the state, and lets it be known.
    pub(crate) fn change(&self, change: impl FnOnce(&mut PodState)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    /// Changes what is known of a container, and lets it be known if that is something new.
    pub(crate) fn note(&self, container: &str, change: impl FnOnce(&mut ContainerState)) {
        let mut state = self.state();
        let Some(known) = state.containers.get_mut(container) else { return };
        let before = known.clone();
        change(known);
        let news = *known != before;
        drop(state);
        if news {
            self.changed.send_replace(());
        }
    }

    /// The pod as one who has disks.
    pub(crate) fn tenant(&self) -> anyhow::Result<Tenant> {
        Ok(Tenant {
            node: self.node.clone(),
            node_group: self.host.group(&self.node)?.clone(),
            pod: format!("{}/{}", self.namespace, self.name),
            uid: self.uid.clone(),
            group: self.group.clone(),
        })
    }

    /// Waits until the pod's node runs.
    pub(crate) async fn awake(&self) {
        self.host.awake(&self.node).await;
    }

    /// Whether the pod's node runs.
    pub(crate) fn is_awake(&self) -> bool {
        self.host.power(&self.node).is_ok_and(|power| power.borrow().on)
    }

    /// Whether the pod should end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Waits until the pod should end.
    pub(crate) async fn stopping(&self) {
        // The sender is in this very value.
        let _ = self.stop.subscribe().wait_for(Option::is_some).await;
    }

    /// A container that runs, by name.
    pub(crate) fn running(&self, container: &str) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(container).cloned()
    }

    /// The containers that run.
    pub(crate) fn running_containers(&self) -> Vec<String> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn set_running(&self, container: &str, running: Option<Running>) {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running {
            Some(running) => drop(all.insert(container.to_owned(), running)),
            None => drop(all.remove(container)),
        }
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.pod().spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
    }
}

/// As the API server writes points in time.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
