//! The reports about Cinder: an application with one volume that is attached to one machine at a time, and machines
//! that are shut down. Replayed as written, and with `stead explain` and `stead recover`.

mod stage;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_testbed::Binaries;

use crate::Terminal;
use crate::demo_app::DemoApp;
use stage::{CinderStage, Pod, folder};

/// The timeouts of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timers {
    /// A tenth of Kubernetes' defaults: the reports take six minutes.
    Fast,
    /// Kubernetes' defaults: the reports take 35 minutes.
    Kubernetes,
}

impl Timers {
    /// The flags of `stead explain` for these timeouts.
    fn flags(self) -> &'static str {
        match self {
            Timers::Fast => " --node-monitor-grace-period 8s --node-monitor-period 500ms --force-detach-after 36s",
            Timers::Kubernetes => "",
        }
    }

    /// Maximum time to wait for a change.
    fn max_wait(self) -> Duration {
        Duration::from_secs(if self == Timers::Fast { 240 } else { 900 })
    }
}

/// Replays the reports with this `stead` and the demo application, and prints them to `out`.
pub async fn play(
    binaries: &Binaries,
    stead: &Path,
    demo: &Path,
    timers: Timers,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let stage = CinderStage::open(binaries, demo, timers).await?;
    let terminal = Terminal::open(&stage.plane, &binaries.program("kubectl"), stead, folder(), out)?;
    Replay { stage: &stage, terminal, timers, rows: Vec::new() }.all().await
}

struct Replay<'a> {
    stage: &'a CinderStage,
    terminal: Terminal<'a>,
    timers: Timers,
    /// The rows written so far.
    rows: Vec<String>,
}

const APP: &str = "test-cinder";
const SET: &str = "test-cinder-set";

/// The pod garbage collector runs every 20 s, at an unknown time: the plan assumes half of that.
const EXPECTED_GC_DELAY: f64 = 10.0;

/// Maximum error of the plan's forecast in seconds, without the error of the pod garbage collector's delay.
const MAX_ERROR: f64 = 10.0;

impl Replay<'_> {
    async fn all(mut self) -> Result<()> {
        self.application().await?;
        self.rolling_update().await?;
        self.pod_deleted().await?;
        self.node_kept().await?;
        self.node_deleted().await?;
        self.never_detached().await?;
        self.zone_down().await?;
        self.stateful_set().await
    }

    async fn pods(&mut self) -> Result<String> {
        self.terminal.run("kubectl get pods -o wide").await
    }

    /// Waits for a ready pod with another uid, checks that its page has all rows, and adds one more.
    async fn check_page(&mut self, app: &str, old_uid: &str) -> Result<Pod> {
        let pod = self.stage.ready_pod(app, old_uid).await?;
        self.pods().await?;
        let app = DemoApp { machines: &self.stage.machines, namespace: "default", pod: &pod.name, port: 8080 };
        let page = app.page().await?;
        self.terminal.remark(&format!("the page of {}", pod.name))?;
        for line in page.lines() {
            self.terminal.remark(&format!("  {line}"))?;
        }
        for row in &self.rows {
            ensure!(page.contains(row), "row {row} is lost: {page}");
        }
        ensure!(page.contains(&format!("My node name {}", pod.node)), "wrong node: {page}");
        let row = format!("row-{}|row-{0}@example.com", self.rows.len());
        app.add(&row).await?;
        self.rows.push(row);
        self.stage.check_violations()?;
        Ok(pod)
    }

    async fn application(&mut self) -> Result<()> {
        self.terminal.heading("A deployment with one volume, and the strategy Recreate")?;
        self.terminal.run("kubectl apply -f storage.yaml -f deployment.yaml").await?;
        let pod = self.check_page(APP, "").await?;
        self.terminal.run("kubectl set env deployment/test-cinder VERSION=2").await?;
        self.check_page(APP, &pod.uid).await.map(drop)
    }

    async fn rolling_update(&mut self) -> Result<()> {
        self.terminal.heading("A rolling update deadlocks")?;
        let old = self.stage.ready_pod(APP, "").await?;
        self.terminal.remark("the new pod lands on the other machine of the zone")?;
        self.terminal.run(&format!("kubectl cordon {}", old.node)).await?;
        let rolling = r#"{"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}"#;
        self.terminal.run(&format!("kubectl patch deployment test-cinder -p '{rolling}'")).await?;
        self.terminal.run("kubectl set env deployment/test-cinder VERSION=3").await?;
        let new = self.stage.waiting_pod(APP).await?;
        self.stage.wait_for_event("FailedAttachVolume", &new).await?;
        self.pods().await?;
        let events = format!("kubectl get events --field-selector involvedObject.name={new},reason=FailedAttachVolume");
        let seen = self.terminal.run(&events).await?;
        ensure!(seen.contains("Volume is already used by pod(s)"), "the event does not name the pods: {seen}");
        let explained = self.explain(&format!("pod/{new}")).await?;
        ensure!(explained.contains(&old.name), "the pod that has the volume is not named: {explained}");
        let never = self.forecast(&format!("pod/{new}"), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "the forecast says that it recovers by itself: {never}");
        let recreate = r#"{"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}"#;
        self.terminal.run(&format!("kubectl patch deployment test-cinder -p '{recreate}'")).await?;
        self.check_page(APP, &old.uid).await?;
        self.terminal.run(&format!("kubectl uncordon {}", old.node)).await.map(drop)
    }

    async fn pod_deleted(&mut self) -> Result<()> {
        self.terminal.heading("The pod is deleted")?;
        let old = self.stage.ready_pod(APP, "").await?;
        self.terminal.run(&format!("kubectl delete pod {}", old.name)).await?;
        self.check_page(APP, &old.uid).await.map(drop)
    }

    async fn explain(&mut self, target: &str) -> Result<String> {
        self.terminal.run(&format!("stead explain {target}{}", self.timers.flags())).await
    }

    /// Returns the forecast of an option from `stead explain -o json`.
    async fn forecast(&mut self, target: &str, option: &str) -> Result<Value> {
        let line = format!("stead explain {target}{} -o json", self.timers.flags());
        let text = self.terminal.run_quietly(&line).await?;
        let explained: Value = serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))?;
        let mut options = explained["forecast"].as_array().into_iter().flatten();
        options.find(|o| o["way"] == option).cloned().with_context(|| format!("no forecast of {option}: {text}"))
    }

    /// Shuts down the machine of the pod, and waits until the pod is Terminating.
    async fn shut_down(&mut self, app: &str) -> Result<Pod> {
        let old = self.stage.ready_pod(app, "").await?;
        self.terminal.remark(&format!("{} is shut down", old.node))?;
        self.stage.machines.kill(&old.node).await?;
        self.stage.wait_until_terminating(&old).await?;
        self.pods().await?;
        Ok(old)
    }

    /// Recovers a node whose machine is off, waits until the application is ready elsewhere, and checks the forecast.
    async fn recover(&mut self, app: &str, old: &Pod) -> Result<()> {
        let line = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let output = self.terminal.run(&line).await?;
        let forecast = output.split_once("; Ready at ").and_then(|(_, rest)| rest.split(',').next());
        let forecast: Timestamp = forecast.context("the plan has no time")?.parse()?;
        let actual = self.check_page(app, &old.uid).await?.since.context("the pod has no Ready time")?;
        self.terminal.remark(&format!("forecast {forecast}, actual {actual}"))?;
        let took = |what: &str| {
            stead_stage::recovery_step_seconds(&output, what).with_context(|| format!("no duration of step: {what}"))
        };
        let gc_error =
            took("pods removed and volumes detached by Kubernetes")? - took("tainted by Stead")? - EXPECTED_GC_DELAY;
        ensure!(
            gc_error.abs() <= EXPECTED_GC_DELAY + MAX_ERROR,
            "an error of {gc_error:.1} s is more than the delay of the pod garbage collector"
        );
        let error = actual.duration_since(forecast).as_secs_f64() - gc_error;
        ensure!(
            error.abs() <= MAX_ERROR,
            "forecast {forecast}, ready at {actual}; {gc_error:.1} s of the error are due to the pod garbage collector"
        );
        Ok(())
    }

    /// Starts a machine that was shut down, and waits until the taint is removed.
    async fn start_machine(&mut self, node: &str) -> Result<()> {
        self.terminal.remark(&format!("{node} is started"))?;
        self.stage.machines.boot(node).await?;
        self.terminal.run(&format!("stead recover node/{node} --yes --wait-return")).await?;
        self.stage.machines.ready().await
    }

    async fn node_kept(&mut self) -> Result<()> {
        self.terminal.heading("A machine is shut down, and its Node object stays")?;
        let old = self.shut_down(APP).await?;
        let new = self.stage.waiting_pod(APP).await?;
        self.explain(&format!("pod/{new}")).await?;
        let never = self.forecast(&format!("pod/{new}"), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "the forecast says that it recovers by itself: {never}");
        self.explain(&format!("node/{}", old.node)).await?;
        let refused = self.terminal.run_failing(&format!("stead recover node/{} --yes", old.node)).await?;
        ensure!(refused.contains("--confirm-off"), "the missing confirmation is not named: {refused}");
        self.recover(APP, &old).await?;
        self.terminal.run("stead recover --list").await?;
        self.start_machine(&old.node).await
    }

    async fn node_deleted(&mut self) -> Result<()> {
        self.terminal.heading("A machine is deleted, and its Node object too")?;
        let old = self.stage.ready_pod(APP, "").await?;
        self.terminal.remark(&format!("{} is deleted", old.node))?;
        self.stage.machines.delete(&old.node).await?;
        self.stage.wait_until_node_deleted(&old.node).await?;
        self.terminal.run("kubectl get nodes").await?;
        self.explain(&format!("node/{}", old.node)).await?;
        self.terminal
            .remark("the pod is garbage-collected, and the volume is force-detached after Kubernetes' timeout")?;
        self.check_page(APP, &old.uid).await?;
        self.terminal.remark(&format!("{} is created again", old.node))?;
        self.stage.machines.boot(&old.node).await?;
        self.stage.machines.ready().await
    }

    async fn never_detached(&mut self) -> Result<()> {
        self.terminal.heading("A volume that its storage does not detach")?;
        let volume = self.stage.volume("test-cinder-volume").await?;
        let message = "instance is locked";
        self.stage.machines.disks().fail_detach(&volume, Some(message));
        let old = self.shut_down(APP).await?;
        let recover = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let stopped = self.terminal.run_failing(&format!("{recover} --timeout 90s")).await?;
        ensure!(stopped.contains(message), "the driver's message is missing: {stopped}");
        self.terminal.remark("the storage is repaired")?;
        self.stage.machines.disks().fail_detach(&volume, None);
        self.terminal.run(&format!("stead recover node/{} --yes", old.node)).await?;
        self.check_page(APP, &old.uid).await?;
        self.start_machine(&old.node).await
    }

    async fn zone_down(&mut self) -> Result<()> {
        self.terminal.heading("Both machines of the zone are shut down")?;
        let old = self.stage.ready_pod(APP, "").await?;
        let other = stage::ZONE_A.into_iter().find(|node| *node != old.node).context("the zone has two machines")?;
        self.stage.machines.kill(other).await?;
        self.shut_down(APP).await?;
        let refused = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let refused = self.terminal.run_failing(&refused).await?;
        ensure!(refused.contains("no node can run its replacement"), "refused for another reason: {refused}");
        self.terminal.remark("the volume can be used only in this zone: nothing was done. One machine is started")?;
        self.stage.machines.boot(other).await?;
        self.stage.waiting_pod(APP).await?;
        self.recover(APP, &old).await?;
        self.start_machine(&old.node).await
    }

    async fn stateful_set(&mut self) -> Result<()> {
        self.terminal.heading("The reports' open question: a StatefulSet")?;
        self.rows.clear();
        self.terminal.run("kubectl delete deployment test-cinder").await?;
        self.terminal.run("kubectl apply -f statefulset.yaml").await?;
        self.check_page(SET, "").await?;
        let old = self.shut_down(SET).await?;
        self.explain(&format!("pod/{}", old.name)).await?;
        let never = self.forecast(&format!("pod/{}", old.name), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "the forecast says that it recovers by itself: {never}");
        self.recover(SET, &old).await?;
        self.start_machine(&old.node).await?;
        self.terminal.run("stead recover --list").await?;
        self.terminal.remark("All rows are there, and there were never two writers.")
    }
}
