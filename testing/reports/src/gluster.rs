//! The report about a Gluster pool: its six experiments in order.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stead_stage::pool::{NAME, NAMESPACE, PoolStage, TIMEOUT, pod};
use stead_stage::wait_until;
use stead_testbed::Binaries;

use crate::Terminal;

/// Replays the report with this `stead`, and prints it to `out`.
pub async fn play(binaries: &Binaries, stead: &Path, out: &mut (dyn Write + Send)) -> Result<()> {
    let stage = PoolStage::open(binaries, stead).await?;
    let terminal = Terminal::open(&stage.plane, &binaries.program("kubectl"), stead, folder(), out)?;
    Replay { stage: &stage, terminal }.all().await
}

/// The files that are applied.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gluster-report")
}

struct Replay<'a> {
    stage: &'a PoolStage,
    terminal: Terminal<'a>,
}

impl Replay<'_> {
    async fn all(mut self) -> Result<()> {
        self.initial().await?;
        self.scale_up().await?;
        self.scale_down().await?;
        self.delete_a_pod().await?;
        self.node_down().await?;
        self.cluster_down().await
    }

    /// `gluster peer status` in a pod.
    async fn peer_status(&mut self, ordinal: u32, peers: u32) -> Result<()> {
        let line = format!("kubectl exec {} -c gluster -- gluster peer status", pod(ordinal));
        let text = self.terminal.run(&line).await?;
        ensure!(text.contains(&format!("Number of Peers: {peers}\n")), "expected {peers} peers: {text}");
        ensure!(
            text.matches("State: Peer in Cluster (Connected)").count() as u32 == peers,
            "not all peers are connected: {text}"
        );
        Ok(())
    }

    async fn pods(&mut self) -> Result<String> {
        self.terminal.run("kubectl get pods -o wide").await
    }

    async fn initial(&mut self) -> Result<()> {
        self.terminal.heading("1. After the initial cluster is running, check the TSP")?;
        self.terminal.run("stead gluster manifests --values values.yaml | kubectl apply -f -").await?;
        self.stage.wait_until_healthy(3, TIMEOUT).await?;
        self.pods().await?;
        self.peer_status(0, 2).await
    }

    async fn scale_up(&mut self) -> Result<()> {
        self.terminal.heading("2. Scale up the cluster and again check the TSP")?;
        self.terminal.run(&format!("kubectl scale statefulsets {NAME} --replicas=5")).await?;
        self.stage.wait_until_healthy(5, TIMEOUT).await?;
        self.pods().await?;
        self.peer_status(0, 4).await
    }

    async fn scale_down(&mut self) -> Result<()> {
        self.terminal.heading("3. Scale down, similar to above")?;
        self.terminal.run(&format!("kubectl scale statefulsets {NAME} --replicas=3")).await?;
        let gone = async || Ok(self.stage.pod(3).await?.is_none() && self.stage.pod(4).await?.is_none());
        wait_until("two pods are gone", TIMEOUT, gone).await?;
        self.stage.wait_until_healthy(3, TIMEOUT).await?;
        self.pods().await?;
        self.peer_status(1, 2).await
    }

    async fn delete_a_pod(&mut self) -> Result<()> {
        self.terminal.heading("4. Delete a pod: do we recover?")?;
        self.terminal.run(&format!("kubectl scale statefulsets {NAME} --replicas=4")).await?;
        self.stage.wait_until_healthy(4, TIMEOUT).await?;
        self.pods().await?;
        self.peer_status(0, 3).await?;
        let before = self.stage.identities(4).await?;
        let uid = self.stage.uid(1).await?;
        self.terminal.run("kubectl delete pod glusterfs-1 --wait=false").await?;
        self.pods().await?;
        self.stage.wait_until_replaced(1, &uid).await?;
        self.stage.wait_until_healthy(4, TIMEOUT).await?;
        self.pods().await?;
        self.peer_status(0, 3).await?;
        let after = self.stage.identities(4).await?;
        ensure!(before == after, "the identities changed from {before:?} to {after:?}");
        self.terminal.remark("In the report this ended with \"Peer Rejected\"; here the pod is back with its identity.")
    }

    async fn node_down(&mut self) -> Result<()> {
        self.terminal.heading("5. Bring a node down, check the state of the cluster")?;
        let node = self.stage.node_of(1).await?;
        let uid = self.stage.uid(1).await?;
        self.terminal.remark(&format!("{node} is stopped, and its Node object is deleted, as in a cloud"))?;
        self.stage.machines.kill(&node).await?;
        self.terminal.run(&format!("kubectl delete node {node}")).await?;
        self.stage.wait_until_replaced(1, &uid).await?;
        self.pods().await?;
        self.stage.wait_until_healthy(4, TIMEOUT).await?;
        self.pods().await?;
        let events = "kubectl get events --sort-by=.lastTimestamp --field-selector involvedObject.name=glusterfs-1";
        self.terminal.run(events).await?;
        self.peer_status(0, 3).await?;
        ensure!(self.stage.node_of(1).await? != node, "the pod is on the deleted node");
        self.stage.machines.boot(&node).await?;
        self.stage.machines.ready().await
    }

    async fn cluster_down(&mut self) -> Result<()> {
        self.terminal.heading("6. Bring the cluster down, wait some time and bring it back up")?;
        let nodes = self.stage.kubectl(&["get", "nodes", "-o", "name"]).await?;
        let nodes: Vec<&str> = nodes.lines().filter_map(|line| line.strip_prefix("node/")).collect();
        self.terminal.remark("all nodes are stopped")?;
        for node in &nodes {
            self.stage.machines.kill(node).await?;
        }
        let down = async || Ok(!self.stage.kubectl(&["get", "nodes"]).await?.contains(" Ready "));
        wait_until("the nodes are not ready", TIMEOUT, down).await?;
        self.terminal.run("kubectl get nodes").await?;
        self.terminal.remark("all nodes are started")?;
        for node in &nodes {
            self.stage.machines.boot(node).await?;
        }
        self.stage.machines.ready().await?;
        self.stage.wait_until_healthy(4, TIMEOUT).await.context("all nodes are back")?;
        self.terminal.run("kubectl get nodes").await?;
        self.pods().await?;
        self.peer_status(0, 3).await?;
        let line = format!("stead gluster status {NAME} -n {NAMESPACE}");
        wait_until("all agents answer", TIMEOUT, async || Ok(self.terminal.run_quietly(&line).await.is_ok())).await?;
        let status = self.terminal.run(&line).await?;
        ensure!(!status.is_empty(), "no status");
        self.terminal.remark("All good here.")
    }
}
