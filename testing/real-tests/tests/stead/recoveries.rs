//! Disturbed recoveries: killed after every single write, and with confirmations that are false or outdated.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stead_machines::{Api, Machines, Violation};
use stead_stage::disks::{DiskStage, TIMEOUT};
use stead_stage::wait_until;
use stead_testbed::{Binaries, FaultProxy};
use tokio::process::{Child, Command};

use crate::stead;

/// How long a call may take, on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

async fn open() -> Result<Option<DiskStage>> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
    if !Machines::can_run_or_skip() {
        return Ok(None);
    }
    DiskStage::open(&binaries, &stead()?).await.map(Some)
}

/// Starts `stead recover` through a proxy.
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

/// Runs the command again and again, each time killed after its first write, until one has nothing to write. Returns
/// how many were killed.
async fn killed_after_each_write(stage: &DiskStage, proxy: &FaultProxy, args: &[&str]) -> Result<u64> {
    let made = || proxy.written().iter().filter(|write| write.succeeded()).count() as u64;
    let before = made();
    for _ in 0..100 {
        proxy.hold_after(Some(made() + 1));
        let mut child = call(stage, proxy, args)?;
        let ended = tokio::select! {
            status = child.wait() => Some(status?),
            () = proxy.wait_until_held() => None,
            () = tokio::time::sleep(CALL_TIMEOUT) => bail!("{args:?}: neither a write nor an end within {CALL_TIMEOUT:?}"),
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
    let old = stage.start_writer("db").await?;
    let proxy = FaultProxy::start(&stage.plane, 1).await?;
    let target = format!("node/{}", old.node);
    stage.machines.suspend(&old.node).await?;
    stage.wait_until_unreachable(&old.node).await?;
    let killed = killed_after_each_write(&stage, &proxy, &[&target, "--yes", "--confirm-off", "suspended"]).await?;
    ensure!(killed >= 5, "only {killed} writes");
    let new = stage.ready_writer("db", &old.uid).await?;
    ensure!(new.node != old.node, "{new:?}");
    // On the return too: what a run left that was killed after closing the record is removed.
    stage.machines.resume(&old.node).await?;
    let killed = killed_after_each_write(&stage, &proxy, &[&target, "--yes", "--wait-return"]).await?;
    ensure!(killed >= 3, "only {killed} writes");
    ensure!(stage.has_no_recovery(&old.node).await?, "something of the recovery is left on {}", old.node);
    stage.check_violations()
}

/// A user rightly confirms that a machine is off. Before the API server answers, the machine is resumed, and then loses
/// its network while it writes: the confirmation is not about that outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_that_is_outdated_when_it_arrives() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.start_writer("db").await?;
    let proxy = FaultProxy::start(&stage.plane, 1).await?;
    let target = format!("node/{}", old.node);
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let is_back = async || {
        let back = async || Ok(stage.kubectl(&["get", "node", &old.node, "-o", ready]).await? == "True");
        wait_until("the node is back", TIMEOUT, back).await
    };
    let mut child = None;
    for _ in 0..5 {
        stage.machines.suspend(&old.node).await?;
        stage.wait_until_unreachable(&old.node).await?;
        proxy.hold_after(Some(0));
        let called = Instant::now();
        let held = call(&stage, &proxy, &[&target, "--yes", "--confirm-off", "suspended"])?;
        stage.machines.resume(&old.node).await?;
        is_back().await?;
        stage.machines.cut(&[&old.node], Api::Unreachable).await?;
        stage.wait_until_unreachable(&old.node).await?;
        // A request is given up after 30 s: if all this took longer, the attempt is useless.
        if called.elapsed() < Duration::from_secs(25) {
            child = Some(held);
            break;
        }
        drop(held);
        stage.machines.rejoin_all().await?;
        is_back().await?;
    }
    proxy.hold_after(None);
    let child = child.context("this machine is too slow")?;
    let output =
        tokio::time::timeout(CALL_TIMEOUT, child.wait_with_output()).await.context("the call does not end")??;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && stderr.contains("confirm again"), "{output:?}");
    ensure!(stage.has_no_recovery(&old.node).await?, "a machine that writes was tainted");
    ensure!(!proxy.written().iter().any(|write| write.succeeded()), "{:?}", proxy.written());
    stage.check_violations()
}

/// The only way to get two writers, on storage that does not revoke access; the witness detects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_confirmation_is_detected_by_the_witness() -> Result<()> {
    let Some(stage) = open().await? else { return Ok(()) };
    let old = stage.start_writer("db").await?;
    stage.machines.disks().ignore_detach(true);
    stage.machines.cut(&[&old.node], Api::Unreachable).await?;
    stage.wait_until_unreachable(&old.node).await?;
    let target = format!("node/{}", old.node);
    let (code, _, stderr) = stage.stead(&["recover", &target, "--yes", "--confirm-off", "it must be"]).await?;
    ensure!(code == Some(0), "{stderr}");
    let new = stage.ready_writer("db", &old.uid).await?;
    let violations = stage.machines.violations();
    let seen =
        |v: &Violation| matches!(v, Violation::TwoWriters(two) if [&two[0].uid, &two[1].uid] == [&old.uid, &new.uid]);
    ensure!(violations.iter().any(seen), "the witness did not detect it: {violations:?}");
    Ok(())
}
