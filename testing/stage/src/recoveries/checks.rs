//! The checks after a run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_machines::{Interval, Violation};
use stead_testbed::RecordedWrite;

use super::run::Run;
use super::run_spec::MachineAction;
use super::workloads::FOREIGN_TAINT;
use super::writer_lines;

/// The taint of a recovery.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// After this time a returned node has sent a heartbeat, and must not be treated as unreachable.
const HEARTBEAT_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// Whether a write has applied the taint.
pub(super) fn applies_taint(write: &RecordedWrite) -> bool {
    let mut taints = write.body["spec"]["taints"].as_array().into_iter().flatten();
    let over = write.body["metadata"]["annotations"]["stead.dev/recovery"]
        .as_str()
        .is_none_or(|annotation| annotation.contains("\"over\""));
    write.succeeded() && write.path.starts_with("/api/v1/nodes/") && !over && taints.any(|t| t["key"] == OUT_OF_SERVICE)
}

/// Runs all checks. Returns how many disks were detached from processes that had been resumed.
pub(super) async fn check_all(run: &Run<'_>, before: &[String], meanwhile: &[String]) -> Result<u64> {
    let detached = check_writers(run)?;
    check_evidence(run)?;
    check_scope(run)?;
    check_files(run, before, meanwhile).await?;
    check_one_writer_each(run).await?;
    check_node(run).await?;
    check_bystanders(run).await?;
    Ok(detached)
}

/// Checks that a volume never had two writers. A disk may be detached from a running process only after the taint was
/// applied, for a planned pod: its machine has come back since, and the storage has revoked its access.
fn check_writers(run: &Run<'_>) -> Result<u64> {
    let ours = |interval: &Interval| interval.pod.starts_with(&format!("{}/", run.workloads.namespace));
    let first = run.written().iter().find(|write| applies_taint(write)).map(|write| write.at);
    let mut detached = 0;
    for violation in run.stage.machines.violations() {
        match violation {
            Violation::TwoWriters(two) if two.iter().any(ours) => bail!("two writers: {two:#?}"),
            Violation::EarlyDetach(one) if ours(&one) => {
                let end = one.to.map(|(end, _)| end.wall);
                ensure!(first.is_some() && first < end, "a disk was detached from a pod that was writing: {one:#?}");
                ensure!(is_planned(run, &one.uid), "a disk was detached from a pod that is not in the plan: {one:#?}");
                detached += 1;
            }
            _ => {}
        }
    }
    Ok(detached)
}

/// Checks that the taint was applied only after a true confirmation, with no heartbeat since then.
fn check_evidence(run: &Run<'_>) -> Result<()> {
    let confirmed = run.confirmed();
    let returned_within = |from: Timestamp, to: Timestamp| {
        let mut at = from;
        while at + HEARTBEAT_DELAY < to {
            if run.machine.had_heartbeat(at, at + HEARTBEAT_DELAY) {
                return true;
            }
            at += SignedDuration::from_millis(100);
        }
        false
    };
    for write in run.written().iter().filter(|write| applies_taint(write)) {
        let justified = confirmed.iter().any(|at| *at < write.at && !returned_within(*at, write.at));
        ensure!(justified, "the taint was applied at {} without evidence: confirmed at {confirmed:?}", write.at);
    }
    Ok(())
}

/// Checks that only objects in the plan were written, and nothing without a confirmation.
fn check_scope(run: &Run<'_>) -> Result<()> {
    let (written, node) = (run.written(), &run.machine.name);
    let done: Vec<&RecordedWrite> = written.iter().filter(|write| write.succeeded()).collect();
    ensure!(!run.confirmed().is_empty() || done.is_empty(), "written without any evidence: {done:#?}");
    let records: Vec<&Value> = done.iter().filter(|w| w.path.contains("/noderecoveries")).map(|w| &w.body).collect();
    let listed = |list: &str, field: &dyn Fn(&Value) -> Option<String>| -> BTreeSet<String> {
        let entries = records.iter().flat_map(|r| r["spec"]["plan"][list].as_array().into_iter().flatten());
        entries.filter_map(field).collect()
    };
    let name = |pod: &Value| Some(format!("{}/pods/{}", pod["namespace"].as_str()?, pod["name"].as_str()?));
    let planned = listed("pods", &|pod| Some(format!("{} {}", name(pod)?, pod["uid"].as_str()?)));
    let shielded = listed("leftAlone", &|left| name(&left["shield"]));
    for write in done {
        let (method, path) = (write.method.as_str(), write.path.as_str());
        let pod = path.strip_prefix("/api/v1/namespaces/").unwrap_or_default();
        let uid = write.body["preconditions"]["uid"].as_str().unwrap_or_default();
        let allowed = match method {
            _ if path.ends_with("/customresourcedefinitions/noderecoveries.stead.dev") => true,
            "POST" => path.ends_with("/noderecoveries"),
            "PUT" => path.contains(&format!("/noderecoveries/{node}-")),
            "PATCH" => path == format!("/api/v1/nodes/{node}") || shielded.contains(pod),
            "DELETE" => planned.contains(&format!("{pod} {uid}")),
            _ => false,
        };
        ensure!(allowed, "not in the plan: {write:?}");
    }
    Ok(())
}

/// Checks that all written lines are there in order, and that each writer is writing.
async fn check_files(run: &Run<'_>, before: &[String], meanwhile: &[String]) -> Result<()> {
    for (index, writer) in run.workloads.writers.iter().enumerate() {
        let text = run.workloads.lines(writer)?;
        for earlier in [&before[index], &meanwhile[index]] {
            ensure!(text.starts_with(earlier.as_str()), "{}: lines that were written before are missing", writer.app);
        }
        let end = Instant::now() + Duration::from_secs(60);
        let mut now = text.clone();
        while now.len() == text.len() {
            ensure!(Instant::now() < end, "{}: no process is writing", writer.app);
            tokio::time::sleep(Duration::from_millis(100)).await;
            now = run.workloads.lines(writer)?;
        }
        writer_lines::check(&now).map_err(|e| e.context(format!("the lines of {}", writer.app)))?;
    }
    Ok(())
}

/// Checks that exactly one pod of each writer can write at the end, the Ready one. The old pod may take a moment to go.
async fn check_one_writer_each(run: &Run<'_>) -> Result<()> {
    for writer in &run.workloads.writers {
        let volume = run.workloads.volume(writer)?;
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut all = run.stage.machines.witness();
            all.retain(|interval| interval.volume == volume && interval.to.is_none());
            let pods = run.workloads.pods_of(writer).await?;
            let uids: Vec<&str> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
            let open: Vec<&str> = all.iter().map(|interval| interval.uid.as_str()).collect();
            if open == uids && open.len() == 1 {
                break;
            }
            ensure!(Instant::now() < end, "{}: {open:?} can write, but the pods are {uids:?}", writer.app);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Checks that the taint is removed from the node, and a foreign taint is not.
async fn check_node(run: &Run<'_>) -> Result<()> {
    let taints = run.workloads.cluster.taints(&run.machine.name).await?;
    ensure!(!taints.iter().any(|t| t["key"] == OUT_OF_SERVICE), "the taint was not removed: {taints:?}");
    let foreign =
        taints.iter().any(|t| t["key"] == FOREIGN_TAINT && t["value"] == "by-others" && t["effect"] == "NoSchedule");
    ensure!(foreign == run.spec.foreign_taint, "the foreign taint was changed: {taints:?}");
    Ok(())
}

/// Whether a pod is in a recorded plan.
fn is_planned(run: &Run<'_>, uid: &str) -> bool {
    let written = run.written();
    let mut plans = written.iter().filter(|write| write.succeeded() && write.path.contains("/noderecoveries"));
    plans.any(|write| write.body["spec"]["plan"]["pods"].as_array().is_some_and(|p| p.iter().any(|p| p["uid"] == uid)))
}

/// Checks that the pods that do not belong to the recovery are unchanged, and so is the pod that was shielded from the
/// taint.
async fn check_bystanders(run: &Run<'_>) -> Result<()> {
    let found = run.workloads.list_bystanders().await?;
    ensure!(found == run.workloads.bystanders, "other pods changed from {:?} to {found:?}", run.workloads.bystanders);
    let Some(was) = &run.workloads.pinned_pod else { return Ok(()) };
    let pods = run.workloads.pods().await?;
    let Some(pod) = pods.iter().find(|pod| pod["metadata"]["uid"] == was["metadata"]["uid"]) else {
        // If it was not shielded, or the recovery was undone and the node failed again, Kubernetes evicts it.
        let fails = |action: MachineAction| {
            matches!(action, MachineAction::Suspend | MachineAction::PowerOff | MachineAction::Disconnect)
        };
        let again = run.spec.abort.is_some() || run.spec.then.is_some_and(|(_, action)| fails(action));
        let written = run.written();
        let fenced = written.iter().position(applies_taint);
        let plan = |write: &&RecordedWrite| write.succeeded() && write.path.contains("/noderecoveries");
        let record = fenced.and_then(|at| written[..at].iter().rev().find(plan));
        let left = record.map(|r| r.body["spec"]["plan"]["leftAlone"].clone()).unwrap_or_default();
        let shielded = left.as_array().into_iter().flatten().any(|l| l["uid"] == was["metadata"]["uid"]);
        ensure!(again || !shielded, "the pod that was shielded from the taint is gone");
        return Ok(());
    };
    let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let (before, now) = (tolerations(was), tolerations(pod));
    let left = now.iter().find(|t| !before.contains(t) && t["tolerationSeconds"] != 0);
    ensure!(left.is_none(), "the added toleration was not removed: {left:?}");
    ensure!(before.iter().all(|t| now.contains(t)), "the tolerations changed from {before:?} to {now:?}");
    Ok(())
}
