//! What happens to a pool, scene by scene, with a replicated volume mounted and a file written before each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use stead_machines::Api;

use super::files::VOLUME;
use super::friends::WELL;
use super::{Client, NAME, PATIENCE, PoolStage, is_ready, pod};
use crate::until;

/// Plays the scenes; `say` hears of each.
pub async fn play(stage: &PoolStage, say: &mut (impl FnMut(&str) + Send)) -> Result<()> {
    let mut scenes = Scenes { stage, say, began: Instant::now() };
    scenes.form().await?;
    let mut client = Client::mount(stage).await.context("a volume for the scenes")?;
    for (name, scene) in SCENES {
        client.connected().await?;
        scenes.tell(name);
        client.writes().await?;
        scenes.play(scene, &mut client).await.context(name)?;
        client.connected().await.with_context(|| format!("after: {name}"))?;
        client.reads().await.with_context(|| format!("after: {name}"))?;
    }
    scenes.tell("done");
    Ok(())
}

#[derive(Clone, Copy)]
enum Scene {
    Scale(u32),
    Deleted,
    Lost,
    Rejected,
    Checksum,
    NodeLost,
    AllDown,
    Halves,
    Bricks,
    Unguarded,
    Heal,
}

/// The scenes, in their order. From the fourth on there are four pods.
const SCENES: [(&str, Scene); 13] = [
    ("scale to 5", Scene::Scale(5)),
    ("scale to 3", Scene::Scale(3)),
    ("scale to 4", Scene::Scale(4)),
    ("a pod is deleted, and comes back with a new address", Scene::Deleted),
    ("a pod is deleted and its state is lost", Scene::Lost),
    ("a rejection made the old way, and cured", Scene::Rejected),
    ("a rejection by checksum, and cured", Scene::Checksum),
    ("a node is lost, and its pod moves", Scene::NodeLost),
    ("all nodes are down, and up again", Scene::AllDown),
    ("the pool is cut in halves", Scene::Halves),
    ("a scale-down that would strand bricks is refused", Scene::Bricks),
    ("a scale-down with bricks where the policy is not installed", Scene::Unguarded),
    ("a heal that is pending blocks the next restart", Scene::Heal),
];

const REPLICAS: u32 = 4;

struct Scenes<'a, S> {
    stage: &'a PoolStage,
    say: S,
    began: Instant,
}

impl<S: FnMut(&str)> Scenes<'_, S> {
    fn tell(&mut self, what: &str) {
        (self.say)(&format!("{:>5.0} s  {what}", self.began.elapsed().as_secs_f64()));
    }

    async fn form(&mut self) -> Result<()> {
        self.tell("three peers form");
        self.stage.install(&[]).await?;
        self.stage.whole(3, PATIENCE).await
    }

    async fn play(&mut self, scene: Scene, client: &mut Client<'_>) -> Result<()> {
        match scene {
            Scene::Scale(replicas) => self.scale(replicas, client).await,
            Scene::Deleted => self.deleted(client).await,
            Scene::Lost => self.lost(client).await,
            Scene::Rejected => self.rejected(client).await,
            Scene::Checksum => self.checksum(client).await,
            Scene::NodeLost => self.node_lost(client).await,
            Scene::AllDown => self.all_down().await,
            Scene::Halves => client.reads_while(self.halves()).await,
            Scene::Bricks => self.bricks().await,
            Scene::Unguarded => self.unguarded(client).await,
            Scene::Heal => self.heal(client).await,
        }
    }

    async fn scale(&self, replicas: u32, client: &Client<'_>) -> Result<()> {
        client
            .reads_while(async {
                self.stage.scale(replicas).await?;
                until("the pods that are not wanted are gone", PATIENCE, async || {
                    Ok(self.stage.pod(replicas).await?.is_none())
                })
                .await?;
                self.stage.whole(replicas, PATIENCE).await
            })
            .await
    }

    /// The pool as it was, with the same identities.
    async fn as_before(&self, before: &std::collections::BTreeMap<u32, String>) -> Result<()> {
        self.stage.whole(REPLICAS, PATIENCE).await?;
        let after = self.stage.identities(REPLICAS).await?;
        ensure!(after == *before, "other identities: {after:?}, not {before:?}");
        Ok(())
    }

    async fn deleted(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let address = self.stage.machines.pod_address(super::NAMESPACE, &pod(1))?;
        client
            .reads_while(async {
                let uid = self.stage.uid(1).await?;
                self.stage.kubectl(&["delete", "pod", &pod(1), "--wait=false"]).await?;
                self.stage.replaced(1, &uid).await?;
                self.as_before(&before).await
            })
            .await?;
        let now = self.stage.machines.pod_address(super::NAMESPACE, &pod(1))?;
        ensure!(now != address, "the address is the same: {now}");
        Ok(())
    }

    /// The claim goes with the pod; nobody sees a rejection on the way back.
    async fn lost(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        client
            .reads_while(async {
                self.lose_state(1).await?;
                let back = self.as_before(&before);
                let mut back = std::pin::pin!(back);
                loop {
                    tokio::select! {
                        done = &mut back => return done,
                        rejected = self.rejection(1) => ensure!(!rejected, "a rejection was seen"),
                    }
                }
            })
            .await
    }

    /// Deletes a pod with its claim for glusterd's state.
    async fn lose_state(&self, ordinal: u32) -> Result<()> {
        lose_state(self.stage, ordinal).await
    }

    /// Whether one of the others sees this one as rejected.
    async fn rejection(&self, ordinal: u32) -> bool {
        // It may be over soon: all are asked at once.
        let others = (0..REPLICAS).filter(|other| *other != ordinal).map(|other| self.stage.friends(other));
        // Who does not answer has seen nothing.
        let friends = join_all(others).await.into_iter().flatten().flatten();
        let (host, state) = (super::host(ordinal), "Peer Rejected");
        friends.into_iter().any(|f| f.host == host && f.state.starts_with(state))
    }

    /// glusterd dies, and what starts in its place finds an empty state: it makes itself a new identity.
    async fn rejected(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        // The agent starts another one: only what ended before the loss has not seen what was there.
        let wipe = "while find /var/lib/glusterd -mindepth 1 -maxdepth 1 -exec rm -rf {} +; pkill -9 -x glusterd; \
                    do sleep 0.05; done";
        client
            .reads_while(async {
                self.stage.inside(1, &["sh", "-c", wipe]).await?;
                let seen = "the others see a rejection";
                until(seen, PATIENCE, async || Ok(self.rejection(1).await)).await?;
                self.as_before(&before).await
            })
            .await
    }

    /// The same version of a volume's definition with another checksum: glusterd rejects that.
    async fn checksum(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        // As above: what is spoiled is spoiled again as long as anybody lived who may have written it.
        let spoil = format!(
            "cd /var/lib/glusterd/vols/{VOLUME}; while sed -i 's/^network.ping-timeout=.*/network.ping-timeout=4/' info; \
             sed -i 's/^info=.*/info=1/' cksum; pkill -x glusterd; do sleep 0.05; done"
        );
        client
            .reads_while(async {
                self.stage.inside(1, &["sh", "-c", &spoil]).await?;
                let seen = "the others see a rejection";
                until(seen, PATIENCE, async || Ok(self.rejection(1).await)).await?;
                self.as_before(&before).await
            })
            .await
    }

    /// As in the report: the machine goes, and its Node object with it.
    async fn node_lost(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let node = self.stage.node_of(1).await?;
        let uid = self.stage.uid(1).await?;
        client
            .reads_while(async {
                self.stage.machines.kill(&node).await?;
                let disconnected = "the others see it disconnected";
                until(disconnected, PATIENCE, async || {
                    let Ok(friends) = self.stage.friends(0).await else { return Ok(false) };
                    ensure!(friends.len() as u32 == REPLICAS - 1, "somebody was removed: {friends:?}");
                    Ok(friends.iter().any(|f| f.state == "Peer in Cluster (Disconnected)"))
                })
                .await?;
                self.stage.kubectl(&["delete", "node", &node]).await?;
                self.stage.replaced(1, &uid).await?;
                self.as_before(&before).await
            })
            .await?;
        ensure!(self.stage.node_of(1).await? != node, "the pod is on the lost node");
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
        self.as_before(&before).await
    }

    /// Two and two: none of the halves removes anybody of the other, as long as it lasts.
    async fn halves(&self) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let half = self.half().await?;
        let half: Vec<&str> = half.iter().map(String::as_str).collect();
        self.stage.machines.cut(&half, Api::Reachable).await?;
        // Those that answered, and whether any of them has noticed.
        let cut = async || -> Result<(BTreeSet<u32>, bool)> {
            let (mut answered, mut noticed) = (BTreeSet::new(), false);
            for ordinal in 0..REPLICAS {
                let Ok(friends) = self.stage.friends(ordinal).await else { continue };
                ensure!(friends.len() as u32 == REPLICAS - 1, "{} removed somebody: {friends:?}", pod(ordinal));
                noticed |= friends.iter().any(|f| f.state != WELL);
                answered.insert(ordinal);
            }
            Ok((answered, noticed))
        };
        until("the halves notice", PATIENCE, async || Ok(cut().await?.1)).await?;
        let (end, mut answered) = (Instant::now() + Duration::from_secs(20), BTreeSet::new());
        while Instant::now() < end {
            answered.extend(cut().await?.0);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        ensure!(answered.len() as u32 == REPLICAS, "only {answered:?} have said how they see the others");
        self.stage.machines.mend().await?;
        self.as_before(&before).await
    }

    /// The nodes of one pod with a brick and of the one without, on which none of the others is: two of three replicas
    /// stay on the client's side.
    async fn half(&self) -> Result<[String; 2]> {
        let mut nodes = Vec::new();
        for ordinal in 0..REPLICAS {
            nodes.push(self.stage.node_of(ordinal).await?);
        }
        let alone = |k: usize| (0..3).filter(|other| *other != k).all(|o| nodes[o] != nodes[k] && nodes[o] != nodes[3]);
        let brick = (0..3).find(|k| alone(*k)).with_context(|| format!("no two and two among {nodes:?}"))?;
        Ok([nodes[brick].clone(), nodes[3].clone()])
    }

    async fn bricks(&self) -> Result<()> {
        let refused = self.stage.scale(2).await;
        let error = refused.err().context("the scale-down was not refused")?;
        let words = format!("{error:#}");
        ensure!(words.contains(VOLUME), "the volume is not named: {words}");
        self.stage.whole(REPLICAS, PATIENCE).await
    }

    /// Nobody refuses: the peer is kept, an event says so, and the pod comes back as itself.
    async fn unguarded(&self, client: &Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let binding = self.stage.kubectl(&["get", "validatingadmissionpolicybinding", "-o", "name"]).await?;
        let binding = binding.lines().find(|line| line.contains(NAME)).context("no binding of the policy")?;
        self.stage.kubectl(&["delete", binding]).await?;
        client
            .reads_while(async {
                // A policy that is gone is enforced a little longer.
                let scaled = async || Ok(self.stage.scale(2).await.is_ok());
                until("the scale-down is let through", PATIENCE, scaled).await?;
                let gone = async || Ok(self.stage.pod(2).await?.is_none());
                until("the pod is gone", PATIENCE, gone).await?;
                let told = async || {
                    let events = self.stage.kubectl(&["get", "events", "-o", "json"]).await?;
                    Ok(events.contains("BricksKept"))
                };
                until("an event says that the peer is kept", PATIENCE, told).await?;
                let friends = self.stage.friends(0).await?;
                ensure!(friends.iter().any(|f| f.host == super::host(2)), "the peer is not kept: {friends:?}");
                self.stage.scale(REPLICAS).await?;
                self.as_before(&before).await
            })
            .await?;
        self.stage.install(&["--replicas", "4"]).await
    }

    /// A brick was away while a file was written, and nobody heals: neither a drain nor an update takes another one.
    async fn heal(&self, client: &mut Client<'_>) -> Result<()> {
        let before = self.stage.identities(REPLICAS).await?;
        let set = async |value: &str| {
            let set = ["gluster", "--mode=script", "volume", "set", VOLUME, "cluster.self-heal-daemon", value];
            self.stage.inside(0, &set).await
        };
        until("nobody heals", PATIENCE, async || Ok(set("off").await.is_ok())).await?;
        let node = self.stage.node_of(1).await?;
        self.stage.machines.silence(&node).await?;
        client.writes().await?;
        self.stage.machines.resume(&node).await?;
        until("all are connected again", PATIENCE, async || {
            let (Ok(a), Ok(b)) = (self.stage.friends(0).await, self.stage.friends(1).await) else { return Ok(false) };
            Ok(a.iter().chain(&b).all(|f| f.state == WELL))
        })
        .await?;
        let pending = "pods are not ready because something waits to be healed, and the budget has seen it";
        until(pending, PATIENCE, async || {
            let mut waits = false;
            for ordinal in 0..3 {
                let path = format!("/api/v1/namespaces/default/pods/{}:24080/proxy/pool", pod(ordinal));
                let unready = self.stage.pod(ordinal).await?.is_some_and(|found| !is_ready(&found));
                // One that does not answer yet is asked again.
                let says = self.stage.kubectl(&["get", "--raw", &path]).await;
                waits |= unready && says.is_ok_and(|says| says.contains("entries wait to be healed"));
            }
            // While a single pod is not ready, Kubernetes lets that very one be evicted.
            let budget = self.stage.kubectl(&["get", "pdb", NAME, "-o", "json"]).await?;
            let budget: serde_json::Value = serde_json::from_str(&budget)?;
            let count = |field: &str| budget["status"][field].as_i64();
            Ok(waits && count("currentHealthy") < count("desiredHealthy"))
        })
        .await?;
        let evict = r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "glusterfs-0", "namespace": "default"}}"#;
        let path = "/api/v1/namespaces/default/pods/glusterfs-0/eviction";
        let refused = self.stage.kubectl_with(&["create", "--raw", path, "-f", "-"], evict).await;
        let words = format!("{:#}", refused.err().context("the eviction was let through")?);
        ensure!(words.contains("disruption budget"), "refused for something else: {words}");
        // An update begins with the last pod, which holds no brick. A StatefulSet asks only those that it has updated whether
        // they are ready, so that it takes one that does, and has to stop there.
        let uids = self.stage.uids(0..3).await?;
        let last = self.stage.uid(3).await?;
        self.stage.kubectl(&["rollout", "restart", &format!("statefulset/{NAME}")]).await?;
        self.stage.replaced(3, &last).await?;
        let end = Instant::now() + Duration::from_secs(15);
        while Instant::now() < end {
            let went = uids.difference(&self.stage.uids(0..3).await?).count();
            ensure!(went <= 1, "the update took {went} pods with bricks while something waited to be healed");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // One that is restarted in this moment makes glusterd refuse it.
        until("somebody heals", PATIENCE, async || Ok(set("on").await.is_ok())).await?;
        // The daemon that heals starts anew with every pod, and looks by itself only every ten minutes.
        let heals = async {
            loop {
                let _ = self.stage.inside(0, &["gluster", "--mode=script", "volume", "heal", VOLUME]).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let set = format!("statefulset/{NAME}");
        let done = ["rollout", "status", &set, "--timeout=600s"];
        tokio::select! {
            done = self.stage.kubectl(&done) => done.map(drop)?,
            never = heals => never,
        }
        self.as_before(&before).await
    }
}

/// Deletes a pod with its claim for glusterd's state.
pub(super) async fn lose_state(stage: &PoolStage, ordinal: u32) -> Result<()> {
    let claim = format!("glusterd-{}", pod(ordinal));
    let uid = stage.uid(ordinal).await?;
    let get = ["get", "pvc", &claim, "-o", "jsonpath={.metadata.uid}", "--ignore-not-found"];
    let old = stage.kubectl(&get).await?;
    stage.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await?;
    stage.kubectl(&["delete", "pod", &pod(ordinal), "--wait=false"]).await?;
    stage.replaced(ordinal, &uid).await?;
    until("the claim is another one", PATIENCE, async || Ok(stage.kubectl(&get).await? != old)).await
}

/// The report's own way: pods on their nodes' network. They form, scale, and come back as themselves.
pub async fn on_the_nodes_network(stage: &PoolStage) -> Result<()> {
    stage.install(&["--host-network"]).await?;
    stage.whole(3, PATIENCE).await?;
    stage.scale(4).await?;
    stage.whole(4, PATIENCE).await?;
    let before = stage.identities(4).await?;
    let uid = stage.uid(1).await?;
    stage.kubectl(&["delete", "pod", &pod(1), "--wait=false"]).await?;
    stage.replaced(1, &uid).await?;
    stage.whole(4, PATIENCE).await?;
    lose_state(stage, 2).await?;
    stage.whole(4, PATIENCE).await?;
    let after = stage.identities(4).await?;
    ensure!(after == before, "other identities: {after:?}, not {before:?}");
    Ok(())
}
