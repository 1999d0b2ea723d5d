//! glusterd, kept running.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::children::Children;

/// How long glusterd may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How soon it is started again after it ended by itself, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// After how long a run counts as a good one.
const GOOD: Duration = Duration::from_secs(30);

/// How glusterd's process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// It is not to run.
    Stopped,
    /// It runs.
    Runs,
    /// It ended by itself, at this time or before, and is started again shortly.
    Failed {
        /// Since when it has not had a good run.
        since: Instant,
    },
}

/// Tells whether glusterd is to run, and how it is.
#[derive(Debug)]
pub(crate) struct Daemon {
    wanted: watch::Sender<bool>,
    process: watch::Receiver<Process>,
}

impl Daemon {
    /// One that is not to run yet, and what keeps it running from then on.
    pub(crate) fn new(command: Vec<String>, children: Children) -> (Daemon, impl Future<Output = ()>) {
        let (wanted, wants) = watch::channel(false);
        let (tell, process) = watch::channel(Process::Stopped);
        (Daemon { wanted, process }, supervise(command, children, wants, tell))
    }

    /// How its process is.
    pub(crate) fn process(&self) -> Process {
        *self.process.borrow()
    }

    /// Tells of each change of its process.
    pub(crate) fn changes(&self) -> watch::Receiver<Process> {
        self.process.clone()
    }

    /// Lets it run.
    pub(crate) fn start(&self) {
        self.wanted.send_replace(true);
    }

    /// Stops it, and waits until it has ended. Its bricks go on.
    pub(crate) async fn stop(&self) {
        self.wanted.send_replace(false);
        let mut process = self.process.clone();
        // Where nobody supervises it any more, it has been ended.
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
                tell.send_replace(Process::Runs);
                let stopped = tokio::select! {
                    ended = glusterd.wait() => {
                        match ended {
                            Ok(status) => warn!("glusterd ended by itself: {status}"),
                            Err(error) => warn!("glusterd ended by itself: {error}"),
                        }
                        false
                    }
                    _ = wanted.wait_for(|wanted| !*wanted) => true,
                };
                if stopped {
                    match glusterd.end(PATIENCE).await {
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
        if began.elapsed() >= GOOD {
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
    async fn it_runs_only_when_it_is_wanted() {
        let (daemon, supervised) = Daemon::new(shell("exec sleep 1000"), Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        assert_eq!(daemon.process(), Process::Stopped);
        daemon.start();
        changes.wait_for(|p| *p == Process::Runs).await.unwrap();
        daemon.stop().await;
        assert_eq!(daemon.process(), Process::Stopped);
        daemon.start();
        changes.wait_for(|p| *p == Process::Runs).await.unwrap();
        daemon.stop().await;
        task.abort();
    }

    #[tokio::test]
    async fn one_that_ends_by_itself_is_started_again() {
        let file = std::env::temp_dir().join(format!("stead-agent-daemon-{}", std::process::id()));
        let script = format!("echo x >> {0}; [ $(wc -l < {0}) -ge 2 ] && exec sleep 1000; exit 3", file.display());
        let (daemon, supervised) = Daemon::new(shell(&script), Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        daemon.start();
        changes.wait_for(|p| matches!(p, Process::Failed { .. })).await.unwrap();
        // That it runs is said before its first line does anything.
        while std::fs::read_to_string(&file).unwrap().lines().count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(daemon.process(), Process::Runs);
        daemon.stop().await;
        task.abort();
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn one_that_cannot_be_started_is_no_end() {
        let (daemon, supervised) = Daemon::new(vec!["/no/such/program".into()], Children);
        let task = tokio::spawn(supervised);
        let mut changes = daemon.changes();
        daemon.start();
        changes.wait_for(|p| matches!(p, Process::Failed { .. })).await.unwrap();
        daemon.stop().await;
        task.abort();
    }
}
