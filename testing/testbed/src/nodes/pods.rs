//! The lifecycle of each pod on a stand-in node. An implementation of [`Kubelets`] runs a pod; [`Delays`] only reports
//! its containers as running after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::JobEnd;
use super::machine::now;
use super::pod_status::{Stage, status};
use super::world::World;
use crate::spec::seconds;

/// The label of a Job's pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Delay before a failed operation is retried.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// Runs the pods on the stand-in nodes.
pub trait Kubelets: Send + Sync + 'static {
    /// Runs a pod until it is removed. The channel delivers every change of the pod, and is closed when the pod no
    /// longer exists. The last step is [`World::release_volumes`].
    fn run_pod(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()>;

    /// The address of a node's kubelet for logs and commands (by WebSocket): on loopback, or at the node's address if
    /// the API server uses a proxy ([`Options::egress`](crate::Options::egress)).
    fn address(&self, _node: &str) -> Option<SocketAddr> {
        None
    }

    /// Called when the storage has attached a volume to a node.
    fn attached(&self, _volume: &str, _node: &str) {}

    /// Called when the storage detaches a volume from a node. When it returns, no process on that node can write to it.
    fn detached(&self, _volume: &str, _node: &str) {}
}

/// Runs nothing: the status of containers changes after the delays of the [`ClusterSpec`](crate::ClusterSpec).
pub(super) struct Delays;

impl Kubelets for Delays {
    fn run_pod(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (mut changes, uid) = (pod.clone(), pod.borrow().uid().unwrap_or_default());
            tokio::select! {
                () = simulate(world.clone(), node.clone(), pod) => {}
                // The object no longer exists.
                () = async { while changes.changed().await.is_ok() {} } => {}
            }
            // An unreachable node reports it when it is back.
            world.release_volumes(&node, &uid);
        })
    }
}

/// Starts a task for each pod on a stand-in node, and forwards changes and the deletion of the pod to it.
pub(super) async fn run(world: Arc<World>, kubelets: Arc<dyn Kubelets>) {
    let (known, seen) = (BTreeMap::new(), BTreeSet::new());
    let mut tasks = PodTasks { world: world.clone(), kubelets, known, seen, tasks: JoinSet::new() };
    let api: Api<Pod> = Api::all(world.client.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => tasks.handle(event),
                // The watch retries by itself.
                Some(Err(_)) => {}
                None => return,
            },
            Some(_) = tasks.tasks.join_next() => {}
        }
    }
}

struct PodTasks {
    world: Arc<World>,
    kubelets: Arc<dyn Kubelets>,
    /// By the pod's uid, the channel of its task.
    known: BTreeMap<String, watch::Sender<Arc<Pod>>>,
    /// The pods in the current list so far.
    seen: BTreeSet<String>,
    tasks: JoinSet<()>,
}

impl PodTasks {
    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(pod) => {
                self.seen.extend(pod.uid());
                self.apply(pod);
            }
            Event::InitDone => {
                self.known.retain(|uid, _| self.seen.contains(uid));
            }
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => drop(self.known.remove(&pod.uid().unwrap_or_default())),
        }
    }

    fn apply(&mut self, pod: Pod) {
        let (Some(uid), Some(node)) = (pod.uid(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone())) else {
            return;
        };
        if let Some(sender) = self.known.get(&uid) {
            sender.send_replace(Arc::new(pod));
        } else if self.world.names().any(|name| name == node) {
            let (sender, receiver) = watch::channel(Arc::new(pod));
            self.tasks.spawn(self.kubelets.run_pod(self.world.clone(), node, receiver));
            self.known.insert(uid, sender);
        }
    }
}

/// Simulates a pod until it is removed.
async fn simulate(world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) {
    let kubelet = Kubelet { api: Api::namespaced(world.client.clone(), &namespace(&pod)), world, node, pod };
    let mut deletion = kubelet.pod.clone();
    tokio::select! {
        biased;
        _ = deletion.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()) => {}
        () = kubelet.run() => {}
    }
    kubelet.stop().await;
}

fn namespace(pod: &watch::Receiver<Arc<Pod>>) -> String {
    pod.borrow().namespace().unwrap_or_default()
}

struct Kubelet {
    world: Arc<World>,
    api: Api<Pod>,
    node: String,
    pod: watch::Receiver<Arc<Pod>>,
}

impl Kubelet {
    fn pod(&self) -> Arc<Pod> {
        self.pod.borrow().clone()
    }

    /// Advances the pod one stage at a time. It never returns.
    async fn run(&self) {
        let mut changes = self.pod.clone();
        loop {
            self.world.wait_until_reachable(&self.node).await;
            changes.mark_unchanged();
            match self.advance().await {
                // The next stage depends on the written status, so wait until the watch delivers it.
                Ok(Some(written)) => drop(changes.wait_for(|pod| version(pod) >= written).await),
                Ok(None) => drop(changes.changed().await),
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Advances the pod by one stage, and returns the resource version that was written; none if there is no next
    /// stage.
    async fn advance(&self) -> kube::Result<Option<u64>> {
        let pod = self.pod();
        let empty = PodStatus::default();
        let current = pod.status.as_ref().unwrap_or(&empty);
        match current.phase.as_deref().unwrap_or("Pending") {
            "Pending" if current.container_statuses.as_ref().is_none_or(Vec::is_empty) => {
                self.report(Stage::Creating).await
            }
            "Pending" => {
                self.world.wait_for_volumes(&self.node, &pod).await;
                self.wait(self.world.spec.start_seconds).await;
                self.report(Stage::Running).await
            }
            "Running" if !is_ready(current) => {
                self.wait(self.world.spec.ready_seconds).await;
                self.report(Stage::Ready).await
            }
            "Running" if pod.labels().contains_key(JOB_NAME) => {
                self.wait(self.world.spec.job_seconds).await;
                let code = i32::from(self.world.job_end().await == JobEnd::Fail);
                self.world.wait_until_reachable(&self.node).await;
                self.report(Stage::Terminated(code)).await
            }
            _ => Ok(None),
        }
    }

    /// Waits for a delay, and then until the node is reachable.
    async fn wait(&self, time: f64) {
        tokio::time::sleep(seconds(time)).await;
        self.world.wait_until_reachable(&self.node).await;
    }

    async fn report(&self, stage: Stage) -> kube::Result<Option<u64>> {
        let pod = self.pod();
        let host = self.world.node_address(&self.node);
        let had = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let address = match (stage, had) {
            (Stage::Creating, _) => None,
            (_, Some(address)) => Some(address),
            _ if on_host => Some(host.clone()),
            _ => Some(self.world.new_pod_address()),
        };
        let status = status(&pod, stage, &host, address.as_deref(), &now());
        // The uid prevents a write to another pod of the same name.
        let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
        let written = self.api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(Some(version(&written)))
    }

    /// Terminates the containers and deletes the pod's object. Finalizers may keep it for longer.
    async fn stop(&self) {
        loop {
            self.world.wait_until_reachable(&self.node).await;
            let pod = self.pod();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if !matches!(phase, Some("Succeeded" | "Failed")) {
                self.wait(self.world.spec.stop_seconds).await;
            }
            // A kubelet deletes the object after it has released the volumes.
            self.world.release_volumes(&self.node, &pod.uid().unwrap_or_default());
            let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            match self.api.delete(&pod.name_any(), &params).await {
                Ok(_) => return,
                // Already deleted, or another pod has the name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }
}

/// Returns the resource version. Kubernetes guarantees that later versions are greater numbers.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Whether the pod is Ready according to the API server. The controller manager sets the condition to False on an
/// unreachable node.
fn is_ready(status: &PodStatus) -> bool {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && !containers.is_empty() && containers.iter().all(|container| container.ready)
}
