//! Random recoveries on the real control plane. A node with pods that write to volumes fails. People run `stead
//! recover` through an API server that is slow, stale or failing. Their processes are killed after any write and
//! started again, two at a time, and the machine comes back at any moment. A volume must never have two writers, and at
//! the end nothing may be lost or left behind.
//!
//! Every `--confirm-off` is true when it is given: the machine is off. It may come back afterwards.

mod checks;
mod cluster;
mod machine;
mod person;
mod run;
mod run_log;
mod run_spec;
mod workloads;
mod writer_lines;

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
use run::Run;
pub use run::RunResult;
use run_log::RunLog;
use run_spec::RunSpec;

/// The node labels of the zone and of the host name.
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// The storage class of the disks.
const CLASS: &str = "disks";

/// The name of a DaemonSet that tolerates all taints.
const AGENT: &str = "agent";

/// The number of nodes in a lane: one fails, two can run the replacement pods.
const NODES_PER_LANE: usize = 3;

/// Returns the zone of a lane.
fn zone(lane: usize) -> String {
    format!("zone-{lane}")
}

/// Returns the name of a node of a lane.
fn node(lane: usize, index: usize) -> String {
    format!("n-{lane}-{index}")
}

/// A cluster with lanes. In each lane one run can be played at a time.
pub struct RecoveryStage {
    plane: ControlPlane,
    machines: Machines,
    stead: PathBuf,
    lanes: usize,
}

/// A run that was played.
#[derive(Debug)]
pub struct PlayedRun {
    /// The number of the run, from 0.
    pub number: u32,
    /// A description of the run.
    pub spec: String,
    /// The duration of the run.
    pub duration: Duration,
    /// What was done, with times.
    pub log: String,
    /// The result, or why the run failed.
    pub result: Result<RunResult>,
}

impl RecoveryStage {
    /// Starts a control plane with fast timers, and the nodes of `lanes` lanes. There should be at least two: with
    /// fewer nodes, one failed node is a large part of the cluster.
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
        let nodes = (0..lanes).flat_map(|lane| (0..NODES_PER_LANE).map(move |index| spec(lane, index))).collect();
        let driver = DriverSpec { name: "disk.test".into(), topology: Some(ZONE.into()), attach: true, disk: true };
        let cluster = ClusterSpec { nodes, drivers: vec![driver.clone()], ..ClusterSpec::default() };
        let machines = Machines::start(&plane, Setup { cluster, ..Setup::default() }).await?;
        machines.ready().await?;
        let stage = RecoveryStage { plane, machines, stead: stead.to_owned(), lanes };
        let class = json!({ "metadata": { "name": CLASS }, "provisioner": driver.name,
                            "volumeBindingMode": "WaitForFirstConsumer" });
        stage.cluster().create("/apis/storage.k8s.io/v1/storageclasses", &class).await?;
        let agent = json!({
            "metadata": { "name": AGENT },
            "spec": {
                "selector": { "matchLabels": { "app": AGENT } },
                "template": { "metadata": { "labels": { "app": AGENT } }, "spec": {
                    "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": AGENT, "image": "sleeper" }] } },
            },
        });
        stage.cluster().create("/apis/apps/v1/namespaces/default/daemonsets", &agent).await?;
        // Allow a recovery in each lane at the same time; other tests cover these limits.
        let policy = format!("atOnce: {lanes}\natOncePerZone: {lanes}\n");
        std::fs::write(stage.policy(true), &policy).context("writing a policy")?;
        let policy = format!("{policy}detachRevokes: [{}]\n", driver.name);
        std::fs::write(stage.policy(false), policy).context("writing a policy")?;
        Ok(stage)
    }

    fn cluster(&self) -> Cluster {
        Cluster(self.plane.client())
    }

    /// Returns the policy file, for storage whose detach does not revoke the access of a machine, or for storage whose
    /// detach does.
    fn policy(&self, detach_does_not_revoke: bool) -> PathBuf {
        self.plane.folder().join(if detach_does_not_revoke { "policy-loose.yaml" } else { "policy.yaml" })
    }

    /// Plays the runs with these numbers, one per lane at a time. Calls `say` with each run when it is over.
    pub async fn play(&self, numbers: Range<u32>, seed: u64, say: &mut impl FnMut(PlayedRun)) {
        let (numbers, say) = (RefCell::new(numbers), RefCell::new(say));
        let lane = async |lane| {
            loop {
                let number = numbers.borrow_mut().next();
                let Some(number) = number else { return };
                let played = self.play_one(lane, number, seed).await;
                (say.borrow_mut())(played);
            }
        };
        futures::future::join_all((0..self.lanes).map(lane)).await;
    }

    async fn play_one(&self, lane: usize, number: u32, seed: u64) -> PlayedRun {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(number.into());
        let spec = RunSpec::draw(&mut SeededRandom(seed), number);
        let (began, log) = (Instant::now(), RunLog::default());
        let result = async {
            let run = Run::new(self, lane, number, &spec, &log, seed).await?;
            let result = run.play().await;
            run.log_details().await;
            if result.is_err() {
                // The next run in this lane needs a healthy machine.
                run.clean_up_after_failure().await;
            }
            result
        };
        let result = result.await;
        PlayedRun { number, spec: spec.to_string(), duration: began.elapsed(), log: log.to_string(), result }
    }
}
