//! Random recoveries on the real control plane. A node with pods that write to volumes is lost. People call `stead
//! recover` through an API server that is slow, stale or fails; they are killed after any write and call again, two at
//! a time; the machine comes back at any moment. A volume never has two writers, and at the end nothing is lost or
//! left behind.
//!
//! Every `--confirm-off` here is true: the machine is off at that moment. It may come back afterwards.

mod checks;
mod cluster;
mod draw;
mod lines;
mod machine;
mod person;
mod run;
mod scene;
mod story;

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use stead_machines::{Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options, User};

use crate::disturb::SeededRandom;
use cluster::Cluster;
use draw::Draw;
pub use run::Ended;
use run::Run;
use story::Story;

/// The labels that say in which zone a node is, and which it is.
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// The storage class of the disks.
const CLASS: &str = "disks";

/// A DaemonSet that tolerates everything.
const AGENT: &str = "agent";

/// The nodes of a lane: one is lost, two are there to take over.
const NODES: usize = 3;

/// The zone of a lane.
fn zone(lane: usize) -> String {
    format!("zone-{lane}")
}

/// A node of a lane.
fn node(lane: usize, index: usize) -> String {
    format!("n-{lane}-{index}")
}

/// A cluster with lanes, in each of which a run can be played while others are in theirs.
pub struct RecoveryStage {
    plane: ControlPlane,
    machines: Machines,
    stead: PathBuf,
    lanes: usize,
}

/// What a run was, and how it ended.
#[derive(Debug)]
pub struct Played {
    /// Its number, from 0.
    pub number: u32,
    /// What was drawn.
    pub drawn: String,
    /// How long it took.
    pub took: Duration,
    /// What was done, and when.
    pub story: String,
    /// What came of it.
    pub ended: Result<Ended>,
}

impl RecoveryStage {
    /// Starts a control plane with fast timers, and the nodes of so many lanes. With fewer than two a lost node would be
    /// one of few.
    pub async fn open(binaries: &Binaries, stead: &Path, lanes: usize) -> Result<RecoveryStage> {
        let user = |(name, token): (&str, &str)| User {
            name: name.into(),
            token: token.into(),
            groups: vec!["system:masters".into()],
        };
        let users = run::PEOPLE.map(user).to_vec();
        let plane =
            ControlPlane::start(binaries, Options { fast: true, egress: true, users, ..Options::default() }).await?;
        let spec = |lane: usize, index: usize| NodeSpec {
            name: node(lane, index),
            labels: [(ZONE.to_owned(), zone(lane))].into(),
            ..NodeSpec::default()
        };
        let nodes = (0..lanes).flat_map(|lane| (0..NODES).map(move |index| spec(lane, index))).collect();
        let driver = DriverSpec { name: "disk.test".into(), topology: Some(ZONE.into()), attach: true, disk: true };
        let cluster = ClusterSpec { nodes, drivers: vec![driver.clone()], ..ClusterSpec::default() };
        let machines = Machines::start(&plane, Setup { cluster, ..Setup::default() }).await?;
        machines.ready().await?;
        let stage = RecoveryStage { plane, machines, stead: stead.to_owned(), lanes };
        let class = json!({ "metadata": { "name": CLASS }, "provisioner": driver.name,
                            "volumeBindingMode": "WaitForFirstConsumer" });
        stage.cluster().make("/apis/storage.k8s.io/v1/storageclasses", &class).await?;
        let agent = json!({
            "metadata": { "name": AGENT },
            "spec": {
                "selector": { "matchLabels": { "app": AGENT } },
                "template": { "metadata": { "labels": { "app": AGENT } }, "spec": {
                    "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": AGENT, "image": "sleeper" }] } },
            },
        });
        stage.cluster().make("/apis/apps/v1/namespaces/default/daemonsets", &agent).await?;
        // As many nodes at once as there are lanes: how many there may be is another test's.
        let policy = format!("atOnce: {lanes}\natOncePerZone: {lanes}\n");
        std::fs::write(stage.policy(true), &policy).context("writing a policy")?;
        let policy = format!("{policy}detachRevokes: [{}]\n", driver.name);
        std::fs::write(stage.policy(false), policy).context("writing a policy")?;
        Ok(stage)
    }

    fn cluster(&self) -> Cluster {
        Cluster(self.plane.client())
    }

    /// The policy file: for storage that goes on serving a machine, or for storage that does not.
    fn policy(&self, loose: bool) -> PathBuf {
        self.plane.folder().join(if loose { "policy-loose.yaml" } else { "policy.yaml" })
    }

    /// Plays the runs of these numbers, as many at a time as there are lanes; `say` hears of each when it is over.
    pub async fn play(&self, numbers: Range<u32>, seed: u64, say: &mut impl FnMut(Played)) {
        let (numbers, say) = (RefCell::new(numbers), RefCell::new(say));
        let lane = async |lane| {
            loop {
                let number = numbers.borrow_mut().next();
                let Some(number) = number else { return };
                let played = self.one(lane, number, seed).await;
                (say.borrow_mut())(played);
            }
        };
        futures::future::join_all((0..self.lanes).map(lane)).await;
    }

    /// One run.
    async fn one(&self, lane: usize, number: u32, seed: u64) -> Played {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(number.into());
        let draw = Draw::new(&mut SeededRandom(seed), number);
        let (began, story) = (Instant::now(), Story::default());
        let ended = async {
            let run = Run::new(self, lane, number, &draw, &story, seed).await?;
            let ended = run.play().await;
            run.tell_all().await;
            if ended.is_err() {
                // The next run in this lane has a machine that is well.
                run.give_up().await;
            }
            ended
        };
        let ended = ended.await;
        Played { number, drawn: draw.to_string(), took: began.elapsed(), story: story.to_string(), ended }
    }
}
