//! A node becomes unreachable: its pods stay Terminating until it is back, or until they are force-deleted.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Replay;
use crate::pods::{self, Pod, TIMEOUT, zone};

const NODE: &str = "worker-0";

/// The azone pod that is on another node.
const HEALTHY: &str = "glance-azone-edge-api-2";

const ZONE_A: &str = "kubectl get pods -l service=glance -o wide | egrep \"master-0|worker-0|worker-3\"";
const EDGES: &str = "kubectl get pods -l service=glance -o wide | grep azone";

impl Replay<'_> {
    pub(super) async fn failure(&mut self) -> Result<()> {
        self.terminal.heading("A node becomes unreachable")?;
        self.terminal.run("kubectl label nodes worker-3 node=node3 zone=zoneA --overwrite").await?;
        self.terminal.run(ZONE_A).await?;
        let on_it = on(self.stage_pods().await?, NODE);
        self.terminal.remark(&format!("virsh suspend cifmw-ocp-{NODE}"))?;
        self.stage.nodes.make_unreachable(NODE)?;
        let line = format!("kubectl wait --for=condition=Ready=Unknown --timeout=90s node/{NODE}");
        self.terminal.run(&line).await?;
        self.terminal.run("kubectl get nodes").await?;
        self.stage
            .wait_until("the unreachable node's pods are Terminating", TIMEOUT, || async {
                let pods = on(self.stage_pods().await?, NODE);
                Ok(pods.iter().all(|pod| pod.deleting))
            })
            .await?;
        self.terminal.run(ZONE_A).await?;
        let stuck = on(self.stage_pods().await?, NODE);
        let (now, before) = (names(&stuck), names(&on_it));
        ensure!(now == before, "of {before:?} only {now:?} are Terminating");
        self.check_still_stuck(&stuck).await?;
        let edge = stuck.iter().find(|pod| pod.name.starts_with("glance-azone-")).context("no azone pod is stuck")?;
        self.force_delete(edge).await?;
        self.resume_node(&stuck, &edge.name).await
    }

    async fn stage_pods(&self) -> Result<Vec<Pod>> {
        pods::glance(&self.stage, "").await
    }

    /// Checks that neither a restart nor another Topology helps a pod on an unreachable node.
    async fn check_still_stuck(&mut self, stuck: &[Pod]) -> Result<()> {
        let healthy = pods::one(&self.stage, HEALTHY).await?.context("no pod of azone is left")?;
        self.terminal.run("kubectl rollout restart sts glance-azone-edge-api").await?;
        // It makes things worse: the only working pod is replaced, and the stuck pods stay stuck.
        self.stage
            .wait_until("the restart has replaced the healthy pod", TIMEOUT, || async {
                let now = pods::one(&self.stage, HEALTHY).await?;
                Ok(now.is_some_and(|now| now.uid != healthy.uid && now.ready))
            })
            .await?;
        self.terminal.run(EDGES).await?;
        self.terminal.edit("oscp", "edits/azone-anywhere.yaml").await?;
        self.wait_until_observed().await?;
        self.terminal.edit("oscp", "edits/azone-in-zone-a.yaml").await?;
        self.wait_until_observed().await?;
        self.terminal.run(EDGES).await?;
        for pod in stuck {
            let now = pods::one(&self.stage, &pod.name).await?.with_context(|| format!("{} is gone", pod.name))?;
            ensure!(now.uid == pod.uid && now.deleting, "{} is no longer stuck", pod.name);
        }
        Ok(())
    }

    /// Waits until the controllers have observed the last change of the edge API.
    async fn wait_until_observed(&self) -> Result<()> {
        self.stage
            .wait_until("the StatefulSet is observed", TIMEOUT, || async {
                let space = pods::NAMESPACE;
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

    async fn force_delete(&mut self, pod: &Pod) -> Result<()> {
        self.terminal.run(&format!("kubectl delete pod {} --force --grace-period=0", pod.name)).await?;
        self.stage
            .wait_until("the pod is ready on another node", TIMEOUT, || async {
                let now = pods::one(&self.stage, &pod.name).await?;
                Ok(now.is_some_and(|now| now.uid != pod.uid && now.ready))
            })
            .await?;
        self.terminal.run(&format!("kubectl get pods -l service=glance -o wide | grep {}", pod.name)).await?;
        let now = pods::one(&self.stage, &pod.name).await?.context("the pod is gone")?;
        let node = now.node()?;
        ensure!(node != NODE && zone(node)? == 'A', "{} is on {node}", pod.name);
        Ok(())
    }

    async fn resume_node(&mut self, stuck: &[Pod], force_deleted: &str) -> Result<()> {
        self.terminal.remark(&format!("virsh resume cifmw-ocp-{NODE}"))?;
        self.stage.nodes.resume(NODE)?;
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run("kubectl get pods -l service=glance -o wide").await?;
        pods::check_edge_zones(&pods)?;
        for old in stuck.iter().filter(|pod| pod.name != force_deleted) {
            let same = pods.iter().any(|pod| pod.uid == old.uid);
            ensure!(!same, "{} was not recreated", old.name);
        }
        Ok(())
    }
}

fn on(pods: Vec<Pod>, node: &str) -> Vec<Pod> {
    pods.into_iter().filter(|pod| pod.node.as_deref() == Some(node)).collect()
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}
