//! The reports about Cinder: an application with one volume that is attached to one machine at a time, and machines
//! that are shut down. Played as written, and then with `stead explain` and `stead recover`.

mod stage;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_testbed::Binaries;

use crate::Terminal;
use crate::served::Served;
use stage::{CinderStage, Pod, folder};

/// Whose waiting times the control plane has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timers {
    /// A tenth of Kubernetes' own: the reports take six minutes.
    Fast,
    /// Kubernetes' own: the reports take 35 minutes.
    Kubernetes,
}

impl Timers {
    /// What `stead explain` has to be told of them.
    fn flags(self) -> &'static str {
        match self {
            Timers::Fast => " --node-monitor-grace-period 8s --node-monitor-period 500ms --force-detach-after 36s",
            Timers::Kubernetes => "",
        }
    }

    /// So long anything may take.
    fn patience(self) -> Duration {
        Duration::from_secs(if self == Timers::Fast { 240 } else { 900 })
    }
}

/// Plays the reports with this `stead` and the demo application, and prints them to `out`.
pub async fn play(
    binaries: &Binaries,
    stead: &Path,
    demo: &Path,
    timers: Timers,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let stage = CinderStage::open(binaries, demo, timers).await?;
    let terminal = Terminal::open(&stage.plane, &binaries.program("kubectl"), stead, folder(), out)?;
    Walk { stage: &stage, terminal, timers, rows: Vec::new() }.all().await
}

struct Walk<'a> {
    stage: &'a CinderStage,
    terminal: Terminal<'a>,
    timers: Timers,
    /// What was written so far.
    rows: Vec<String>,
}

const APP: &str = "test-cinder";
const SET: &str = "test-cinder-set";

/// When the pod collector looks next is not known, only that it does every 20 s: the plan says half of that.
const EXPECTED: f64 = 10.0;

/// So far from the plan's word may come what is foreseen, the pod collector's chance aside.
const APART: f64 = 10.0;

impl Walk<'_> {
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
        self.terminal.types("kubectl get pods -o wide").await
    }

    /// The application is ready elsewhere or anew, its page has all rows, and one more is added.
    async fn page(&mut self, app: &str, but: &str) -> Result<Pod> {
        let pod = self.stage.pod(app, but).await?;
        self.pods().await?;
        let served = Served { machines: &self.stage.machines, namespace: "default", pod: &pod.name, port: 8080 };
        let page = served.page().await?;
        self.terminal.remark(&format!("the page of {}", pod.name))?;
        for line in page.lines() {
            self.terminal.remark(&format!("  {line}"))?;
        }
        for row in &self.rows {
            ensure!(page.contains(row), "the row {row} is lost: {page}");
        }
        ensure!(page.contains(&format!("My node name {}", pod.node)), "another node: {page}");
        let row = format!("row-{}|row-{0}@example.com", self.rows.len());
        served.add(&row).await?;
        self.rows.push(row);
        self.stage.nobody_was_hurt()?;
        Ok(pod)
    }

    async fn application(&mut self) -> Result<()> {
        self.terminal.heading("A deployment with one volume, and the strategy Recreate")?;
        self.terminal.types("kubectl apply -f storage.yaml -f deployment.yaml").await?;
        let pod = self.page(APP, "").await?;
        self.terminal.types("kubectl set env deployment/test-cinder VERSION=2").await?;
        self.page(APP, &pod.uid).await.map(drop)
    }

    async fn rolling_update(&mut self) -> Result<()> {
        self.terminal.heading("A rolling update locks itself up")?;
        let old = self.stage.pod(APP, "").await?;
        self.terminal.remark("the new pod lands on the other machine of the zone")?;
        self.terminal.types(&format!("kubectl cordon {}", old.node)).await?;
        let rolling = r#"{"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}"#;
        self.terminal.types(&format!("kubectl patch deployment test-cinder -p '{rolling}'")).await?;
        self.terminal.types("kubectl set env deployment/test-cinder VERSION=3").await?;
        let new = self.stage.waiting(APP).await?;
        self.stage.event("FailedAttachVolume", &new).await?;
        self.pods().await?;
        let events = format!("kubectl get events --field-selector involvedObject.name={new},reason=FailedAttachVolume");
        let seen = self.terminal.types(&events).await?;
        ensure!(seen.contains("Volume is already used by pod(s)"), "no word of who has it: {seen}");
        let explained = self.explains(&format!("pod/{new}")).await?;
        ensure!(explained.contains(&old.name), "it is not said who has the volume: {explained}");
        let never = self.forecast(&format!("pod/{new}"), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "it would end by itself: {never}");
        let recreate = r#"{"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}"#;
        self.terminal.types(&format!("kubectl patch deployment test-cinder -p '{recreate}'")).await?;
        self.page(APP, &old.uid).await?;
        self.terminal.types(&format!("kubectl uncordon {}", old.node)).await.map(drop)
    }

    async fn pod_deleted(&mut self) -> Result<()> {
        self.terminal.heading("The pod is deleted")?;
        let old = self.stage.pod(APP, "").await?;
        self.terminal.types(&format!("kubectl delete pod {}", old.name)).await?;
        self.page(APP, &old.uid).await.map(drop)
    }

    async fn explains(&mut self, target: &str) -> Result<String> {
        self.terminal.types(&format!("stead explain {target}{}", self.timers.flags())).await
    }

    /// A way out as `stead explain -o json` has it.
    async fn forecast(&mut self, target: &str, way: &str) -> Result<Value> {
        let line = format!("stead explain {target}{} -o json", self.timers.flags());
        let text = self.terminal.quietly(&line).await?;
        let explained: Value = serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))?;
        let mut ways = explained["forecast"].as_array().into_iter().flatten();
        ways.find(|w| w["way"] == way).cloned().with_context(|| format!("no forecast of {way}: {text}"))
    }

    /// The machine is shut down; the old pod cannot end, and the new one waits.
    async fn shut_down(&mut self, app: &str) -> Result<Pod> {
        let old = self.stage.pod(app, "").await?;
        self.terminal.remark(&format!("{} is shut down", old.node))?;
        self.stage.machines.kill(&old.node).await?;
        self.stage.stuck(&old).await?;
        self.pods().await?;
        Ok(old)
    }

    /// Recovers a node whose machine is off, until the application is ready elsewhere; and how good the plan's word was.
    async fn recovers(&mut self, app: &str, old: &Pod) -> Result<()> {
        let line = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let said = self.terminal.types(&line).await?;
        let foreseen = said.split_once("; Ready at ").and_then(|(_, rest)| rest.split(',').next());
        let foreseen: Timestamp = foreseen.context("the plan does not say how long it takes")?.parse()?;
        let came = self.page(app, &old.uid).await?.since.context("it is ready since never")?;
        self.terminal.remark(&format!("the plan said {foreseen}, and it was {came}"))?;
        let took =
            |what: &str| stead_stage::took(&said, what).with_context(|| format!("no word of how long it took: {what}"));
        let chance = took("pods removed and volumes detached by Kubernetes")? - took("tainted by Stead")? - EXPECTED;
        ensure!(chance.abs() <= EXPECTED + APART, "{chance:.1} s are more than the pod collector's chance");
        let apart = came.duration_since(foreseen).as_secs_f64() - chance;
        ensure!(apart.abs() <= APART, "foreseen at {foreseen}, ready at {came}, of which {chance:.1} s are chance");
        Ok(())
    }

    /// What was shut down is started, and the taint goes.
    async fn started(&mut self, node: &str) -> Result<()> {
        self.terminal.remark(&format!("{node} is started"))?;
        self.stage.machines.boot(node).await?;
        self.terminal.types(&format!("stead recover node/{node} --yes --wait-return")).await?;
        self.stage.machines.ready().await
    }

    async fn node_kept(&mut self) -> Result<()> {
        self.terminal.heading("A machine is shut down, and its Node object stays")?;
        let old = self.shut_down(APP).await?;
        let new = self.stage.waiting(APP).await?;
        self.explains(&format!("pod/{new}")).await?;
        let never = self.forecast(&format!("pod/{new}"), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "it would end by itself: {never}");
        self.explains(&format!("node/{}", old.node)).await?;
        let refused = self.terminal.fails(&format!("stead recover node/{} --yes", old.node)).await?;
        ensure!(refused.contains("--confirm-off"), "no word of proof: {refused}");
        self.recovers(APP, &old).await?;
        self.terminal.types("stead recover --list").await?;
        self.started(&old.node).await
    }

    async fn node_deleted(&mut self) -> Result<()> {
        self.terminal.heading("A machine is deleted, and its Node object goes with it")?;
        let old = self.stage.pod(APP, "").await?;
        self.terminal.remark(&format!("{} is deleted", old.node))?;
        self.stage.machines.delete(&old.node).await?;
        self.stage.gone(&old.node).await?;
        self.terminal.types("kubectl get nodes").await?;
        self.explains(&format!("node/{}", old.node)).await?;
        self.terminal.remark("the pod is collected, and the volume detached by force after Kubernetes' own time")?;
        self.page(APP, &old.uid).await?;
        self.terminal.remark(&format!("{} is there again", old.node))?;
        self.stage.machines.boot(&old.node).await?;
        self.stage.machines.ready().await
    }

    async fn never_detached(&mut self) -> Result<()> {
        self.terminal.heading("A volume that its storage does not let go")?;
        let volume = self.stage.volume("test-cinder-volume").await?;
        let words = "instance is locked";
        self.stage.machines.disks().keep(&volume, Some(words));
        let old = self.shut_down(APP).await?;
        let recover = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let stopped = self.terminal.fails(&format!("{recover} --timeout 90s")).await?;
        ensure!(stopped.contains(words), "not in the driver's words: {stopped}");
        self.terminal.remark("the cloud's people mend it")?;
        self.stage.machines.disks().keep(&volume, None);
        self.terminal.types(&format!("stead recover node/{} --yes", old.node)).await?;
        self.page(APP, &old.uid).await?;
        self.started(&old.node).await
    }

    async fn zone_down(&mut self) -> Result<()> {
        self.terminal.heading("Both machines of the zone are shut down")?;
        let old = self.stage.pod(APP, "").await?;
        let other = stage::ZONE_A.into_iter().find(|node| *node != old.node).context("the zone has two machines")?;
        self.stage.machines.kill(other).await?;
        self.shut_down(APP).await?;
        let refused = format!("stead recover node/{} --confirm-off 'shut down in the console' --yes", old.node);
        let refused = self.terminal.fails(&refused).await?;
        ensure!(refused.contains("no node can run its replacement"), "refused for something else: {refused}");
        self.terminal.remark("the volume is in this zone alone: nothing was done. One machine is started")?;
        self.stage.machines.boot(other).await?;
        self.stage.waiting(APP).await?;
        self.recovers(APP, &old).await?;
        self.started(&old.node).await
    }

    async fn stateful_set(&mut self) -> Result<()> {
        self.terminal.heading("The reports' open question: a StatefulSet")?;
        self.rows.clear();
        self.terminal.types("kubectl delete deployment test-cinder").await?;
        self.terminal.types("kubectl apply -f statefulset.yaml").await?;
        self.page(SET, "").await?;
        let old = self.shut_down(SET).await?;
        self.explains(&format!("pod/{}", old.name)).await?;
        let never = self.forecast(&format!("pod/{}", old.name), "do-nothing").await?;
        ensure!(never["readyAt"].is_null(), "it would end by itself: {never}");
        self.recovers(SET, &old).await?;
        self.started(&old.node).await?;
        self.terminal.types("stead recover --list").await?;
        self.terminal.remark("The rows are there, and nobody ever wrote beside another.")
    }
}
