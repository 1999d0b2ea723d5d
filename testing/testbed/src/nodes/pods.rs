//! The life of each pod on a stand-in node. [`Kubelets`] are told what happens to a pod; [`Delays`] only report
//! containers as running after a while.

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

/// What the Job controller puts on its pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// How long to wait before something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(300);

/// Who leads the lives of the pods on the stand-in nodes.
pub trait Kubelets: Send + Sync + 'static {
    /// From the first container of a pod to the last. The channel tells of every change of the pod, and closes when
    /// the API server has it no more. The last step is [`World::release_volumes`].
    fn live(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()>;

    /// Where the API server finds a node's kubelet, for logs and, by WebSocket, commands: on loopback, or, if it is
    /// brought there by a proxy ([`Options::egress`](crate::Options::egress)), at the node's own address.
    fn address(&self, _node: &str) -> Option<SocketAddr> {
        None
    }

    /// A disk is there: the storage has attached a volume to a node.
    fn attached(&self, _volume: &str, _node: &str) {}

    /// A disk is there no more. When this returns, nobody on that node can write to it, whatever they do.
    fn detached(&self, _volume: &str, _node: &str) {}
}

/// Nothing is run: what containers do takes the times of the [`ClusterSpec`](crate::ClusterSpec).
pub(super) struct Delays;

impl Kubelets for Delays {
    fn live(&self, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (mut news, uid) = (pod.clone(), pod.borrow().uid().unwrap_or_default());
            tokio::select! {
                () = live(world.clone(), node.clone(), pod) => {}
                // The object is gone, by whoever's hand.
                () = async { while news.changed().await.is_ok() {} } => {}
            }
            // A node that is silent says so when it is back.
            world.release_volumes(&node, &uid);
        })
    }
}

/// Begins a life for each pod that comes to a stand-in node, tells it of changes, and lets it know when the pod is gone.
pub(super) async fn run(world: Arc<World>, kubelets: Arc<dyn Kubelets>) {
    let (known, seen) = (BTreeMap::new(), BTreeSet::new());
    let mut lives = Lives { world: world.clone(), kubelets, known, seen, tasks: JoinSet::new() };
    let api: Api<Pod> = Api::all(world.client.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => lives.notice(event),
                // The watch goes on by itself after a while.
                Some(Err(_)) => {}
                None => return,
            },
            Some(_) = lives.tasks.join_next() => {}
        }
    }
}

struct Lives {
    world: Arc<World>,
    kubelets: Arc<dyn Kubelets>,
    /// By the pod's uid, whom to tell of it.
    known: BTreeMap<String, watch::Sender<Arc<Pod>>>,
    /// Those that a listing has shown so far.
    seen: BTreeSet<String>,
    tasks: JoinSet<()>,
}

impl Lives {
    fn notice(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(pod) => {
                self.seen.extend(pod.uid());
                self.applied(pod);
            }
            Event::InitDone => {
                self.known.retain(|uid, _| self.seen.contains(uid));
            }
            Event::Apply(pod) => self.applied(pod),
            Event::Delete(pod) => drop(self.known.remove(&pod.uid().unwrap_or_default())),
        }
    }

    fn applied(&mut self, pod: Pod) {
        let (Some(uid), Some(node)) = (pod.uid(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone())) else {
            return;
        };
        if let Some(life) = self.known.get(&uid) {
            life.send_replace(Arc::new(pod));
        } else if self.world.names().any(|name| name == node) {
            let (sender, receiver) = watch::channel(Arc::new(pod));
            self.tasks.spawn(self.kubelets.live(self.world.clone(), node, receiver));
            self.known.insert(uid, sender);
        }
    }
}

/// From the first container to the last.
async fn live(world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) {
    let kubelet = Kubelet { api: Api::namespaced(world.client.clone(), &namespace(&pod)), world, node, pod };
    let mut doomed = kubelet.pod.clone();
    tokio::select! {
        biased;
        _ = doomed.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()) => {}
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

    /// Brings the pod on, a stage at a time, and keeps it there. It never returns.
    async fn run(&self) {
        let mut news = self.pod.clone();
        loop {
            self.world.awake(&self.node).await;
            news.mark_unchanged();
            match self.advance().await {
                // The next stage is that of the pod as it was written, so that has to be seen first.
                Ok(Some(written)) => drop(news.wait_for(|pod| version(pod) >= written).await),
                Ok(None) => drop(news.changed().await),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Brings the pod one stage on, if there is one, and returns the version that was written.
    async fn advance(&self) -> kube::Result<Option<u64>> {
        let pod = self.pod();
        let empty = PodStatus::default();
        let said = pod.status.as_ref().unwrap_or(&empty);
        match said.phase.as_deref().unwrap_or("Pending") {
            "Pending" if said.container_statuses.as_ref().is_none_or(Vec::is_empty) => self.say(Stage::Creating).await,
            "Pending" => {
                self.world.volumes_are_there(&self.node, &pod).await;
                self.wait(self.world.spec.start_seconds).await;
                self.say(Stage::Running).await
            }
            "Running" if !is_ready(said) => {
                self.wait(self.world.spec.ready_seconds).await;
                self.say(Stage::Ready).await
            }
            "Running" if pod.labels().contains_key(JOB_NAME) => {
                self.wait(self.world.spec.job_seconds).await;
                let code = i32::from(self.world.job_end().await == JobEnd::Fail);
                self.world.awake(&self.node).await;
                self.say(Stage::Ended(code)).await
            }
            _ => Ok(None),
        }
    }

    /// Lets time pass. A node that is silent by then goes on when it is back.
    async fn wait(&self, time: f64) {
        tokio::time::sleep(seconds(time)).await;
        self.world.awake(&self.node).await;
    }

    async fn say(&self, stage: Stage) -> kube::Result<Option<u64>> {
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
        // The uid makes sure that this is not another pod of the same name.
        let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
        let written = self.api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(Some(version(&written)))
    }

    /// Ends the containers, and lets the pod go. Whoever holds it by a finalizer lets go later.
    async fn stop(&self) {
        loop {
            self.world.awake(&self.node).await;
            let pod = self.pod();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if !matches!(phase, Some("Succeeded" | "Failed")) {
                self.wait(self.world.spec.stop_seconds).await;
            }
            // A kubelet lets the pod go when its volumes are free.
            self.world.release_volumes(&self.node, &pod.uid().unwrap_or_default());
            let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            match self.api.delete(&pod.name_any(), &params).await {
                Ok(_) => return,
                // Gone, or another pod has the name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// How new this is. Kubernetes promises that later versions are greater numbers.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Whether the API server has it that the pod is ready. It has not if the node was silent for long: then the controller
/// manager has said otherwise.
fn is_ready(status: &PodStatus) -> bool {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && !containers.is_empty() && containers.iter().all(|container| container.ready)
}
