//! A node becomes unreachable: its pods are Terminating until it is back, or until somebody deletes them by force.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Walk;
use crate::pods::{self, PATIENCE, Pod, zone};

const SILENT: &str = "worker-0";

/// The pod of azone that is elsewhere.
const HEALTHY: &str = "glance-azone-edge-api-2";

const ZONE_A: &str = "kubectl get pods -l service=glance -o wide | egrep \"master-0|worker-0|worker-3\"";
const EDGES: &str = "kubectl get pods -l service=glance -o wide | grep azone";

impl Walk<'_> {
    pub(super) async fn failure(&mut self) -> Result<()> {
        self.terminal.heading("A node falls silent")?;
        self.terminal.types("kubectl label nodes worker-3 node=node3 zone=zoneA --overwrite").await?;
        self.terminal.types(ZONE_A).await?;
        let on_it = on(self.stage_pods().await?, SILENT);
        self.terminal.remark(&format!("virsh suspend cifmw-ocp-{SILENT}"))?;
        self.stage.nodes.silence(SILENT)?;
        let line = format!("kubectl wait --for=condition=Ready=Unknown --timeout=90s node/{SILENT}");
        self.terminal.types(&line).await?;
        self.terminal.types("kubectl get nodes").await?;
        self.stage
            .until("the silent node's pods are Terminating", PATIENCE, || async {
                let pods = on(self.stage_pods().await?, SILENT);
                Ok(pods.iter().all(|pod| pod.deleting))
            })
            .await?;
        self.terminal.types(ZONE_A).await?;
        let stuck = on(self.stage_pods().await?, SILENT);
        let (names, before) = (named(&stuck), named(&on_it));
        ensure!(names == before, "of {before:?} only {names:?} are Terminating");
        self.still_stuck(&stuck).await?;
        let edge = stuck.iter().find(|pod| pod.name.starts_with("glance-azone-")).context("no azone pod is stuck")?;
        self.by_force(edge).await?;
        self.back(&stuck, &edge.name).await
    }

    async fn stage_pods(&self) -> Result<Vec<Pod>> {
        pods::glance(&self.stage, "").await
    }

    /// Neither a restart nor another Topology frees a pod whose node does not answer.
    async fn still_stuck(&mut self, stuck: &[Pod]) -> Result<()> {
        let healthy = pods::one(&self.stage, HEALTHY).await?.context("no pod of azone is left")?;
        self.terminal.types("kubectl rollout restart sts glance-azone-edge-api").await?;
        // It makes things worse: the only pod that served is replaced, and those that are stuck stay so.
        self.stage
            .until("the restart has replaced the healthy pod", PATIENCE, || async {
                let now = pods::one(&self.stage, HEALTHY).await?;
                Ok(now.is_some_and(|now| now.uid != healthy.uid && now.ready))
            })
            .await?;
        self.terminal.types(EDGES).await?;
        self.terminal.edits("oscp", "edits/azone-anywhere.yaml").await?;
        self.observed().await?;
        self.terminal.edits("oscp", "edits/azone-in-zone-a.yaml").await?;
        self.observed().await?;
        self.terminal.types(EDGES).await?;
        for pod in stuck {
            let now = pods::one(&self.stage, &pod.name).await?.with_context(|| format!("{} is gone", pod.name))?;
            ensure!(now.uid == pod.uid && now.deleting, "{} is no longer stuck", pod.name);
        }
        Ok(())
    }

    /// Waits until the edge set's controllers have seen what was last asked for.
    async fn observed(&self) -> Result<()> {
        self.stage
            .until("the StatefulSet is observed", PATIENCE, || async {
                let space = pods::SPACE;
                let api = self.stage.get(space, "glanceapi/glance-azone-edge").await?.context("no GlanceAPI")?;
                let set = self.stage.get(space, "sts/glance-azone-edge-api").await?.context("no StatefulSet")?;
                let plane = self.stage.get(space, "oscp/openstack-control-plane").await?.context("no control plane")?;
                let wanted = &plane["spec"]["glance"]["template"]["glanceAPIs"]["azone"]["topologyRef"]["name"];
                let current = |o: &Value| o["status"]["observedGeneration"] == o["metadata"]["generation"];
                let affinity = &set["spec"]["template"]["spec"]["affinity"];
                let follows = affinity["nodeAffinity"].is_null() == wanted.is_null();
                Ok(api["spec"]["topologyRef"]["name"] == *wanted && current(&api) && current(&set) && follows)
            })
            .await
    }

    async fn by_force(&mut self, pod: &Pod) -> Result<()> {
        self.terminal.types(&format!("kubectl delete pod {} --force --grace-period=0", pod.name)).await?;
        self.stage
            .until("the pod is back elsewhere", PATIENCE, || async {
                let now = pods::one(&self.stage, &pod.name).await?;
                Ok(now.is_some_and(|now| now.uid != pod.uid && now.ready))
            })
            .await?;
        self.terminal.types(&format!("kubectl get pods -l service=glance -o wide | grep {}", pod.name)).await?;
        let now = pods::one(&self.stage, &pod.name).await?.context("the pod is gone")?;
        let node = now.node()?;
        ensure!(node != SILENT && zone(node)? == 'A', "{} is on {node}", pod.name);
        Ok(())
    }

    async fn back(&mut self, stuck: &[Pod], but: &str) -> Result<()> {
        self.terminal.remark(&format!("virsh resume cifmw-ocp-{SILENT}"))?;
        self.stage.nodes.resume(SILENT)?;
        let pods = pods::settled(&self.stage, 15).await?;
        self.terminal.types("kubectl get pods -l service=glance -o wide").await?;
        pods::edges_in_their_zones(&pods)?;
        for old in stuck.iter().filter(|pod| pod.name != but) {
            let same = pods.iter().any(|pod| pod.uid == old.uid);
            ensure!(!same, "{} was not made anew", old.name);
        }
        Ok(())
    }
}

fn on(pods: Vec<Pod>, node: &str) -> Vec<Pod> {
    pods.into_iter().filter(|pod| pod.node.as_deref() == Some(node)).collect()
}

fn named(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}
