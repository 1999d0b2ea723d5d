//! `stead recover` on the real control plane, with pods that write to disks that can be detached.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_machines::Machines;
use stead_stage::disks::{DiskStage, Writer};
use stead_stage::wait_for;
use stead_testbed::Binaries;

use crate::stead;

async fn open() -> Result<Option<DiskStage>> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
    if !Machines::can_run_or_skip() {
        return Ok(None);
    }
    DiskStage::open(&binaries, &stead()?).await.map(Some)
}

/// Recovers a node, and returns the output.
async fn recovered(stage: &DiskStage, node: &str, flags: &[&str]) -> Result<String> {
    let target = format!("node/{node}");
    let mut args = vec!["recover", &target, "--yes"];
    args.extend(flags);
    let (code, out, stderr) = stage.stead(&args).await?;
    ensure!(code == Some(0), "recover {node} ended with {code:?}: {out}{stderr}");
    Ok(out)
}

/// Checks that the earlier lines exist and the current writer continues.
async fn check_writer_continues(stage: &DiskStage, before: &[String], writer: &Writer) -> Result<()> {
    let own = format!("{} {}", writer.pod, writer.node);
    // The writer is ready before it has written.
    let lines = wait_for(&format!("the last line is {own}"), Duration::from_secs(60), async || {
        Ok(Some(stage.lines(writer).await?).filter(|lines| lines.last() == Some(&own)))
    })
    .await?;
    ensure!(lines.starts_with(before), "earlier lines are missing: {lines:?}");
    stage.check_violations()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_off() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.start_writer("db").await?;
    let target = format!("node/{}", old.node);

    // While it is alive, a recovery is refused even with a confirmation, and nothing is written.
    let alive = ["recover", &target, "--yes", "--confirm-off", "I say so"];
    let (code, _, stderr) = stage.stead(&alive).await?;
    ensure!(code == Some(1) && stderr.contains("its kubelet is alive"), "{code:?}: {stderr}");
    ensure!(!stage.kubectl(&["get", "crd", "-o", "name"]).await?.contains("noderecoveries"), "something was written");

    stage.machines.kill(&old.node).await?;
    stage.wait_until_unreachable(&old.node).await?;
    let (code, out, stderr) = stage.stead(&["recover", &target, "--yes"]).await?;
    ensure!(code == Some(1) && stderr.contains("--confirm-off"), "{code:?}: {stderr}");
    ensure!(out.contains("default/db-0 of StatefulSet/db"), "no plan: {out}");
    ensure!(stage.has_no_recovery(&old.node).await?, "something was written without evidence");

    recovered(&stage, &old.node, &["--confirm-off", "unplugged"]).await?;
    let new = stage.ready_writer("db", &old.uid).await?;
    ensure!(new.node != old.node && new.node.starts_with("a-"), "{new:?}");
    check_writer_continues(&stage, &[format!("{} {}", old.pod, old.node)], &new).await?;
    let (_, list, _) = stage.stead(&["recover", "--list"]).await?;
    ensure!(list.contains("Recovered") && list.contains("Person"), "{list}");
    let (_, status, _) = stage.stead(&["recover", &target, "--status"]).await?;
    ensure!(status.contains("unplugged"), "{status}");

    // The machine starts: a new boot, in which no old process can write.
    ensure!(!stage.has_no_recovery(&old.node).await?, "the taint was removed without a recovery");
    stage.machines.boot(&old.node).await?;
    recovered(&stage, &old.node, &["--wait-return"]).await?;
    ensure!(stage.has_no_recovery(&old.node).await?, "the taint is still there");
    stage.machines.ready().await?;
    stage.check_violations()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_suspended_and_is_resumed() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    // An earlier version of Stead left its CRD, which would drop a field of the record.
    let mut older = stead_manifests::recovery().object;
    let evidence = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/evidence/items/properties";
    let dropped = older.pointer_mut(evidence).and_then(|fields| fields.as_object_mut()?.remove("words"));
    ensure!(dropped.is_some(), "the CRD has no field words");
    stage.plane.kubectl_with(&["create", "-f", "-"], &older.to_string()).await?.ok()?;
    let old = stage.start_writer("db").await?;
    stage.machines.suspend(&old.node).await?;
    stage.wait_until_unreachable(&old.node).await?;
    // Programs get one document: the plan if nothing is done, else the final record.
    let target = format!("node/{}", old.node);
    let (code, plan, stderr) = stage.stead(&["recover", &target, "--yes", "-o", "json"]).await?;
    let plan: Value = serde_json::from_str(&plan).with_context(|| format!("{code:?}: {plan}{stderr}"))?;
    ensure!(code == Some(1) && plan["pods"][0]["readyAt"].is_string(), "{code:?}: {plan}");
    let record = recovered(&stage, &old.node, &["--confirm-off", "suspended", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record).with_context(|| record.clone())?;
    ensure!(record["status"]["phase"] == "Recovered", "{record}");
    let (_, status, _) = stage.stead(&["recover", &format!("node/{}", old.node), "--status"]).await?;
    ensure!(status.contains("suspended"), "the confirmation is not recorded: {status}");
    let new = stage.ready_writer("db", &old.uid).await?;
    let before = stage.lines(&new).await?;

    // The old process continues with its files open, without access to the disk.
    stage.machines.resume(&old.node).await?;
    let record = recovered(&stage, &old.node, &["--wait-return", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record).with_context(|| record.clone())?;
    ensure!(record["status"]["phase"] == "Returned", "{record}");
    ensure!(stage.has_no_recovery(&old.node).await?, "the taint is still there");
    check_writer_continues(&stage, &before, &new).await?;
    let lines = stage.lines(&new).await?;
    let old_line = format!("{} {}", old.pod, old.node);
    ensure!(!lines[before.len()..].contains(&old_line), "the old process has written after the new one");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_reported() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    for (args, words) in [
        (vec!["recover", "node/nobody"], "error: node nobody: not found"),
        (vec!["recover", "node/nobody", "--status"], "node nobody: no recovery is recorded"),
        (vec!["recover", "node/a-0", "--abort", "--yes"], "node a-0: no recovery to abort"),
    ] {
        let (code, _, stderr) = stage.stead(&args).await?;
        ensure!(code == Some(1) && stderr.contains(words), "{args:?}: {code:?}: {stderr}");
    }
    Ok(())
}
