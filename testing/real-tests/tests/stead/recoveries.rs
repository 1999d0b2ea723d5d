//! Recoveries with something in the way: killed after every single write, and with words that are not true, or
//! not any more.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stead_machines::{Api, Machines, Violation};
use stead_stage::disks::{DiskStage, PATIENCE};
use stead_stage::until;
use stead_testbed::{Binaries, FaultProxy};
use tokio::process::{Child, Command};

use crate::stead;

/// So long may a call take, on a machine with much else to do.
const MOST: Duration = Duration::from_secs(300);

async fn open() -> Result<Option<DiskStage>> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
    if !Machines::can_run_or_skip() {
        return Ok(None);
    }
    DiskStage::open(&binaries, &stead()?).await.map(Some)
}

/// Calls `stead recover` through a proxy, and waits for nothing.
fn call(stage: &DiskStage, proxy: &FaultProxy, args: &[&str]) -> Result<Child> {
    let kubeconfig = proxy.kubeconfig(stage.plane.folder(), "admin", stage.plane.token())?;
    Command::new(stead()?)
        .arg("recover")
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("running stead")
}

/// Calls again and again, each call being killed after its first write, until one has nothing to write; how many were
/// killed.
async fn killed_after_each_write(stage: &DiskStage, proxy: &FaultProxy, args: &[&str]) -> Result<u64> {
    let made = || proxy.written().iter().filter(|write| write.was_made()).count() as u64;
    let before = made();
    for _ in 0..100 {
        proxy.hold_after(Some(made() + 1));
        let mut child = call(stage, proxy, args)?;
        let ended = tokio::select! {
            status = child.wait() => Some(status?),
            () = proxy.held() => None,
            () = tokio::time::sleep(MOST) => bail!("{args:?}: neither a write nor an end within {MOST:?}"),
        };
        let Some(status) = ended else {
            child.kill().await?;
            continue;
        };
        let output = child.wait_with_output().await?;
        ensure!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        return Ok(made() - before);
    }
    bail!("{args:?}: there is always something left to write")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_every_single_write() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.writes("db").await?;
    let proxy = FaultProxy::start(&stage.plane, 1).await?;
    let target = format!("node/{}", old.node);
    stage.machines.silence(&old.node).await?;
    stage.is_silent(&old.node).await?;
    let killed = killed_after_each_write(&stage, &proxy, &[&target, "--yes", "--confirm-off", "suspended"]).await?;
    ensure!(killed >= 5, "only {killed} writes");
    let new = stage.writer("db", &old.uid).await?;
    ensure!(new.node != old.node, "{new:?}");
    // On its way back too: what is left of one who was killed after the record was closed goes as well.
    stage.machines.resume(&old.node).await?;
    let killed = killed_after_each_write(&stage, &proxy, &[&target, "--yes", "--wait-return"]).await?;
    ensure!(killed >= 3, "only {killed} writes");
    ensure!(stage.is_free(&old.node).await?, "something of it is left on {}", old.node);
    stage.nobody_was_hurt()
}

/// Somebody truly says that a machine is off; before the API server answers, it is resumed, and then cut off while it
/// writes: these words are not about that silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_that_are_not_true_any_more_when_they_arrive() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.writes("db").await?;
    let proxy = FaultProxy::start(&stage.plane, 1).await?;
    let target = format!("node/{}", old.node);
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let is_back = async || {
        let back = async || Ok(stage.kubectl(&["get", "node", &old.node, "-o", ready]).await? == "True");
        until("the node is back", PATIENCE, back).await
    };
    let mut child = None;
    for _ in 0..5 {
        stage.machines.silence(&old.node).await?;
        stage.is_silent(&old.node).await?;
        proxy.hold_after(Some(0));
        let called = Instant::now();
        let held = call(&stage, &proxy, &[&target, "--yes", "--confirm-off", "suspended"])?;
        stage.machines.resume(&old.node).await?;
        is_back().await?;
        stage.machines.cut(&[&old.node], Api::Unreachable).await?;
        stage.is_silent(&old.node).await?;
        // Nobody waits for an answer for more than 30 s: if all this took longer, it is for nothing.
        if called.elapsed() < Duration::from_secs(25) {
            child = Some(held);
            break;
        }
        drop(held);
        stage.machines.mend().await?;
        is_back().await?;
    }
    proxy.hold_after(None);
    let child = child.context("this machine is too slow")?;
    let output = tokio::time::timeout(MOST, child.wait_with_output()).await.context("the call does not end")??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("confirm again"), "{output:?}");
    ensure!(stage.is_free(&old.node).await?, "a machine that writes was put out of service");
    ensure!(!proxy.written().iter().any(|write| write.was_made()), "{:?}", proxy.written());
    stage.nobody_was_hurt()
}

/// The one way to get two writers, on storage that does not take disks away; and that it would be seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_word_is_seen_by_the_witness() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.writes("db").await?;
    stage.machines.disks().forget(true);
    stage.machines.cut(&[&old.node], Api::Unreachable).await?;
    stage.is_silent(&old.node).await?;
    let target = format!("node/{}", old.node);
    let (code, _, said) = stage.stead(&["recover", &target, "--yes", "--confirm-off", "it must be"]).await?;
    ensure!(code == Some(0), "{said}");
    let new = stage.writer("db", &old.uid).await?;
    let violations = stage.machines.violations();
    let seen =
        |v: &Violation| matches!(v, Violation::TwoWriters(two) if [&two[0].uid, &two[1].uid] == [&old.uid, &new.uid]);
    ensure!(violations.iter().any(seen), "the witness has not seen it: {violations:?}");
    Ok(())
}
