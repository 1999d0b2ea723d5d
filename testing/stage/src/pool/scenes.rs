//! Faults and operations on a pool, scene by scene. A client has a replicated volume mounted, and writes a file before
//! each scene.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use stead_machines::Api;

use super::files::VOLUME;
use super::peer_status::CONNECTED;
use super::{Client, NAME, PoolStage, TIMEOUT, is_ready, pod};
use crate::wait_until;

/// Plays all scenes. Calls `say` with the name of each.
pub async fn play(stage: &PoolStage, say: &mut (impl FnMut(&str) + Send)) -> Result<()> {
    let mut scenes = Scenes { stage, say, began: Instant::now() };
    scenes.form().await?;
    let mut client = Client::mount(stage).await.context("mounting the volume")?;
    for (name, scene) in SCENES {
        client.wait_until_connected().await?;
        scenes.log(name);
        client.write_file().await?;
        scenes.play(scene, &mut client).await.context(name)?;
        client.wait_until_connected().await.with_context(|| format!("after: {name}"))?;
        client.check_files().await.with_context(|| format!("after: {name}"))?;
    }
    scenes.log("done");
    Ok(())
}

#[derive(Clone, Copy)]
enum Scene {
    Scale(u32),
    Deleted,
    StateLost,
    NewUuid,
    Checksum,
    NodeLost,
    AllDown,
    Split,
    RefusedScaleDown,
    UnguardedScaleDown,
    PendingHeal,
}

/// The scenes in order. From the fourth on there are four pods.
const SCENES: [(&str, Scene); 13] = [
    ("scale to 5", Scene::Scale(5)),
    ("scale to 3", Scene::Scale(3)),
    ("scale to 4", Scene::Scale(4)),
    ("a pod is deleted, and comes back with a new address", Scene::Deleted),
    ("a pod is deleted and its state is lost", Scene::StateLost),
    ("a peer with a new UUID is rejected, and repaired", Scene::NewUuid),
    ("a peer with a wrong checksum is rejected, and repaired", Scene::Checksum),
    ("a node is lost, and its pod moves", Scene::NodeLost),
    ("all nodes are down, and up again", Scene::AllDown),
    ("the network splits the pool in half", Scene::Split),
    ("a scale-down that would orphan bricks is refused", Scene::RefusedScaleDown),
    ("a scale-down with bricks without the admission policy", Scene::UnguardedScaleDown),
    ("a pending heal blocks the next restart", Scene::PendingHeal),
];

const REPLICAS: u32 = 4;

struct Scenes<'a, S> {
    stage: &'a PoolStage,
    say: S,
    began: Instant,
}

impl<S: FnMut(&str)> Scenes<'_, S> {
    fn log(&mut self, what: &str) {
        (self.say)(&format!("{:>5.0} s  {what}", self.began.elapsed().as_secs_f64()));
    }

    async fn form(&mut self) -> Result<()> {
        self.log("three peers form a pool");
        self.stage.install(&[]).await?;
        self.stage.wait_until_healthy(3, TIMEOUT).await
    }

    async fn play(&mut self, scene: Scene, client: &mut Client<'_>) -> Result<()> {
        match scene {
            Scene::Scale(replicas) => self.scale(replicas, client).await,
            Scene::Deleted => self.deleted(client).await,
            Scene::StateLost => self.state_lost(client).await,
            Scene::NewUuid => self.new_uuid(client).await,
            Scene::Checksum => self.checksum(client).await,
            Scene::NodeLost => self.node_lost(client).await,
            Scene::AllDown => self.all_down().await,
            Scene::Split => client.check_files_while(self.split()).await,
            Scene::RefusedScaleDown => self.refused_scale_down().await,
            Scene::UnguardedScaleDown => self.unguarded_scale_down(client).await,
            Scene::PendingHeal => self.pending_heal(client).await,
        }
    }

    async fn scale(&self, replicas: u32, client: &Client<'_>) -> Result<()> {
        client
            .check_files_while(async {
                self.stage.scale(replicas).await?;
                wait_until("the surplus pods are gone", TIMEOUT, async || {
                    Ok(self.stage.pod(replicas).await?.is_none())
                })
                .await?;
                self.stage.wait_until_healthy(replicas, TIMEOUT).await
            })
            .await
    }

    /// Waits until the pool is healthy, and checks that the UUIDs are unchanged.
    async fn wait_until_restored(&self, before: &std::collections::BTreeMap<u32, String>) -> Result<()> {
        self.stage.wait_until_healthy(REPLICAS, TIMEOUT).await?;
        let after = self.stage.identities(REPLICAS).await?;
        ensure!(after == *before, "the UUIDs changed from {before:?} to {after:?}");
        Ok(())
    }

    async fn deleted(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let address = self.stage.machines.pod_address(super::NAMESPACE, &pod(1))?;
        client
            .check_files_while(async {
                let uid = self.stage.uid(1).await?;
                self.stage.kubectl(&["delete", "pod", &pod(1), "--wait=false"]).await?;
                self.stage.wait_until_replaced(1, &uid).await?;
                self.wait_until_restored(&before).await
            })
            .await?;
        let now = self.stage.machines.pod_address(super::NAMESPACE, &pod(1))?;
        ensure!(now != address, "the address is the same: {now}");
        Ok(())
    }

    /// Deletes a pod with its claim, and checks that no other peer rejects it while it comes back.
    async fn state_lost(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        client
            .check_files_while(async {
                self.lose_state(1).await?;
                let restored = self.wait_until_restored(&before);
                let mut restored = std::pin::pin!(restored);
                loop {
                    tokio::select! {
                        done = &mut restored => return done,
                        rejected = self.is_rejected(1) => ensure!(!rejected, "the peer was rejected"),
                    }
                }
            })
            .await
    }

    async fn lose_state(&self, ordinal: u32) -> Result<()> {
        lose_state(self.stage, ordinal).await
    }

    /// Whether another peer lists this one as rejected.
    async fn is_rejected(&self, ordinal: u32) -> bool {
        // The state can change quickly, so ask all peers at the same time.
        let others = (0..REPLICAS).filter(|other| *other != ordinal).map(|other| self.stage.peers(other));
        // A peer that does not answer is ignored.
        let peers = join_all(others).await.into_iter().flatten().flatten();
        let (host, state) = (super::host(ordinal), "Peer Rejected");
        peers.into_iter().any(|f| f.host == host && f.state.starts_with(state))
    }

    /// Kills glusterd and deletes its state: the next glusterd generates a new UUID.
    async fn new_uuid(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        // The agent restarts glusterd. Repeat until no glusterd is running that has read or written the old state.
        let wipe = "while find /var/lib/glusterd -mindepth 1 -maxdepth 1 -exec rm -rf {} +; pkill -9 -x glusterd; \
                    do sleep 0.05; done";
        client
            .check_files_while(async {
                self.stage.exec(1, &["sh", "-c", wipe]).await?;
                let seen = "the other peers reject it";
                wait_until(seen, TIMEOUT, async || Ok(self.is_rejected(1).await)).await?;
                self.wait_until_restored(&before).await
            })
            .await
    }

    /// Changes the checksum of a volume's definition but not its version: glusterd rejects that.
    async fn checksum(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        // As above: repeat as long as a running glusterd may have rewritten the files.
        let spoil = format!(
            "cd /var/lib/glusterd/vols/{VOLUME}; while sed -i 's/^network.ping-timeout=.*/network.ping-timeout=4/' info; \
             sed -i 's/^info=.*/info=1/' cksum; pkill -x glusterd; do sleep 0.05; done"
        );
        client
            .check_files_while(async {
                self.stage.exec(1, &["sh", "-c", &spoil]).await?;
                let seen = "the other peers reject it";
                wait_until(seen, TIMEOUT, async || Ok(self.is_rejected(1).await)).await?;
                self.wait_until_restored(&before).await
            })
            .await
    }

    /// As in the field report: the machine is lost, and its Node object is deleted.
    async fn node_lost(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let node = self.stage.node_of(1).await?;
        let uid = self.stage.uid(1).await?;
        client
            .check_files_while(async {
                self.stage.machines.kill(&node).await?;
                let disconnected = "the other peers list it as disconnected";
                wait_until(disconnected, TIMEOUT, async || {
                    let Ok(peers) = self.stage.peers(0).await else { return Ok(false) };
                    ensure!(peers.len() as u32 == REPLICAS - 1, "a peer was removed: {peers:?}");
                    Ok(peers.iter().any(|f| f.state == "Peer in Cluster (Disconnected)"))
                })
                .await?;
                self.stage.kubectl(&["delete", "node", &node]).await?;
                self.stage.wait_until_replaced(1, &uid).await?;
                self.wait_until_restored(&before).await
            })
            .await?;
        ensure!(self.stage.node_of(1).await? != node, "the pod is still on the lost node");
        self.stage.machines.boot(&node).await?;
        self.stage.machines.ready().await
    }

    async fn all_down(&self) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let nodes: Vec<String> = (0..6).map(|i| format!("node-{i}")).collect();
        for node in &nodes {
            self.stage.machines.kill(node).await?;
        }
        for node in &nodes {
            self.stage.machines.boot(node).await?;
        }
        self.stage.machines.ready().await?;
        self.wait_until_restored(&before).await
    }

    /// Splits the pool two and two, and checks that neither half removes a peer of the other.
    async fn split(&self) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let half = self.nodes_to_cut().await?;
        let half: Vec<&str> = half.iter().map(String::as_str).collect();
        self.stage.machines.cut(&half, Api::Reachable).await?;
        // Returns the peers that answered, and whether one of them lists a disconnected peer.
        let observe = async || -> Result<(BTreeSet<u32>, bool)> {
            let (mut answered, mut noticed) = (BTreeSet::new(), false);
            for ordinal in 0..REPLICAS {
                let Ok(peers) = self.stage.peers(ordinal).await else { continue };
                ensure!(peers.len() as u32 == REPLICAS - 1, "{} removed a peer: {peers:?}", pod(ordinal));
                noticed |= peers.iter().any(|f| f.state != CONNECTED);
                answered.insert(ordinal);
            }
            Ok((answered, noticed))
        };
        wait_until("a peer lists another as disconnected", TIMEOUT, async || Ok(observe().await?.1)).await?;
        let (end, mut answered) = (Instant::now() + Duration::from_secs(20), BTreeSet::new());
        while Instant::now() < end {
            answered.extend(observe().await?.0);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        ensure!(answered.len() as u32 == REPLICAS, "only {answered:?} answered `gluster peer status`");
        self.stage.machines.rejoin_all().await?;
        self.wait_until_restored(&before).await
    }

    /// Returns the nodes of one pod with a brick and of the pod without, if the other pods are not on these nodes: two
    /// of three replicas stay connected to the client.
    async fn nodes_to_cut(&self) -> Result<[String; 2]> {
        let mut nodes = Vec::new();
        for ordinal in 0..REPLICAS {
            nodes.push(self.stage.node_of(ordinal).await?);
        }
        let alone = |k: usize| (0..3).filter(|other| *other != k).all(|o| nodes[o] != nodes[k] && nodes[o] != nodes[3]);
        let brick =
            (0..3).find(|k| alone(*k)).with_context(|| format!("the pods cannot be split two and two: {nodes:?}"))?;
        Ok([nodes[brick].clone(), nodes[3].clone()])
    }

    async fn refused_scale_down(&self) -> Result<()> {
        let refused = self.stage.scale(2).await;
        let error = refused.err().context("the scale-down was not refused")?;
        let message = format!("{error:#}");
        ensure!(message.contains(VOLUME), "the refusal does not name the volume: {message}");
        self.stage.wait_until_healthy(REPLICAS, TIMEOUT).await
    }

    /// Without the policy the scale-down succeeds. The peer stays in the pool, an event reports it, and the pod comes
    /// back with the same UUID.
    async fn unguarded_scale_down(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let binding = self.stage.kubectl(&["get", "validatingadmissionpolicybinding", "-o", "name"]).await?;
        let binding = binding.lines().find(|line| line.contains(NAME)).context("no binding of the policy")?;
        self.stage.kubectl(&["delete", binding]).await?;
        client
            .check_files_while(async {
                // A deleted policy is enforced a little longer.
                let scaled = async || Ok(self.stage.scale(2).await.is_ok());
                wait_until("the scale-down is allowed", TIMEOUT, scaled).await?;
                let gone = async || Ok(self.stage.pod(2).await?.is_none());
                wait_until("the pod is gone", TIMEOUT, gone).await?;
                let reported = async || {
                    let events = self.stage.kubectl(&["get", "events", "-o", "json"]).await?;
                    Ok(events.contains("BricksKept"))
                };
                wait_until("an event reports that the peer is kept", TIMEOUT, reported).await?;
                let peers = self.stage.peers(0).await?;
                ensure!(peers.iter().any(|f| f.host == super::host(2)), "the peer was removed: {peers:?}");
                self.stage.scale(REPLICAS).await?;
                self.wait_until_restored(&before).await
            })
            .await?;
        self.stage.install(&["--replicas", "4"]).await
    }

    /// Writes a file while a brick is down and self-heal is off: then neither a drain nor an update may stop another
    /// brick.
    async fn pending_heal(&self, client: &mut Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let set = async |value: &str| {
            let set = ["gluster", "--mode=script", "volume", "set", VOLUME, "cluster.self-heal-daemon", value];
            self.stage.exec(0, &set).await
        };
        wait_until("self-heal is off", TIMEOUT, async || Ok(set("off").await.is_ok())).await?;
        let node = self.stage.node_of(1).await?;
        self.stage.machines.suspend(&node).await?;
        client.write_file().await?;
        self.stage.machines.resume(&node).await?;
        wait_until("all peers are connected again", TIMEOUT, async || {
            let (Ok(a), Ok(b)) = (self.stage.peers(0).await, self.stage.peers(1).await) else { return Ok(false) };
            Ok(a.iter().chain(&b).all(|f| f.state == CONNECTED))
        })
        .await?;
        let pending = "pods are not ready because of a pending heal, and the disruption budget has counted them";
        wait_until(pending, TIMEOUT, async || {
            let mut waits = false;
            for ordinal in 0..3 {
                let path = format!("/api/v1/namespaces/default/pods/{}:24080/proxy/pool", pod(ordinal));
                let unready = self.stage.pod(ordinal).await?.is_some_and(|found| !is_ready(&found));
                // A pod that does not answer yet is asked again.
                let status = self.stage.kubectl(&["get", "--raw", &path]).await;
                waits |= unready && status.is_ok_and(|status| status.contains("entries wait to be healed"));
            }
            // If a single pod is not ready, Kubernetes allows that this pod is evicted.
            let budget = self.stage.kubectl(&["get", "pdb", NAME, "-o", "json"]).await?;
            let budget: serde_json::Value = serde_json::from_str(&budget)?;
            let count = |field: &str| budget["status"][field].as_i64();
            Ok(waits && count("currentHealthy") < count("desiredHealthy"))
        })
        .await?;
        let evict = r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "glusterfs-0", "namespace": "default"}}"#;
        let path = "/api/v1/namespaces/default/pods/glusterfs-0/eviction";
        let refused = self.stage.kubectl_with(&["create", "--raw", path, "-f", "-"], evict).await;
        let message = format!("{:#}", refused.err().context("the eviction was allowed")?);
        ensure!(message.contains("disruption budget"), "refused for another reason: {message}");
        // An update begins with the last pod, which has no brick. A StatefulSet waits only for pods that it has already
        // updated, so it restarts one pod with a brick, and must stop there.
        let uids = self.stage.uids(0..3).await?;
        let last = self.stage.uid(3).await?;
        self.stage.kubectl(&["rollout", "restart", &format!("statefulset/{NAME}")]).await?;
        self.stage.wait_until_replaced(3, &last).await?;
        let end = Instant::now() + Duration::from_secs(15);
        while Instant::now() < end {
            let replaced = uids.difference(&self.stage.uids(0..3).await?).count();
            ensure!(replaced <= 1, "the update replaced {replaced} pods with bricks during a pending heal");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // glusterd refuses the command while a pod is being restarted.
        wait_until("self-heal is on", TIMEOUT, async || Ok(set("on").await.is_ok())).await?;
        // The self-heal daemon restarts with every pod, and looks for pending heals only every ten minutes.
        let heal = async {
            loop {
                let _ = self.stage.exec(0, &["gluster", "--mode=script", "volume", "heal", VOLUME]).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let set = format!("statefulset/{NAME}");
        let done = ["rollout", "status", &set, "--timeout=600s"];
        tokio::select! {
            done = self.stage.kubectl(&done) => done.map(drop)?,
            never = heal => never,
        }
        self.wait_until_restored(&before).await
    }
}

/// Deletes a pod and the claim with glusterd's state.
pub(super) async fn lose_state(stage: &PoolStage, ordinal: u32) -> Result<()> {
    let claim = format!("glusterd-{}", pod(ordinal));
    let uid = stage.uid(ordinal).await?;
    let get = ["get", "pvc", &claim, "-o", "jsonpath={.metadata.uid}", "--ignore-not-found"];
    let old = stage.kubectl(&get).await?;
    stage.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await?;
    stage.kubectl(&["delete", "pod", &pod(ordinal), "--wait=false"]).await?;
    stage.wait_until_replaced(ordinal, &uid).await?;
    wait_until("the claim is replaced", TIMEOUT, async || Ok(stage.kubectl(&get).await? != old)).await
}

/// Plays a pool with host network, as in the field report: it forms, scales, and keeps its UUIDs when pods are replaced
/// or lose their state.
pub async fn play_on_host_network(stage: &PoolStage) -> Result<()> {
    stage.install(&["--host-network"]).await?;
    stage.wait_until_healthy(3, TIMEOUT).await?;
    stage.scale(4).await?;
    stage.wait_until_healthy(4, TIMEOUT).await?;
    let before = stage.identities(4).await?;
    let uid = stage.uid(1).await?;
    stage.kubectl(&["delete", "pod", &pod(1), "--wait=false"]).await?;
    stage.wait_until_replaced(1, &uid).await?;
    stage.wait_until_healthy(4, TIMEOUT).await?;
    lose_state(stage, 2).await?;
    stage.wait_until_healthy(4, TIMEOUT).await?;
    let after = stage.identities(4).await?;
    ensure!(after == before, "the UUIDs changed from {before:?} to {after:?}");
    Ok(())
}
