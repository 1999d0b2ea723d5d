//! One container of a pod: started, probed, stopped, and restarted with a growing delay.

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

use crate::container::{Mount, Plan, Running};
use crate::environment::{environment, expand, words};
use crate::life::AGAIN;
use crate::pod_state::{running, terminated, waiting};
use crate::probes::Prober;
use crate::resolver;
use crate::run::{Ready, Run, now};

/// When a container that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Always,
    OnFailure,
    Never,
}

/// The least time that a container has from SIGTERM to SIGKILL if its hook took all the rest, as kubelet gives it.
const LEAST: Duration = Duration::from_secs(2);

impl Run {
    /// Runs a container until it need not run any more, and returns its last exit code, if it ever ran.
    pub(crate) async fn supervise(&self, container: &Container, ready: &Ready, again: Again) -> Option<i32> {
        let (mut last, mut delay) = (None, None);
        loop {
            self.awake().await;
            if self.is_stopping() {
                return last;
            }
            let started = match self.start(container, ready).await {
                Ok(started) => started,
                Err(e) => {
                    let message = format!("{e:#}");
                    self.note(&container.name, |s| s.state = waiting("CreateContainerError", Some(&message)));
                    tokio::select! {
                        () = tokio::time::sleep(AGAIN * 3) => continue,
                        () = self.stopping() => return last,
                    }
                }
            };
            let begun = Instant::now();
            let code = self.attend(container, ready, started).await;
            last = Some(code);
            if self.is_stopping() || again == Again::Never || (again == Again::OnFailure && code == 0) {
                return last;
            }
            if begun.elapsed() > self.host.back_off_limit {
                delay = None;
            }
            if let Some(delay) = delay {
                self.back_off(container, delay).await;
            }
            delay = Some(delay.map_or(self.host.back_off, |d: Duration| (d * 2).min(self.host.back_off_limit)));
            if self.is_stopping() {
                return last;
            }
            self.note(&container.name, |state| {
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
        self.note(&container.name, |state| {
            state.last = Some(state.state.clone());
            state.state = waiting("CrashLoopBackOff", Some(&message));
        });
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.stopping() => {}
        }
    }

    async fn start(&self, container: &Container, ready: &Ready) -> Result<(Child, Running)> {
        let plan = self.plan(container, ready).await?;
        let (group, env, runtime) = (plan.group.clone(), plan.env.clone(), Handle::current());
        let launched = tokio::task::spawn_blocking(move || plan.launch(&runtime)).await;
        let child = launched.context("a thread that starts a container")??;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("the container ended at once")?;
        let running_now = Running { pid, group, env };
        self.set_running(&container.name, Some(running_now.clone()));
        self.note(&container.name, |state| state.state = running(&now()));
        Ok((child, running_now))
    }

    async fn plan(&self, container: &Container, ready: &Ready) -> Result<Plan> {
        let pod = self.pod();
        let image = self.host.images.get(container.image.as_deref().unwrap_or_default());
        let env = environment(&pod, container, &image, &ready.whereabouts, &self.objects).await?;
        let round = self.state().containers.get(&container.name).map(|s| s.restarts).unwrap_or_default();
        let name = format!("{}-{round}", container.name);
        let folder = self.host.places.pod(&self.uid).join("containers");
        let mut mounts: Vec<Mount> = Vec::new();
        for (index, target) in image.empty.iter().enumerate() {
            let source = folder.join(&name).join(format!("empty/{index}"));
            std::fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
            mounts.push(Mount { source, target: target.clone(), read_only: false });
        }
        for (target, source) in &image.files {
            mounts.push(Mount { source: source.clone(), target: target.clone(), read_only: true });
        }
        for wanted in container.volume_mounts.iter().flatten() {
            let volume =
                ready.volumes.get(&wanted.name).with_context(|| format!("there is no volume {}", wanted.name))?;
            let below = wanted.sub_path.clone().or_else(|| Some(expand(wanted.sub_path_expr.as_ref()?, &env)));
            let source = below.filter(|b| !b.is_empty()).map_or_else(|| volume.clone(), |below| volume.join(below));
            if !source.exists() {
                std::fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
            }
            let read_only = wanted.read_only.unwrap_or(false);
            mounts.push(Mount { source, target: wanted.mount_path.clone(), read_only });
        }
        if let Some(before) = round.checked_sub(1) {
            let before = format!("{}-{before}", container.name);
            self.group.child(&before)?.clear().await;
            let before = folder.join(before);
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(before)).await;
        }
        let words = words(container, &image, &env);
        Ok(Plan {
            folder: folder.join(&name),
            network: ready.network.clone(),
            group: self.group.child(&name)?,
            hostname: resolver::hostname(&pod, &self.node),
            etc: resolver::files(&pod, &ready.whereabouts),
            mounts,
            words: if words.is_empty() { vec!["sleep".to_owned(), "infinity".to_owned()] } else { words },
            working_dir: container.working_dir.clone().filter(|d| !d.is_empty()).unwrap_or_else(|| "/".to_owned()),
            log: self.host.places.log(&self.namespace, &self.name, &container.name),
            env,
        })
    }

    /// Stays with a container that was started until it has ended, and returns its exit code.
    async fn attend(&self, container: &Container, ready: &Ready, (mut child, running): (Child, Running)) -> i32 {
        let begun = now();
        let unhealthy = Notify::new();
        let node = self.host.fabric.node(&self.node);
        let prober = node.map(|node| Prober {
            container,
            running: &running,
            node,
            address: ready.whereabouts.pod_address.clone(),
        });
        let ended = match &prober {
            Ok(prober) => tokio::select! {
                ended = child.wait() => ended,
                never = prober.all(self, &unhealthy) => match never {},
                never = self.finish(prober, &unhealthy) => match never {},
            },
            // There is no node without a network; without one nothing could be asked.
            Err(_) => child.wait().await,
        };
        self.awake().await;
        self.set_running(&container.name, None);
        let code = ended.map_or(255, exit_code);
        self.note(&container.name, |state| {
            state.state = terminated(code, None, &begun, &now());
            (state.ready, state.started) = (false, false);
        });
        code
    }

    /// Ends the container when the pod should end, or when it is not well: its hook, SIGTERM, a grace, SIGKILL.
    async fn finish(&self, prober: &Prober<'_>, unhealthy: &Notify) -> Infallible {
        let pod = self.pod();
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let grace = Duration::from_secs(grace.and_then(|s| u64::try_from(s).ok()).unwrap_or(30));
        let own = tokio::select! {
            () = self.stopping() => None,
            () = unhealthy.notified() => Some(Instant::now() + grace),
        };
        self.awake().await;
        if let Some(hook) = prober.container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) {
            tokio::select! {
                _ = prober.hook(hook) => {}
                () = self.deadline(own) => {}
            }
        }
        let least = Instant::now() + LEAST.min(grace);
        self.signal(prober.running.pid, Signal::SIGTERM).await;
        self.deadline(own).await;
        if prober.container.lifecycle.as_ref().is_some_and(|l| l.pre_stop.is_some()) {
            tokio::time::sleep_until(least).await;
        }
        self.signal(prober.running.pid, Signal::SIGKILL).await;
        std::future::pending().await
    }

    /// Waits until the pod's time is over, which may come sooner than was said, or the container's own.
    async fn deadline(&self, own: Option<Instant>) {
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
        self.awake().await;
        // One that has ended needs no signal. Its id is not given to another before it was waited for.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// As container runtimes have it: a signal counts from 128.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
