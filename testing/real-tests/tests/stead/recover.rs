//! `stead recover` on the real control plane, with pods that really write to disks that can be taken away.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_machines::Machines;
use stead_stage::disks::{DiskStage, Writer};
use stead_stage::until_some;
use stead_testbed::Binaries;

use crate::stead;

async fn open() -> Result<Option<DiskStage>> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
    if !Machines::can_run_or_skip() {
        return Ok(None);
    }
    DiskStage::open(&binaries, &stead()?).await.map(Some)
}

/// Recovers a node, and returns what was printed.
async fn recovered(stage: &DiskStage, node: &str, flags: &[&str]) -> Result<String> {
    let target = format!("node/{node}");
    let mut args = vec!["recover", &target, "--yes"];
    args.extend(flags);
    let (code, out, said) = stage.stead(&args).await?;
    ensure!(code == Some(0), "recover {node} ended with {code:?}: {out}{said}");
    Ok(out)
}

/// What was written before is there, and the one who writes now goes on.
async fn goes_on(stage: &DiskStage, before: &[String], writer: &Writer) -> Result<()> {
    let own = format!("{} {}", writer.pod, writer.node);
    // It is ready by what was written before it.
    let lines = until_some(&format!("the last line is {own}"), Duration::from_secs(60), async || {
        Ok(Some(stage.lines(writer).await?).filter(|lines| lines.last() == Some(&own)))
    })
    .await?;
    ensure!(lines.starts_with(before), "what was written before is not there: {lines:?}");
    stage.nobody_was_hurt()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_off() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.writes("db").await?;
    let target = format!("node/{}", old.node);

    // As long as it lives, it is refused, whatever one says, and nothing is written.
    let alive = ["recover", &target, "--yes", "--confirm-off", "I say so"];
    let (code, _, said) = stage.stead(&alive).await?;
    ensure!(code == Some(1) && said.contains("its kubelet is alive"), "{code:?}: {said}");
    ensure!(!stage.kubectl(&["get", "crd", "-o", "name"]).await?.contains("noderecoveries"), "something was written");

    stage.machines.kill(&old.node).await?;
    stage.is_silent(&old.node).await?;
    let (code, out, said) = stage.stead(&["recover", &target, "--yes"]).await?;
    ensure!(code == Some(1) && said.contains("--confirm-off"), "{code:?}: {said}");
    ensure!(out.contains("default/db-0 of StatefulSet/db"), "no plan: {out}");
    ensure!(stage.is_free(&old.node).await?, "something was written without proof");

    recovered(&stage, &old.node, &["--confirm-off", "unplugged"]).await?;
    let new = stage.writer("db", &old.uid).await?;
    ensure!(new.node != old.node && new.node.starts_with("a-"), "{new:?}");
    goes_on(&stage, &[format!("{} {}", old.pod, old.node)], &new).await?;
    let (_, list, _) = stage.stead(&["recover", "--list"]).await?;
    ensure!(list.contains("Recovered") && list.contains("Person"), "{list}");
    let (_, status, _) = stage.stead(&["recover", &target, "--status"]).await?;
    ensure!(status.contains("unplugged"), "{status}");

    // It is started: another life, in which nothing of the old one can write.
    ensure!(!stage.is_free(&old.node).await?, "the taint went by itself");
    stage.machines.boot(&old.node).await?;
    recovered(&stage, &old.node, &["--wait-return"]).await?;
    ensure!(stage.is_free(&old.node).await?, "the taint is still there");
    stage.machines.ready().await?;
    stage.nobody_was_hurt()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_suspended_and_goes_on() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    // An earlier Stead has left its definition, which would drop a part of the record.
    let mut older = stead_manifests::recovery().object;
    let evidence = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/evidence/items/properties";
    let dropped = older.pointer_mut(evidence).and_then(|fields| fields.as_object_mut()?.remove("words"));
    ensure!(dropped.is_some(), "the definition has no words");
    stage.plane.kubectl_with(&["create", "-f", "-"], &older.to_string()).await?.ok()?;
    let old = stage.writes("db").await?;
    stage.machines.silence(&old.node).await?;
    stage.is_silent(&old.node).await?;
    // Programs get one document: the plan where nothing is done, else the record when it is over.
    let target = format!("node/{}", old.node);
    let (code, plan, said) = stage.stead(&["recover", &target, "--yes", "-o", "json"]).await?;
    let plan: Value = serde_json::from_str(&plan).with_context(|| format!("{code:?}: {plan}{said}"))?;
    ensure!(code == Some(1) && plan["pods"][0]["readyAt"].is_string(), "{code:?}: {plan}");
    let record = recovered(&stage, &old.node, &["--confirm-off", "suspended", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record).with_context(|| record.clone())?;
    ensure!(record["status"]["phase"] == "Recovered", "{record}");
    let (_, status, _) = stage.stead(&["recover", &format!("node/{}", old.node), "--status"]).await?;
    ensure!(status.contains("suspended"), "what was said is not written down: {status}");
    let new = stage.writer("db", &old.uid).await?;
    let before = stage.lines(&new).await?;

    // The old process goes on where it was, with its files open: the disk is no longer its own.
    stage.machines.resume(&old.node).await?;
    let record = recovered(&stage, &old.node, &["--wait-return", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record).with_context(|| record.clone())?;
    ensure!(record["status"]["phase"] == "Returned", "{record}");
    ensure!(stage.is_free(&old.node).await?, "the taint is still there");
    goes_on(&stage, &before, &new).await?;
    let lines = stage.lines(&new).await?;
    let old_line = format!("{} {}", old.pod, old.node);
    ensure!(!lines[before.len()..].contains(&old_line), "the old process has written after the new one");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_said() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    for (args, words) in [
        (vec!["recover", "node/nobody"], "error: node nobody: not found"),
        (vec!["recover", "node/nobody", "--status"], "node nobody: no recovery is recorded"),
        (vec!["recover", "node/a-0", "--abort", "--yes"], "node a-0: no recovery to abort"),
    ] {
        let (code, _, said) = stage.stead(&args).await?;
        ensure!(code == Some(1) && said.contains(words), "{args:?}: {code:?}: {said}");
    }
    Ok(())
}
