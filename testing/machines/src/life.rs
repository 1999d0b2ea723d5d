//! The life of a pod on a node: it is set up, its containers run, it is reported and removed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use stead_testbed::World;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::environment::Whereabouts;
use crate::host::Host;
use crate::pod_state::{init, main, waiting};
use crate::run::{Ready, Run};
use crate::supervise::Again;
use crate::volumes::Ground;
use crate::witness::End;

/// How long to wait before something that failed is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(300);

/// What is left of a pod's grace when its object is gone already.
const GONE: Duration = Duration::from_secs(1);

/// From the first container to the last, over the starts of the node.
pub(crate) async fn live(host: Arc<Host>, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) {
    let Ok(mut power) = host.power(&node) else { return };
    let uid = pod.borrow().metadata.uid.clone().unwrap_or_default();
    loop {
        let Ok(boot) = power.wait_for(|power| power.on).await.map(|power| power.boot) else { return };
        // While the node was off, the pod may have gone.
        if pod.has_changed().is_err() {
            break;
        }
        // A node without a control group has no power to do anything.
        let Ok(run) = Run::new(host.clone(), world.clone(), node.clone(), pod.clone()) else { return };
        let run = Arc::new(run);
        host.begun(&run);
        let over = tokio::select! {
            () = run.live() => true,
            _ = power.wait_for(|power| power.boot != boot) => false,
        };
        host.ended(&run);
        run.group.clear().await;
        host.storage.unmount(&uid, if over { End::Unmounted } else { End::Died });
        if over {
            break;
        }
    }
    world.release_volumes(&node, &uid);
    let folder = host.places.pod(&uid);
    let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
}

impl Run {
    async fn live(self: &Arc<Run>) {
        tokio::select! {
            never = self.heed() => match never {},
            never = self.report_on() => match never {},
            () = self.play() => {}
        }
    }

    /// Notices that the pod should end, and when. A node that does not reach the API server does not hear of it.
    async fn heed(&self) -> std::convert::Infallible {
        let (mut pod, mut known) = (self.pod.clone(), None);
        loop {
            self.world.awake(&self.node).await;
            self.awake().await;
            let grace = {
                let meta = &pod.borrow_and_update().metadata;
                let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
                meta.deletion_timestamp.as_ref().map(|_| Duration::from_secs(u64::try_from(grace).unwrap_or_default()))
            };
            if grace != known {
                known = grace;
                self.end_within(grace.unwrap_or_default());
            }
            if pod.changed().await.is_err() {
                self.world.awake(&self.node).await;
                self.awake().await;
                self.end_within(GONE);
                return std::future::pending().await;
            }
        }
    }

    fn end_within(&self, grace: Duration) {
        let end = Instant::now() + grace;
        self.stop.send_modify(|stop| *stop = Some(stop.map_or(end, |earlier| earlier.min(end))));
    }

    /// Everything that happens to the pod until nothing is left of it.
    async fn play(self: &Arc<Run>) {
        let phase = self.pod().status.as_ref().and_then(|status| status.phase.clone());
        // A pod that had ended before the node was started has nothing to run, and its status is final.
        if !matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            if !self.is_lost() {
                let ready = tokio::select! {
                    biased;
                    () = self.stopping() => None,
                    ready = self.prepare() => Some(ready),
                };
                if let Some(ready) = ready {
                    self.containers(&ready).await;
                }
            }
            self.awake().await;
            self.change(|state| state.over = true);
            self.group.clear().await;
            self.report_finally().await;
        }
        // As kubelet does it: the object goes when nothing is mounted any more.
        self.host.storage.unmount(&self.uid, End::Unmounted);
        self.world.release_volumes(&self.node, &self.uid);
        self.stopping().await;
        self.delete().await;
    }

    /// Whether the pod ran on an earlier start of the node and may not be started again, or should end anyway: what
    /// ran has ended then.
    fn is_lost(&self) -> bool {
        let pod = self.pod();
        let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let mut state = self.state();
        let ran = state.containers.values().any(|container| container.last.is_some());
        if !(leaves || never && ran) {
            return false;
        }
        for container in state.containers.values_mut() {
            if let Some(last) = container.last.take() {
                container.state = last;
                container.restarts = container.restarts.saturating_sub(1);
            }
        }
        true
    }

    /// Waits for what the pod needs, and makes its place.
    async fn prepare(&self) -> Ready {
        self.world.volumes_are_there(&self.node, &self.pod()).await;
        loop {
            self.awake().await;
            match self.make_place().await {
                Ok(ready) => return ready,
                Err(e) => self.say_waiting(&format!("{e:#}")),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn say_waiting(&self, message: &str) {
        let pod = self.pod();
        for container in main(&pod) {
            self.note(&container.name, |state| state.state = waiting("ContainerCreating", Some(message)));
        }
    }

    async fn make_place(&self) -> Result<Ready> {
        let node_address = self.world.node_address(&self.node);
        let pod_address = if self.is_on_host() { node_address.clone() } else { self.world.new_pod_address() };
        let whereabouts = Whereabouts { pod_address: pod_address.clone(), node: self.node.clone(), node_address };
        let pod = self.pod();
        let ground = Ground {
            pod: &pod,
            world: &self.world,
            places: &self.host.places,
            whereabouts: &whereabouts,
            objects: &self.objects,
            storage: &self.host.storage,
            tenant: &self.tenant()?,
        };
        let volumes = ground.volumes().await?;
        let network = if self.is_on_host() {
            self.host.fabric.node(&self.node)?
        } else {
            let (host, node, address) = (self.host.clone(), self.node.clone(), pod_address.clone());
            let plugged = tokio::task::spawn_blocking(move || host.fabric.plug_pod(&node, &address)).await;
            plugged.context("a thread that plugs a pod in")??
        };
        self.change(|state| state.address = Some(pod_address));
        Ok(Ready { network, whereabouts, volumes })
    }

    /// The first containers one by one, then the others side by side.
    async fn containers(self: &Arc<Run>, ready: &Ready) {
        let pod = self.pod();
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
        for container in init(&pod) {
            let again = if policy == "Never" { Again::Never } else { Again::OnFailure };
            if self.supervise(container, ready, again).await != Some(0) {
                return;
            }
        }
        for container in main(&pod) {
            self.note(&container.name, |state| state.state = waiting("ContainerCreating", None));
        }
        let again = match policy {
            "Never" => Again::Never,
            "OnFailure" => Again::OnFailure,
            _ => Again::Always,
        };
        join_all(main(&pod).iter().map(|container| self.supervise(container, ready, again))).await;
    }

    /// Lets the object go, by its uid. Whoever holds it by a finalizer lets go later.
    async fn delete(&self) {
        loop {
            self.world.awake(&self.node).await;
            self.awake().await;
            let preconditions = Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            match self.api.delete(&self.name, &params).await {
                Ok(_) => return,
                // Gone, or another pod has the name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
