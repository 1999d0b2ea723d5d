//! Keeps glusterd running.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::children::Children;

/// How long glusterd may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay before glusterd is restarted after it exited: at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// A run of at least this duration resets the delay.
const STABLE_RUN: Duration = Duration::from_secs(30);

/// The state of glusterd's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// It is not supposed to run.
    Stopped,
    /// It runs.
    Running,
    /// It exited by itself and is restarted shortly.
    Failed {
        /// When the current series of failures began.
        since: Instant,
    },
}

/// Starts and stops glusterd, and tells its state.
#[derive(Debug)]
pub(crate) struct Daemon {
    wanted: watch::Sender<bool>,
    process: watch::Receiver<Process>,
}

impl Daemon {
    /// A stopped daemon, and the future that supervises it.
    pub(crate) fn new(command: Vec<String>, children: Children) -> (Daemon, impl Future<Output = ()>) {
        let (wanted, wants) = watch::channel(false);
        let (tell, process) = watch::channel(Process::Stopped);
        (Daemon { wanted, process }, supervise(command, children, wants, tell))
    }

    pub(crate) fn process(&self) -> Process {
        *self.process.borrow()
    }

    /// Subscribes to changes of the process's state.
    pub(crate) fn changes(&self) -> watch::Receiver<Process> {
        self.process.clone()
    }

    /// Starts glusterd; does not wait.
    pub(crate) fn start(&self) {
        self.wanted.send_replace(true);
    }

    /// Stops glusterd and waits until it has exited. Its bricks keep running.
    pub(crate) async fn stop(&self) {
        self.wanted.send_replace(false);
        let mut process = self.process.clone();
        // If nothing supervises it any more, it has exited.
        let _ = process.wait_for(|p| *p == Process::Stopped).await;
    }
}

async fn supervise(
    command: Vec<String>,
    children: Children,
    mut wanted: watch::Receiver<bool>,
    tell: watch::Sender<Process>,
) {
    let mut back_off = BACK_OFF.0;
    let mut failing: Option<Instant> = None;
    loop {
        if wanted.wait_for(|wanted| *wanted).await.is_err() {
            return;
        }
        let began = Instant::now();
        let arguments = command.get(1..).unwrap_or_default();
        let mut program = Command::new(command.first().map_or("glusterd", String::as_str));
        program.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        match children.spawn(&mut program) {
            Ok(mut glusterd) => {
                info!("glusterd runs as process {}", glusterd.pid());
                tell.send_replace(Process::Running);
                let stopped = tokio::select! {
                    ended = glusterd.wait() => {
                        match ended {
                            Ok(status) => warn!("glusterd exited by itself: {status}"),
                            Err(error) => warn!("glusterd exited by itself: {error}"),
                        }
                        false
                    }
                    _ = wanted.wait_for(|wanted| !*wanted) => true,
                };
                if stopped {
                    match glusterd.terminate(STOP_TIMEOUT).await {
                        Ok(status) => info!("glusterd was stopped: {status}"),
                        Err(error) => warn!("stopping glusterd: {error}"),
                    }
                    drop(glusterd);
                    (back_off, failing) = (BACK_OFF.0, None);
                    tell.send_replace(Process::Stopped);
                    continue;
                }
            }
            Err(error) => warn!("{error:#}"),
        }
        if began.elapsed() >= STABLE_RUN {
            (back_off, failing) = (BACK_OFF.0, None);
        }
        tell.send_replace(Process::Failed { since: *failing.get_or_insert_with(Instant::now) });
        tokio::select! {
            () = tokio::time::sleep(back_off) => back_off = (back_off * 2).min(BACK_OFF.1),
            _ = wanted.wait_for(|wanted| !*wanted) => {
                failing = None;
                tell.send_replace(Process::Stopped);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn glusterd_runs_only_between_start_and_stop() {
        let (daemon, supervised) = Daemon::new(shell("exec sleep 1000"), Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        assert_eq!(daemon.process(), Process::Stopped);
        daemon.start();
        changes.wait_for(|p| *p == Process::Running).await.unwrap();
        daemon.stop().await;
        assert_eq!(daemon.process(), Process::Stopped);
        daemon.start();
        changes.wait_for(|p| *p == Process::Running).await.unwrap();
        daemon.stop().await;
        task.abort();
    }

    #[tokio::test]
    async fn glusterd_is_restarted_after_it_exits() {
        let file = std::env::temp_dir().join(format!("stead-agent-daemon-{}", std::process::id()));
        let script = format!("echo x >> {0}; [ $(wc -l < {0}) -ge 2 ] && exec sleep 1000; exit 3", file.display());
        let (daemon, supervised) = Daemon::new(shell(&script), Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        daemon.start();
        changes.wait_for(|p| matches!(p, Process::Failed { .. })).await.unwrap();
        // The state becomes Running before the script's first line has run.
        while std::fs::read_to_string(&file).unwrap().lines().count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(daemon.process(), Process::Running);
        daemon.stop().await;
        task.abort();
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_is_retried() {
        let (daemon, supervised) = Daemon::new(vec!["/no/such/program".into()], Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        daemon.start();
        changes.wait_for(|p| matches!(p, Process::Failed { .. })).await.unwrap();
        daemon.stop().await;
        task.abort();
    }
}
