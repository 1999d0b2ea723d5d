//! The child processes of the agent: those it started, and orphans that it inherited.
//!
//! glusterd's brick processes and its self-heal daemon detach from glusterd, so that they survive it. In a container
//! they become children of the first process, which has to reap them.

use std::collections::BTreeSet;
use std::fs;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{debug, info, warn};

/// How often to check whether processes have ended that were told to.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest output of a program that is read.
const MAX_OUTPUT: u64 = 4 << 20;

/// The processes that the agent started and waits for. It is static because a process has only one set of children.
static OWN_PIDS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The child processes of the agent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Children;

/// A process that the agent started and waits for.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    pid: i32,
}

impl Children {
    /// Makes the agent the parent of orphans even if it is not the first process in its container.
    pub(crate) fn become_subreaper() -> Children {
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            warn!("cannot become the parent of orphans: {error}");
        }
        Children
    }

    /// Starts a program.
    pub(crate) fn spawn(&self, command: &mut Command) -> anyhow::Result<ChildProcess> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let mut own = own_pids();
        let child = command.spawn().with_context(|| format!("running {program}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("the process has no id")?;
        own.insert(pid);
        drop(own);
        Ok(ChildProcess { child, pid })
    }

    /// Runs a program to its end within a time limit, and returns its output.
    pub(crate) async fn output(&self, command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut own = self.spawn(command)?;
        let (out, err) = (own.child.stdout.take(), own.child.stderr.take());
        let ended = tokio::time::timeout(limit, async {
            let (stdout, stderr, status) = tokio::join!(read(out), read(err), own.child.wait());
            anyhow::Ok(Output { status: status?, stdout: stdout?, stderr: stderr? })
        })
        .await;
        match ended {
            Ok(output) => output,
            Err(_) => {
                // Without this, the process would be left behind.
                let _ = own.child.kill().await;
                anyhow::bail!("no answer within {} s", limit.as_secs())
            }
        }
    }

    /// Reaps orphans that ended, for as long as it is polled.
    pub(crate) async fn reap(self) -> anyhow::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        loop {
            while let Some(pid) = self.ended_orphan() {
                match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                    Ok(status) => debug!("an orphan has ended: {status:?}"),
                    Err(error) => debug!("an orphan has ended: {error}"),
                }
            }
            // An ended process of our own may hide an ended orphan until it is waited for.
            let _ = tokio::time::timeout(Duration::from_secs(2), ended.recv()).await;
        }
    }

    /// Returns an orphan that has ended.
    fn ended_orphan(&self) -> Option<Pid> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, flags).ok()? {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => pid,
            _ => return None,
        };
        (!own_pids().contains(&pid.as_raw())).then_some(pid)
    }

    /// Terminates all orphans: first with SIGTERM, then with SIGKILL.
    pub(crate) async fn terminate_orphans(&self, timeout: Duration) {
        for (what, limit) in [(Signal::SIGTERM, timeout), (Signal::SIGKILL, Duration::from_secs(2))] {
            let left = self.orphans();
            if left.is_empty() {
                return;
            }
            info!("{what} to {} processes left behind by glusterd", left.len());
            for pid in left {
                // It may have ended in the meantime.
                let _ = kill(pid, what);
            }
            let _ = tokio::time::timeout(limit, async {
                while !self.orphans().is_empty() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            })
            .await;
        }
    }

    /// The running child processes that the agent did not start.
    fn orphans(&self) -> Vec<Pid> {
        let me = nix::unistd::getpid().as_raw();
        let own = own_pids();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = pids.filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !own.contains(pid) && parent(&stat).is_some_and(|(state, parent)| parent == me && state != "Z")
        });
        ours.map(Pid::from_raw).collect()
    }
}

impl ChildProcess {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the process ends.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Terminates the process: first with SIGTERM, after the timeout with SIGKILL.
    pub(crate) async fn terminate(&mut self, timeout: Duration) -> std::io::Result<ExitStatus> {
        // It may have ended in the meantime.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        match tokio::time::timeout(timeout, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                warn!("process {} did not terminate within {} s and is killed", self.pid, timeout.as_secs());
                self.child.kill().await?;
                self.child.wait().await
            }
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        own_pids().remove(&self.pid);
    }
}

fn own_pids() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN_PIDS.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Returns state and parent from a line of `/proc/PID/stat`. The process name before them may contain any characters.
fn parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parents_are_parsed_for_any_process_name() {
        for (stat, found) in [
            ("12 (glusterfsd) S 1 12 12 0", Some(("S", 1))),
            ("12 (a ) Z 9 (b) Z 7 12", Some(("Z", 7))),
            ("12 (a", None),
            ("", None),
        ] {
            assert_eq!(parent(stat), found, "{stat}");
        }
    }

    /// Runs a shell that leaves behind one process that ends by itself and one that does not. Returns their ids.
    async fn leave_two(children: &Children) -> Vec<i32> {
        let script = "sleep 0.1 >&- 2>&- & echo $!; sleep 100 >&- 2>&- & echo $!";
        let output = children.output(Command::new("sh").args(["-c", script]), Duration::from_secs(3600)).await.unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn orphans_are_reaped_and_terminated() {
        let children = Children::become_subreaper();
        let reaper = tokio::spawn(children.reap());
        let left = leave_two(&children).await;
        let there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap();
        while there(left[0]) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        assert!(there(left[1]) && children.orphans().contains(&Pid::from_raw(left[1])));
        children.terminate_orphans(Duration::from_secs(5)).await;
        assert!(!children.orphans().contains(&Pid::from_raw(left[1])));
        reaper.abort();
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_killed() {
        let children = Children;
        let sleep = children.output(Command::new("sleep").arg("100"), Duration::from_millis(200)).await;
        assert_eq!(sleep.unwrap_err().to_string(), "no answer within 0 s");
    }
}
