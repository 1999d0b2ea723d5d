//! The lifecycle of a pod on a node: it is set up, its containers run, its status is reported, and it is removed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use stead_testbed::World;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::environment::PodLocation;
use crate::host::Host;
use crate::pod_state::{init_containers, main_containers, waiting};
use crate::run::{PreparedPod, Run};
use crate::supervise::RestartPolicy;
use crate::volumes::VolumeBuilder;
use crate::witness::End;

/// Delay before a failed operation is retried.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(300);

/// The grace period of a pod whose object no longer exists.
const GRACE_WITHOUT_OBJECT: Duration = Duration::from_secs(1);

/// Runs a pod until it is removed, across reboots of its node.
pub(crate) async fn run_pod(host: Arc<Host>, world: Arc<World>, node: String, pod: watch::Receiver<Arc<Pod>>) {
    let Ok(mut power) = host.power(&node) else { return };
    let uid = pod.borrow().metadata.uid.clone().unwrap_or_default();
    loop {
        let Ok(boot) = power.wait_for(|power| power.on).await.map(|power| power.boot) else { return };
        // The pod may have been deleted while the node was off.
        if pod.has_changed().is_err() {
            break;
        }
        // Fails only if the pod's control group cannot be created.
        let Ok(run) = Run::new(host.clone(), world.clone(), node.clone(), pod.clone()) else { return };
        let run = Arc::new(run);
        host.add_run(&run);
        let finished = tokio::select! {
            () = run.run() => true,
            _ = power.wait_for(|power| power.boot != boot) => false,
        };
        host.remove_run(&run);
        run.group.remove_async().await;
        host.storage.unmount(&uid, if finished { End::Unmounted } else { End::Died });
        if finished {
            break;
        }
    }
    world.release_volumes(&node, &uid);
    let folder = host.directories.pod(&uid);
    let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
}

impl Run {
    async fn run(self: &Arc<Run>) {
        tokio::select! {
            never = self.watch_deletion() => match never {},
            never = self.keep_status_updated() => match never {},
            () = self.run_until_deleted() => {}
        }
    }

    /// Watches for the pod's deletion and sets the deadline. A node that cannot reach the API server does not see it.
    async fn watch_deletion(&self) -> std::convert::Infallible {
        let (mut pod, mut known) = (self.pod.clone(), None);
        loop {
            self.world.wait_until_reachable(&self.node).await;
            self.wait_for_node().await;
            let grace = {
                let meta = &pod.borrow_and_update().metadata;
                let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
                meta.deletion_timestamp.as_ref().map(|_| Duration::from_secs(u64::try_from(grace).unwrap_or_default()))
            };
            if grace != known {
                known = grace;
                self.stop_within(grace.unwrap_or_default());
            }
            if pod.changed().await.is_err() {
                self.world.wait_until_reachable(&self.node).await;
                self.wait_for_node().await;
                self.stop_within(GRACE_WITHOUT_OBJECT);
                return std::future::pending().await;
            }
        }
    }

    fn stop_within(&self, grace: Duration) {
        let end = Instant::now() + grace;
        self.stop.send_modify(|stop| *stop = Some(stop.map_or(end, |earlier| earlier.min(end))));
    }

    /// Runs the pod until its object is deleted.
    async fn run_until_deleted(self: &Arc<Run>) {
        let phase = self.pod().status.as_ref().and_then(|status| status.phase.clone());
        // A pod that had finished before the node booted runs nothing, and its status is final.
        if !matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            if !self.must_not_start() {
                let ready = tokio::select! {
                    biased;
                    () = self.wait_until_stopping() => None,
                    ready = self.prepare() => Some(ready),
                };
                if let Some(ready) = ready {
                    self.run_containers(&ready).await;
                }
            }
            self.wait_for_node().await;
            self.change(|state| state.finished = true);
            self.group.remove_async().await;
            self.report_final_status().await;
        }
        // Like the kubelet: the object is deleted when nothing is mounted any more.
        self.host.storage.unmount(&self.uid, End::Unmounted);
        self.world.release_volumes(&self.node, &self.uid);
        self.wait_until_stopping().await;
        self.delete().await;
    }

    /// Whether the pod must not be started: it is being deleted, or it ran in an earlier boot and its restart policy is
    /// Never. Its containers are then marked as terminated.
    fn must_not_start(&self) -> bool {
        let pod = self.pod();
        let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let mut state = self.state();
        let ran = state.containers.values().any(|container| container.last.is_some());
        if !(deleting || never && ran) {
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

    /// Waits for the pod's volumes, and sets up its network and mounts.
    async fn prepare(&self) -> PreparedPod {
        self.world.wait_for_volumes(&self.node, &self.pod()).await;
        loop {
            self.wait_for_node().await;
            match self.set_up().await {
                Ok(ready) => return ready,
                Err(e) => self.report_waiting(&format!("{e:#}")),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    fn report_waiting(&self, message: &str) {
        let pod = self.pod();
        for container in main_containers(&pod) {
            self.update_container(&container.name, |state| state.state = waiting("ContainerCreating", Some(message)));
        }
    }

    async fn set_up(&self) -> Result<PreparedPod> {
        let node_address = self.world.node_address(&self.node);
        let pod_address = if self.uses_host_network() { node_address.clone() } else { self.world.new_pod_address() };
        let location = PodLocation { pod_address: pod_address.clone(), node: self.node.clone(), node_address };
        let pod = self.pod();
        let builder = VolumeBuilder {
            pod: &pod,
            world: &self.world,
            directories: &self.host.directories,
            location: &location,
            objects: &self.objects,
            storage: &self.host.storage,
            user: &self.disk_user()?,
        };
        let volumes = builder.volumes().await?;
        let network = if self.uses_host_network() {
            self.host.fabric.node(&self.node)?
        } else {
            let (host, node, address) = (self.host.clone(), self.node.clone(), pod_address.clone());
            let connected = tokio::task::spawn_blocking(move || host.fabric.connect_pod(&node, &address)).await;
            connected.context("the thread that connects a pod")??
        };
        self.change(|state| state.address = Some(pod_address));
        Ok(PreparedPod { network, location, volumes })
    }

    /// Runs the init containers one after the other, then the regular containers in parallel.
    async fn run_containers(self: &Arc<Run>, ready: &PreparedPod) {
        let pod = self.pod();
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
        for container in init_containers(&pod) {
            let restart = if policy == "Never" { RestartPolicy::Never } else { RestartPolicy::OnFailure };
            if self.supervise(container, ready, restart).await != Some(0) {
                return;
            }
        }
        for container in main_containers(&pod) {
            self.update_container(&container.name, |state| state.state = waiting("ContainerCreating", None));
        }
        let restart = match policy {
            "Never" => RestartPolicy::Never,
            "OnFailure" => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        join_all(main_containers(&pod).iter().map(|container| self.supervise(container, ready, restart))).await;
    }

    /// Deletes the object with this uid. Finalizers may keep it for longer.
    async fn delete(&self) {
        loop {
            self.world.wait_until_reachable(&self.node).await;
            self.wait_for_node().await;
            let preconditions = Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            match self.api.delete(&self.name, &params).await {
                Ok(_) => return,
                // Already deleted, or another pod has the name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }
}
