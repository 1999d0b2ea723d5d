//! One node without a zone, and a Topology that needs zones.

use anyhow::{Context, Result, ensure};

use super::Walk;
use crate::pods::{self, PATIENCE, SPACE, condition};

const POD: &str = "glance-default-single-0";

impl Walk<'_> {
    pub(super) async fn single_node(&mut self) -> Result<()> {
        let terminal = &mut self.terminal;
        terminal.heading("Single node")?;
        terminal.types("kubectl get nodes").await?;
        terminal.types("kubectl create namespace openstack").await?;
        terminal.types("kubectl config set-context --current --namespace=openstack").await?;
        terminal.types("kubectl apply -f storage.yaml -f neighbours.yaml").await?;
        let created = terminal.types("kubectl create -f draft/topo.yaml").await?;
        ensure!(created.contains("Warning: "), "the draft's spelling passes without a warning");
        terminal.types("kubectl get Topology").await?;
        terminal.types("kubectl apply -f glance.yaml").await?;
        pods::settled(&self.stage, 1).await?;
        self.terminal.types("kubectl get Topology/default-sample -o yaml").await?;
        self.draft_is_told(true).await?;
        self.pending_then_running(None, "edits/schedule-anyway-draft.yaml").await?;
        self.terminal.remark("once more, in the released spelling")?;
        self.pending_then_running(Some("kubectl replace -f topo.yaml"), "edits/schedule-anyway.yaml").await?;
        self.draft_is_told(false).await?;
        self.remove_namespace().await
    }

    async fn draft_is_told(&self, told: bool) -> Result<()> {
        let what = if told { "the draft's spelling is told of" } else { "the draft's spelling is no longer told of" };
        self.stage
            .until(what, PATIENCE, || async {
                let topology = self.stage.get(SPACE, "topology/default-sample").await?.context("no default-sample")?;
                Ok(condition(&topology, "DraftSpelling").is_some() == told)
            })
            .await
    }

    /// The pod gets a Topology that no node satisfies, and then one that wishes only.
    async fn pending_then_running(&mut self, change: Option<&str>, mend: &str) -> Result<()> {
        let watch = self.terminal.watches("kubectl get pods -w")?;
        self.stage.until("a watch that sees the pod", PATIENCE, || async { Ok(watch.seen()?.contains(POD)) }).await?;
        match change {
            Some(line) => drop(self.terminal.types(line).await?),
            None => self.terminal.edits("glance/glance", "edits/default-sample.yaml").await?,
        }
        let pending = || async { Ok(pods::one(&self.stage, POD).await?.is_some_and(|p| p.unschedulable.is_some())) };
        self.stage.until("the pod is Pending", PATIENCE, pending).await?;
        let states = ["Running", "Terminating", "Pending"];
        let told =
            || async { Ok(in_order(&watch.seen()?.lines().map(str::to_owned).collect::<Vec<_>>(), &states).is_ok()) };
        let watched = self.stage.until("the watch has told of it", PATIENCE, told).await;
        let seen = self.terminal.stops(watch, POD).await?;
        watched.and(in_order(&seen, &states))?;
        let pod = pods::one(&self.stage, POD).await?.context("the pod is gone")?;
        let why = pod.unschedulable.unwrap_or_default();
        let expected = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing \
                        required label)";
        ensure!(why.starts_with(expected), "the scheduler says {why}");
        let answer = self.terminal.types(&format!("stead explain pod/{POD}")).await?;
        ensure!(answer.contains("ScheduleAnyway"), "the report's own way out is not offered");
        self.terminal.edits("Topology", mend).await?;
        pods::settled(&self.stage, 1).await?;
        self.terminal.types("kubectl get pods | grep -v Completed").await.map(drop)
    }

    async fn remove_namespace(&mut self) -> Result<()> {
        self.terminal.types("kubectl delete glance glance").await?;
        self.terminal.types("kubectl delete namespace openstack").await.map(drop)
    }
}

/// That a pod was in these states, one after the other.
fn in_order(seen: &[String], states: &[&str]) -> Result<()> {
    let mut lines = seen.iter();
    for state in states {
        ensure!(lines.any(|line| line.contains(state)), "never {state} in its turn: {}", seen.join("\n"));
    }
    Ok(())
}
