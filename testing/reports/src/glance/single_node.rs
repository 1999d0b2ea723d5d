//! One node without a zone, and a Topology that needs zones.

use anyhow::{Context, Result, ensure};

use super::Replay;
use crate::pods::{self, NAMESPACE, TIMEOUT, condition};

const POD: &str = "glance-default-single-0";

impl Replay<'_> {
    pub(super) async fn single_node(&mut self) -> Result<()> {
        let terminal = &mut self.terminal;
        terminal.heading("Single node")?;
        terminal.run("kubectl get nodes").await?;
        terminal.run("kubectl create namespace openstack").await?;
        terminal.run("kubectl config set-context --current --namespace=openstack").await?;
        terminal.run("kubectl apply -f storage.yaml -f neighbours.yaml").await?;
        let created = terminal.run("kubectl create -f draft/topo.yaml").await?;
        ensure!(created.contains("Warning: "), "no warning about the draft spelling");
        terminal.run("kubectl get Topology").await?;
        terminal.run("kubectl apply -f glance.yaml").await?;
        pods::wait_until_settled(&self.stage, 1).await?;
        self.terminal.run("kubectl get Topology/default-sample -o yaml").await?;
        self.wait_for_draft_condition(true).await?;
        self.pending_then_running(None, "edits/schedule-anyway-draft.yaml").await?;
        self.terminal.remark("the same in the released spelling")?;
        self.pending_then_running(Some("kubectl replace -f topo.yaml"), "edits/schedule-anyway.yaml").await?;
        self.wait_for_draft_condition(false).await?;
        self.remove_namespace().await
    }

    async fn wait_for_draft_condition(&self, expected: bool) -> Result<()> {
        let what = if expected { "the draft spelling is reported" } else { "the draft spelling is no longer reported" };
        self.stage
            .wait_until(what, TIMEOUT, || async {
                let topology =
                    self.stage.get(NAMESPACE, "topology/default-sample").await?.context("no default-sample")?;
                Ok(condition(&topology, "DraftSpelling").is_some() == expected)
            })
            .await
    }

    /// Gives the pod a Topology that no node satisfies, and then one that is only preferred.
    async fn pending_then_running(&mut self, change: Option<&str>, fix: &str) -> Result<()> {
        let watch = self.terminal.start_watch("kubectl get pods -w")?;
        self.stage
            .wait_until("the watch shows the pod", TIMEOUT, || async { Ok(watch.output()?.contains(POD)) })
            .await?;
        match change {
            Some(line) => drop(self.terminal.run(line).await?),
            None => self.terminal.edit("glance/glance", "edits/default-sample.yaml").await?,
        }
        let pending = || async { Ok(pods::one(&self.stage, POD).await?.is_some_and(|p| p.unschedulable.is_some())) };
        self.stage.wait_until("the pod is Pending", TIMEOUT, pending).await?;
        let states = ["Running", "Terminating", "Pending"];
        let shown = || async {
            Ok(check_order(&watch.output()?.lines().map(str::to_owned).collect::<Vec<_>>(), &states).is_ok())
        };
        let watched = self.stage.wait_until("the watch shows all states", TIMEOUT, shown).await;
        let seen = self.terminal.stop_watch(watch, POD).await?;
        watched.and(check_order(&seen, &states))?;
        let pod = pods::one(&self.stage, POD).await?.context("the pod is gone")?;
        let message = pod.unschedulable.unwrap_or_default();
        let expected = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing \
                        required label)";
        ensure!(message.starts_with(expected), "unexpected scheduler message: {message}");
        let answer = self.terminal.run(&format!("stead explain pod/{POD}")).await?;
        ensure!(answer.contains("ScheduleAnyway"), "the fix of the report is not offered");
        self.terminal.edit("Topology", fix).await?;
        pods::wait_until_settled(&self.stage, 1).await?;
        self.terminal.run("kubectl get pods | grep -v Completed").await.map(drop)
    }

    async fn remove_namespace(&mut self) -> Result<()> {
        self.terminal.run("kubectl delete glance glance").await?;
        self.terminal.run("kubectl delete namespace openstack").await.map(drop)
    }
}

/// Fails if the lines do not show these states in this order.
fn check_order(seen: &[String], states: &[&str]) -> Result<()> {
    let mut lines = seen.iter();
    for state in states {
        ensure!(
            lines.any(|line| line.contains(state)),
            "state {state} is missing or out of order: {}",
            seen.join("\n")
        );
    }
    Ok(())
}
