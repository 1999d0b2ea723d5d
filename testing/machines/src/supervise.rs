//! Supervises one container: starts, probes and stops it, and restarts it with a growing delay.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::container::{ContainerPlan, Mount, RunningContainer};
use crate::environment::{command_line, environment, expand};
use crate::pod_lifecycle::RETRY_DELAY;
use crate::pod_state::{running, terminated, waiting};
use crate::probes::Prober;
use crate::resolver;
use crate::run::{PreparedPod, Run, now};

/// When a container that has terminated is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// Minimum time between SIGTERM and SIGKILL if the preStop hook used up the grace period, as in the kubelet.
const MIN_TERMINATION_TIME: Duration = Duration::from_secs(2);

impl Run {
    /// Runs a container until it must not run again, and returns its last exit code; none if it never ran.
    pub(crate) async fn supervise(
        &self,
        container: &Container,
        ready: &PreparedPod,
        restart: RestartPolicy,
    ) -> Option<i32> {
        let (mut last, mut delay) = (None, None);
        loop {
            self.wait_for_node().await;
            if self.is_stopping() {
                return last;
            }
            let started = match self.start(container, ready).await {
                Ok(started) => started,
                Err(e) => {
                    let message = format!("{e:#}");
                    self.update_container(&container.name, |s| {
                        s.state = waiting("CreateContainerError", Some(&message));
                    });
                    tokio::select! {
                        () = tokio::time::sleep(RETRY_DELAY * 3) => continue,
                        () = self.wait_until_stopping() => return last,
                    }
                }
            };
            let started_at = Instant::now();
            let code = self.wait_for_exit(container, ready, started).await;
            last = Some(code);
            if self.is_stopping()
                || restart == RestartPolicy::Never
                || (restart == RestartPolicy::OnFailure && code == 0)
            {
                return last;
            }
            if started_at.elapsed() > self.host.back_off_limit {
                delay = None;
            }
            if let Some(delay) = delay {
                self.back_off(container, delay).await;
            }
            delay = Some(delay.map_or(self.host.back_off, |d: Duration| (d * 2).min(self.host.back_off_limit)));
            if self.is_stopping() {
                return last;
            }
            self.update_container(&container.name, |state| {
                state.last = Some(state.state.clone()).filter(|s| s.get("terminated").is_some()).or(state.last.take());
                state.restarts += 1;
            });
        }
    }

    async fn back_off(&self, container: &Container, delay: Duration) {
        let message = format!(
            "back-off {}s restarting failed container={} pod={}_{}({})",
            delay.as_secs_f64(),
            container.name,
            self.name,
            self.namespace,
            self.uid
        );
        self.update_container(&container.name, |state| {
            state.last = Some(state.state.clone());
            state.state = waiting("CrashLoopBackOff", Some(&message));
        });
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.wait_until_stopping() => {}
        }
    }

    async fn start(&self, container: &Container, ready: &PreparedPod) -> Result<(Child, RunningContainer)> {
        let plan = self.plan(container, ready).await?;
        let (group, env, runtime) = (plan.group.clone(), plan.env.clone(), Handle::current());
        let launched = tokio::task::spawn_blocking(move || plan.launch(&runtime)).await;
        let child = launched.context("the thread that starts a container")??;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("the container terminated immediately")?;
        let container_handle = RunningContainer { pid, group, env };
        self.set_running(&container.name, Some(container_handle.clone()));
        self.update_container(&container.name, |state| state.state = running(&now()));
        Ok((child, container_handle))
    }

    async fn plan(&self, container: &Container, ready: &PreparedPod) -> Result<ContainerPlan> {
        let pod = self.pod();
        let image = self.host.images.get(container.image.as_deref().unwrap_or_default());
        let env = environment(&pod, container, &image, &ready.location, &self.objects).await?;
        let restarts = self.state().containers.get(&container.name).map(|s| s.restarts).unwrap_or_default();
        let name = format!("{}-{restarts}", container.name);
        let folder = self.host.directories.pod(&self.uid).join("containers");
        let mut mounts: Vec<Mount> = Vec::new();
        for (index, target) in image.empty.iter().enumerate() {
            let source = folder.join(&name).join(format!("empty/{index}"));
            std::fs::create_dir_all(&source).with_context(|| format!("creating {}", source.display()))?;
            mounts.push(Mount { source, target: target.clone(), read_only: false });
        }
        for (target, source) in &image.files {
            mounts.push(Mount { source: source.clone(), target: target.clone(), read_only: true });
        }
        for wanted in container.volume_mounts.iter().flatten() {
            let volume =
                ready.volumes.get(&wanted.name).with_context(|| format!("volume {} does not exist", wanted.name))?;
            let below = wanted.sub_path.clone().or_else(|| Some(expand(wanted.sub_path_expr.as_ref()?, &env)));
            let source = below.filter(|b| !b.is_empty()).map_or_else(|| volume.clone(), |below| volume.join(below));
            if !source.exists() {
                std::fs::create_dir_all(&source).with_context(|| format!("creating {}", source.display()))?;
            }
            let read_only = wanted.read_only.unwrap_or(false);
            mounts.push(Mount { source, target: wanted.mount_path.clone(), read_only });
        }
        if let Some(before) = restarts.checked_sub(1) {
            let before = format!("{}-{before}", container.name);
            self.group.child(&before)?.remove_async().await;
            let before = folder.join(before);
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(before)).await;
        }
        let command = command_line(container, &image, &env);
        Ok(ContainerPlan {
            folder: folder.join(&name),
            network: ready.network.clone(),
            group: self.group.child(&name)?,
            hostname: resolver::hostname(&pod, &self.node),
            etc: resolver::files(&pod, &ready.location),
            mounts,
            command: if command.is_empty() { vec!["sleep".to_owned(), "infinity".to_owned()] } else { command },
            working_dir: container.working_dir.clone().filter(|d| !d.is_empty()).unwrap_or_else(|| "/".to_owned()),
            log: self.host.directories.log(&self.namespace, &self.name, &container.name),
            env,
        })
    }

    /// Probes a started container until it terminates, and returns its exit code.
    async fn wait_for_exit(
        &self,
        container: &Container,
        ready: &PreparedPod,
        (mut child, running): (Child, RunningContainer),
    ) -> i32 {
        let started_at = now();
        let unhealthy = Notify::new();
        let node = self.host.fabric.node(&self.node);
        let prober =
            node.map(|node| Prober { container, running: &running, node, address: ready.location.pod_address.clone() });
        let ended = match &prober {
            Ok(prober) => tokio::select! {
                ended = child.wait() => ended,
                never = prober.run_all(self, &unhealthy) => match never {},
                never = self.terminate_when_needed(prober, &unhealthy) => match never {},
            },
            // Every node has a network; without one nothing could be probed.
            Err(_) => child.wait().await,
        };
        self.wait_for_node().await;
        self.set_running(&container.name, None);
        let code = ended.map_or(255, exit_code);
        self.update_container(&container.name, |state| {
            state.state = terminated(code, None, &started_at, &now());
            (state.ready, state.started) = (false, false);
        });
        code
    }

    /// Terminates the container when the pod must stop or the container is unhealthy: preStop hook, SIGTERM, grace
    /// period, SIGKILL.
    async fn terminate_when_needed(&self, prober: &Prober<'_>, unhealthy: &Notify) -> Infallible {
        let pod = self.pod();
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let grace = Duration::from_secs(grace.and_then(|s| u64::try_from(s).ok()).unwrap_or(30));
        let own = tokio::select! {
            () = self.wait_until_stopping() => None,
            () = unhealthy.notified() => Some(Instant::now() + grace),
        };
        self.wait_for_node().await;
        if let Some(hook) = prober.container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) {
            tokio::select! {
                _ = prober.run_hook(hook) => {}
                () = self.wait_for_deadline(own) => {}
            }
        }
        let earliest = Instant::now() + MIN_TERMINATION_TIME.min(grace);
        self.signal(prober.running.pid, Signal::SIGTERM).await;
        self.wait_for_deadline(own).await;
        if prober.container.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some()) {
            tokio::time::sleep_until(earliest).await;
        }
        self.signal(prober.running.pid, Signal::SIGKILL).await;
        std::future::pending().await
    }

    /// Waits for the pod's deadline, which can be moved forward meanwhile, or the container's deadline.
    async fn wait_for_deadline(&self, own: Option<Instant>) {
        let mut stop = self.stop.subscribe();
        loop {
            let pods = *stop.borrow_and_update();
            let end = own.into_iter().chain(pods).min();
            let passed = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                _ = stop.changed() => {}
            }
        }
    }

    async fn signal(&self, pid: i32, signal: Signal) {
        self.wait_for_node().await;
        // An error means that it has terminated. Its pid is not reused before it was waited for.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Returns the exit code as container runtimes do: 128 plus the signal number.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
