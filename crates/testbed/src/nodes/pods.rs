//! The life of each pod on a stand-in node, as its kubelet leads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::JobEnd;
use super::machine::now;
use super::pod_status::{Stage, status};
use super::world::World;
use crate::spec::seconds;

/// What the Job controller puts on its pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// How long to wait before something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(300);

/// Begins a life for each pod that comes to a stand-in node, tells it of changes, and ends it when the pod is gone.
pub(super) async fn run(world: Arc<World>) {
    let mut lives =
        Lives { world: world.clone(), known: BTreeMap::new(), seen: BTreeSet::new(), tasks: JoinSet::new() };
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

struct Life {
    node: String,
    pod: watch::Sender<Arc<Pod>>,
    task: AbortHandle,
}

struct Lives {
    world: Arc<World>,
    /// By the pod's uid.
    known: BTreeMap<String, Life>,
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
                let gone: Vec<String> = self.known.keys().filter(|uid| !self.seen.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| self.gone(uid));
            }
            Event::Apply(pod) => self.applied(pod),
            Event::Delete(pod) => self.gone(&pod.uid().unwrap_or_default()),
        }
    }

    fn applied(&mut self, pod: Pod) {
        let (Some(uid), Some(node)) = (pod.uid(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone())) else {
            return;
        };
        if let Some(life) = self.known.get(&uid) {
            life.pod.send_replace(Arc::new(pod));
        } else if self.world.names().any(|name| name == node) {
            let (sender, receiver) = watch::channel(Arc::new(pod));
            let task = self.tasks.spawn(live(self.world.clone(), node.clone(), receiver));
            self.known.insert(uid, Life { node, pod: sender, task });
        }
    }

    fn gone(&mut self, uid: &str) {
        if let Some(life) = self.known.remove(uid) {
            life.task.abort();
            // A node that is silent says so when it is back.
            self.world.release_volumes(&life.node, uid);
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
                self.volumes_are_there(&pod).await;
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

    /// Waits until the pod's claims are bound, and what has to be attached is attached to this node.
    async fn volumes_are_there(&self, pod: &Pod) {
        let mut changed = self.world.changed();
        loop {
            changed.mark_unchanged();
            if let Some(volumes) = self.attachable(pod) {
                self.world.take_volumes(&self.node, &pod.uid().unwrap_or_default(), &volumes);
                changed.mark_unchanged();
                let node = self.world.node(&self.node);
                let attached = node.as_ref().and_then(|node| node.status.as_ref()?.volumes_attached.as_ref());
                let is_attached = |volume: &String| attached.is_some_and(|all| all.iter().any(|a| a.name == *volume));
                if volumes.iter().all(is_attached) {
                    return;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The pod's volumes that have to be attached, by the names that kubelet has for them; none while a claim is
    /// unbound.
    fn attachable(&self, pod: &Pod) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let namespace = pod.namespace().unwrap_or_default();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => source.claim_name.clone(),
                (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name),
                (None, None) => continue,
            };
            let claim = self.world.claims.get(&ObjectRef::new(&claim).within(&namespace))?;
            if claim.status.as_ref()?.phase.as_deref() != Some("Bound") {
                return None;
            }
            let volume = self.world.volumes.get(&ObjectRef::new(claim.spec.as_ref()?.volume_name.as_ref()?))?;
            let Some(csi) = &volume.spec.as_ref()?.csi else { continue };
            if self.world.spec.driver(&csi.driver).is_some_and(|driver| driver.attach) {
                names.push(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle));
            }
        }
        Some(names)
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
            let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            match self.api.delete(&pod.name_any(), &params).await {
                Ok(_) => break,
                // Gone, or another pod has the name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => break,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
        self.world.release_volumes(&self.node, &self.pod().uid().unwrap_or_default());
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
