//! What has to hold after a run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_machines::{Interval, Violation};
use stead_testbed::Written;

use super::draw::MachineAction;
use super::lines;
use super::run::Run;
use super::scene::FOREIGN;

/// The taint of a recovery.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A node that is back has told so after this time: nobody may take it for silent then.
const TOLD: SignedDuration = SignedDuration::from_secs(5);

/// Whether a write has put the taint there.
pub(super) fn puts_taint(write: &Written) -> bool {
    let mut taints = write.body["spec"]["taints"].as_array().into_iter().flatten();
    let over = write.body["metadata"]["annotations"]["stead.dev/recovery"]
        .as_str()
        .is_none_or(|mark| mark.contains("\"over\""));
    write.was_made() && write.path.starts_with("/api/v1/nodes/") && !over && taints.any(|t| t["key"] == OUT_OF_SERVICE)
}

/// All of it. Gives how often a disk was taken from a process that ran again by then.
pub(super) async fn all(run: &Run<'_>, before: &[String], meanwhile: &[String]) -> Result<u64> {
    let taken = witness(run)?;
    evidence(run)?;
    scope(run)?;
    files(run, before, meanwhile).await?;
    one_writer_each(run).await?;
    node(run).await?;
    neighbours(run).await?;
    Ok(taken)
}

/// Never two that could write. A disk is taken from under a process that runs only where its machine had been put out of
/// service for good reason and has come back since: then the storage keeps it from writing.
fn witness(run: &Run<'_>) -> Result<u64> {
    let ours = |interval: &Interval| interval.pod.starts_with(&format!("{}/", run.scene.namespace));
    let first = run.written().iter().find(|write| puts_taint(write)).map(|write| write.at);
    let mut taken = 0;
    for violation in run.stage.machines.violations() {
        match violation {
            Violation::TwoWriters(two) if two.iter().any(ours) => bail!("two writers: {two:#?}"),
            Violation::EarlyDetach(one) if ours(&one) => {
                let end = one.to.map(|(end, _)| end.wall);
                ensure!(first.is_some() && first < end, "a disk was taken from one who wrote: {one:#?}");
                ensure!(is_condemned(run, &one.uid), "a disk was taken from one that was left alone: {one:#?}");
                taken += 1;
            }
            _ => {}
        }
    }
    Ok(taken)
}

/// The taint was put there only where somebody had said truly that the machine is off, and nothing was heard of it since.
fn evidence(run: &Run<'_>) -> Result<()> {
    let confirmed = run.confirmed();
    let heard_within = |from: Timestamp, to: Timestamp| {
        let mut at = from;
        while at + TOLD < to {
            if run.machine.was_heard(at, at + TOLD) {
                return true;
            }
            at += SignedDuration::from_millis(100);
        }
        false
    };
    for write in run.written().iter().filter(|write| puts_taint(write)) {
        let good = confirmed.iter().any(|said| *said < write.at && !heard_within(*said, write.at));
        ensure!(good, "the taint was put there at {} without good reason: confirmed at {confirmed:?}", write.at);
    }
    Ok(())
}

/// Nothing was written that the plan does not name, and nothing at all where nobody had said that the machine is off.
fn scope(run: &Run<'_>) -> Result<()> {
    let (written, node) = (run.written(), &run.machine.name);
    let made: Vec<&Written> = written.iter().filter(|write| write.was_made()).collect();
    ensure!(!run.confirmed().is_empty() || made.is_empty(), "written without any evidence: {made:#?}");
    let records: Vec<&Value> = made.iter().filter(|w| w.path.contains("/noderecoveries")).map(|w| &w.body).collect();
    let listed = |list: &str, field: &dyn Fn(&Value) -> Option<String>| -> BTreeSet<String> {
        let entries = records.iter().flat_map(|r| r["spec"]["plan"][list].as_array().into_iter().flatten());
        entries.filter_map(field).collect()
    };
    let name = |pod: &Value| Some(format!("{}/pods/{}", pod["namespace"].as_str()?, pod["name"].as_str()?));
    let condemned = listed("pods", &|pod| Some(format!("{} {}", name(pod)?, pod["uid"].as_str()?)));
    let shielded = listed("leftAlone", &|left| name(&left["shield"]));
    for write in made {
        let (method, path) = (write.method.as_str(), write.path.as_str());
        let pod = path.strip_prefix("/api/v1/namespaces/").unwrap_or_default();
        let uid = write.body["preconditions"]["uid"].as_str().unwrap_or_default();
        let named = match method {
            _ if path.ends_with("/customresourcedefinitions/noderecoveries.stead.dev") => true,
            "POST" => path.ends_with("/noderecoveries"),
            "PUT" => path.contains(&format!("/noderecoveries/{node}-")),
            "PATCH" => path == format!("/api/v1/nodes/{node}") || shielded.contains(pod),
            "DELETE" => condemned.contains(&format!("{pod} {uid}")),
            _ => false,
        };
        ensure!(named, "the plan does not name this: {write:?}");
    }
    Ok(())
}

/// What was written is there, in its order, and the last one goes on.
async fn files(run: &Run<'_>, before: &[String], meanwhile: &[String]) -> Result<()> {
    for (index, writer) in run.scene.writers.iter().enumerate() {
        let text = run.scene.lines(writer)?;
        for earlier in [&before[index], &meanwhile[index]] {
            ensure!(text.starts_with(earlier.as_str()), "{}: what was written before is not there", writer.app);
        }
        let end = Instant::now() + Duration::from_secs(60);
        let mut now = text.clone();
        while now.len() == text.len() {
            ensure!(Instant::now() < end, "{}: nobody writes", writer.app);
            tokio::time::sleep(Duration::from_millis(100)).await;
            now = run.scene.lines(writer)?;
        }
        lines::check(&now).map_err(|e| e.context(format!("{}: what was written", writer.app)))?;
    }
    Ok(())
}

/// One pod of each can write in the end, and it is the one that is ready. Its predecessor may take a moment to be gone.
async fn one_writer_each(run: &Run<'_>) -> Result<()> {
    for writer in &run.scene.writers {
        let volume = run.scene.volume(writer)?;
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut all = run.stage.machines.witness();
            all.retain(|interval| interval.volume == volume && interval.to.is_none());
            let pods = run.scene.pods_of(writer).await?;
            let uids: Vec<&str> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
            let open: Vec<&str> = all.iter().map(|interval| interval.uid.as_str()).collect();
            if open == uids && open.len() == 1 {
                break;
            }
            ensure!(Instant::now() < end, "{}: {open:?} can write, and {uids:?} is there", writer.app);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Nothing of it is left on the node, and what is somebody else's is as it was.
async fn node(run: &Run<'_>) -> Result<()> {
    let taints = run.scene.cluster.taints(&run.machine.name).await?;
    ensure!(!taints.iter().any(|t| t["key"] == OUT_OF_SERVICE), "the taint is still there: {taints:?}");
    let foreign =
        taints.iter().any(|t| t["key"] == FOREIGN && t["value"] == "by-others" && t["effect"] == "NoSchedule");
    ensure!(foreign == run.draw.foreign, "somebody else's taint: {taints:?}");
    Ok(())
}

/// Whether a plan that was written down has the pod go.
fn is_condemned(run: &Run<'_>, uid: &str) -> bool {
    let written = run.written();
    let mut plans = written.iter().filter(|write| write.was_made() && write.path.contains("/noderecoveries"));
    plans.any(|write| write.body["spec"]["plan"]["pods"].as_array().is_some_and(|p| p.iter().any(|p| p["uid"] == uid)))
}

/// Those that are none of its business are as they were, and so is the one that was kept from the taint.
async fn neighbours(run: &Run<'_>) -> Result<()> {
    let kept = run.scene.kept().await?;
    ensure!(kept == run.scene.keepers, "others are there: {kept:?}, not {:?}", run.scene.keepers);
    let Some(was) = &run.scene.pinned else { return Ok(()) };
    let pods = run.scene.pods().await?;
    let Some(pod) = pods.iter().find(|pod| pod["metadata"]["uid"] == was["metadata"]["uid"]) else {
        // Where nobody kept it, or the recovery was undone and the node silent again, Kubernetes itself evicts it.
        let quiet = |action: MachineAction| {
            matches!(action, MachineAction::Suspend | MachineAction::PowerOff | MachineAction::CutOff)
        };
        let again = run.draw.abort.is_some() || run.draw.then.is_some_and(|(_, action)| quiet(action));
        let written = run.written();
        let fenced = written.iter().position(puts_taint);
        let plan = |write: &&Written| write.was_made() && write.path.contains("/noderecoveries");
        let record = fenced.and_then(|at| written[..at].iter().rev().find(plan));
        let left = record.map(|r| r.body["spec"]["plan"]["leftAlone"].clone()).unwrap_or_default();
        let shielded = left.as_array().into_iter().flatten().any(|l| l["uid"] == was["metadata"]["uid"]);
        ensure!(again || !shielded, "the pod that was to be kept from the taint is gone");
        return Ok(());
    };
    let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let (before, now) = (tolerations(was), tolerations(pod));
    let left = now.iter().find(|t| !before.contains(t) && t["tolerationSeconds"] != 0);
    ensure!(left.is_none(), "the shield is still up: {left:?}");
    ensure!(before.iter().all(|t| now.contains(t)), "its tolerations were {before:?} and are {now:?}");
    Ok(())
}
