//! Plays a situation on the real control plane, and records what happens.

mod assemble;
mod perform;
mod pod_gc;
mod validity;
pub(crate) mod watch;

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use stead_testbed::{Binaries, ControlPlane, JobEnd, Nodes, Options};
use tokio::time::{Instant, sleep, timeout};

use crate::recording::{Recording, key_of};
use crate::situation::{NAMESPACE, Situation};
use perform::{Done, Performer};
use validity::Punctuality;
use watch::Watches;

/// How long to wait until nothing happens any more before the actions begin.
const SETTLE_LIMIT: Duration = Duration::from_secs(25);

/// How long nothing has to happen until the cluster counts as settled.
const SETTLED: Duration = Duration::from_secs(3);

/// A run on the real control plane.
#[derive(Debug)]
pub enum Played {
    /// What was recorded.
    Recorded(Box<Recording>),
    /// Why it says nothing.
    Invalid(String),
}

/// Plays a situation on a control plane of its own.
pub async fn record(binaries: &Binaries, situation: &Situation) -> Result<Played> {
    let options = Options { fast: !situation.timers.real, ..Options::default() };
    let plane = ControlPlane::start(binaries, options).await?;
    let log = if situation.timers.real { "kube-controller-manager.log" } else { "kcm-fast.log" };
    let collected = pod_gc::last_run(&plane.folder().join(log), Timestamp::now());
    let mut cluster = situation.cluster.clone();
    if situation.timers.real {
        cluster.heartbeat_seconds = 10.0;
    }
    let nodes = Nodes::start(&plane, cluster.clone()).await?;
    nodes.end_jobs(if situation.jobs_fail { JobEnd::Fail } else { JobEnd::Succeed });
    nodes.ready().await?;
    let watches = Watches::start(&plane.client(), &watch::PATHS).await?;
    set_up(&plane, situation).await?;
    settle(&watches).await;
    let punctuality = Punctuality::start();
    let began = Timestamp::now();
    let done = play(&plane, &nodes, &watches, situation).await?;
    let end = Timestamp::now();
    let log = watches.log();
    if let Some(problem) = log.failure.clone().or_else(|| punctuality.problem()) {
        return Ok(Played::Invalid(problem));
    }
    let outages = perform::outages(&done);
    if let Some(problem) = validity::late_heartbeat(&log.seen, &outages, cluster.heartbeat_seconds, end) {
        return Ok(Played::Invalid(problem));
    }
    let run = assemble::Run { situation, cluster, began, end, done: &done, pod_gc_run: collected.ok() };
    Ok(Played::Recorded(Box::new(assemble::recording(&run, &log.seen))))
}

/// Creates the objects of the situation.
async fn set_up(plane: &ControlPlane, situation: &Situation) -> Result<()> {
    create(plane, situation.base_objects()).await?;
    // Pods can be created only when there is a service account.
    let end = Instant::now() + Duration::from_secs(60);
    while plane.kubectl(&["-n", NAMESPACE, "get", "serviceaccount", "default"]).await?.code != Some(0) {
        anyhow::ensure!(Instant::now() < end, "namespace {NAMESPACE} has no service account");
        sleep(Duration::from_millis(200)).await;
    }
    create(plane, situation.objects()).await
}

async fn create(plane: &ControlPlane, objects: Vec<Value>) -> Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let created = plane.kubectl_with(&["create", "-f", "-"], &list.to_string()).await?;
    created.ok().map(drop).context("creating the objects of a situation")
}

/// Waits until nothing changes any more, for a limited time: there are workloads that never rest.
async fn settle(watches: &Watches) {
    let settled = async {
        loop {
            let before = watches.log().seen.iter().filter(|seen| seen.object["kind"] != "Lease").count();
            sleep(SETTLED).await;
            if before == watches.log().seen.iter().filter(|seen| seen.object["kind"] != "Lease").count() {
                return;
            }
        }
    };
    let _ = timeout(SETTLE_LIMIT, settled).await;
}

/// Does everything that the situation asks for, and waits until it ends.
async fn play(plane: &ControlPlane, nodes: &Nodes, watches: &Watches, situation: &Situation) -> Result<Vec<Done>> {
    let start = Instant::now();
    let until = start + Duration::from_millis(situation.ends_at);
    let performer = Performer::new(plane, nodes, watches, until);
    let actions = situation.actions.iter().map(|action| {
        let performer = &performer;
        async move {
            tokio::time::sleep_until(start + Duration::from_millis(action.at)).await;
            performer.perform(action).await
        }
    });
    futures::future::try_join_all(actions).await?;
    tokio::time::sleep_until(until).await;
    Ok(performer.into_done())
}

/// The pods of a workload, in the order of their names.
fn pods<'a>(objects: impl Iterator<Item = &'a Value>, workload: &str) -> Vec<&'a Value> {
    let mut pods: Vec<&Value> =
        objects.filter(|object| object["kind"] == "Pod" && object["metadata"]["labels"]["app"] == workload).collect();
    pods.sort_by_key(|pod| key_of(pod));
    pods
}
