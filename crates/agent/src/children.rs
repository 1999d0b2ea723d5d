//! The processes below this one: those it started, and those that were left to it.
//!
//! glusterd's bricks and its healing daemon detach themselves from it, so that they outlive it. In a container they
//! become children of the first process, which has to take note of their end.

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

/// How often to check whether processes that were told to end have ended.
const LOOK: Duration = Duration::from_millis(50);

/// The longest answer of a program that is read.
const LONGEST: u64 = 4 << 20;

/// The processes that somebody here started and waits for. A process has one set of children, whoever asks.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The processes below this one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Children;

/// A process that is waited for.
#[derive(Debug)]
pub(crate) struct Own {
    child: Child,
    pid: i32,
}

impl Children {
    /// Becomes the one whom orphans are left to, also where this is not the first process of its container.
    pub(crate) fn adopt() -> Children {
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            warn!("orphans may be left to another process: {error}");
        }
        Children
    }

    /// Starts a program.
    pub(crate) fn spawn(&self, command: &mut Command) -> anyhow::Result<Own> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let mut own = own();
        let child = command.spawn().with_context(|| format!("running {program}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("a process that has no id")?;
        own.insert(pid);
        drop(own);
        Ok(Own { child, pid })
    }

    /// Runs a program to its end, for as long as it may take, and gives what it said.
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
                // Whoever waits for nothing leaves a process behind.
                let _ = own.child.kill().await;
                anyhow::bail!("no answer within {} s", limit.as_secs())
            }
        }
    }

    /// Takes note of the end of orphans, for as long as it is polled.
    pub(crate) async fn reap(self) -> anyhow::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        loop {
            while let Some(pid) = self.orphan() {
                match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                    Ok(status) => debug!("an orphan has ended: {status:?}"),
                    Err(error) => debug!("an orphan has ended: {error}"),
                }
            }
            // One of our own that has ended may hide an orphan that has, until it is waited for.
            let _ = tokio::time::timeout(Duration::from_secs(2), ended.recv()).await;
        }
    }

    /// An orphan that has ended.
    fn orphan(&self) -> Option<Pid> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, flags).ok()? {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => pid,
            _ => return None,
        };
        (!own().contains(&pid.as_raw())).then_some(pid)
    }

    /// Ends all processes that were left to this one: tells them to, and after a while sees to it.
    pub(crate) async fn end_orphans(&self, patience: Duration) {
        for (what, limit) in [(Signal::SIGTERM, patience), (Signal::SIGKILL, Duration::from_secs(2))] {
            let left = self.orphans();
            if left.is_empty() {
                return;
            }
            info!("{what} to {} processes that glusterd left", left.len());
            for pid in left {
                // It may have ended just now.
                let _ = kill(pid, what);
            }
            let _ = tokio::time::timeout(limit, async {
                while !self.orphans().is_empty() {
                    tokio::time::sleep(LOOK).await;
                }
            })
            .await;
        }
    }

    /// The processes below this one that it did not start, without those that have ended.
    fn orphans(&self) -> Vec<Pid> {
        let me = nix::unistd::getpid().as_raw();
        let own = own();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = pids.filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !own.contains(pid) && parent(&stat).is_some_and(|(state, parent)| parent == me && state != "Z")
        });
        ours.map(Pid::from_raw).collect()
    }
}

impl Own {
    /// Its id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Tells it to end, and after a while sees to it.
    pub(crate) async fn end(&mut self, patience: Duration) -> std::io::Result<ExitStatus> {
        // It may have ended just now.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        match tokio::time::timeout(patience, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                warn!("process {} did not end within {} s and is killed", self.pid, patience.as_secs());
                self.child.kill().await?;
                self.child.wait().await
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        own().remove(&self.pid);
    }
}

fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(LONGEST).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// State and parent in a line of `/proc/PID/stat`; the name before them may hold anything.
fn parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_the_name() {
        for (stat, found) in [
            ("12 (glusterfsd) S 1 12 12 0", Some(("S", 1))),
            ("12 (a ) Z 9 (b) Z 7 12", Some(("Z", 7))),
            ("12 (a", None),
            ("", None),
        ] {
            assert_eq!(parent(stat), found, "{stat}");
        }
    }

    /// Runs a shell that leaves one behind that ends by itself and one that does not; gives their ids.
    async fn leave_two(children: &Children) -> Vec<i32> {
        let script = "sleep 0.1 >&- 2>&- & echo $!; sleep 100 >&- 2>&- & echo $!";
        let output = children.output(Command::new("sh").args(["-c", script]), Duration::from_secs(3600)).await.unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn orphans_are_noted_and_ended() {
        let children = Children::adopt();
        let reaper = tokio::spawn(children.reap());
        let left = leave_two(&children).await;
        let there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap();
        while there(left[0]) {
            tokio::time::sleep(LOOK).await;
        }
        assert!(there(left[1]) && children.orphans().contains(&Pid::from_raw(left[1])));
        children.end_orphans(Duration::from_secs(5)).await;
        assert!(!children.orphans().contains(&Pid::from_raw(left[1])));
        reaper.abort();
    }

    #[tokio::test]
    async fn what_takes_too_long_is_ended() {
        let children = Children;
        let sleep = children.output(Command::new("sleep").arg("100"), Duration::from_millis(200)).await;
        assert_eq!(sleep.unwrap_err().to_string(), "no answer within 0 s");
    }
}
