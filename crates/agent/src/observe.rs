//! Observes this pod: often while something changes, rarely otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::{Daemon, Peer, PeerFile, PeerState, Report};
use tracing::debug;

use crate::daemon::Process;
use crate::shared::{Observation, Shared, initial_report};

/// The interval while glusterd starts.
const STARTING: Duration = Duration::from_millis(250);

/// The interval after a change, and for how long it is used.
const CHANGING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The interval while nothing changes.
const REST: Duration = Duration::from_secs(10);

/// Observes for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut process = shared.daemon.changes();
    loop {
        let began = Instant::now();
        let report = look(&shared).await;
        let starting = report.daemon == Daemon::Starting;
        let mut changed = began;
        shared.observation.send_modify(|observation| {
            changed = if observation.report == report { observation.changed } else { began };
            *observation = Observation { report, began, changed };
        });
        let pause = match changed.elapsed() {
            _ if starting => STARTING,
            age if age < CHANGING.1 => CHANGING.0,
            _ => REST,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.nudge.notified() => {}
            _ = process.changed() => {}
        }
    }
}

/// Makes one report.
pub(crate) async fn look(shared: &Shared) -> Report {
    let mut daemon = match shared.daemon.process() {
        Process::Stopped => Daemon::Stopped,
        Process::Runs | Process::Failed { .. } => Daemon::Starting,
    };
    let mut seen = None;
    if shared.daemon.process() == Process::Runs {
        match shared.gluster.peers().await {
            Ok(peers) => (daemon, seen) = (Daemon::Running, Some(peers)),
            Err(error) => debug!("{error:#}"),
        }
    }
    // glusterd makes its identity when it is first asked for something, so its files are read after that.
    let pod = &shared.settings.pod;
    let held = match shared.state.read(&shared.host()).await {
        Ok(held) => held,
        // Nothing is known of this pod while its disk does not answer: it is waited for.
        Err(error) => {
            return Report {
                daemon: Daemon::Starting,
                doing: Some(error.to_string()),
                ..initial_report(&shared.settings)
            };
        }
    };
    let bricks = held.state.volumes.values().any(|bricks| !bricks.is_empty());
    let stuck_bricks = shared.heals.borrow().stuck.clone();
    let done = held.done(&pod.uid);
    Report {
        ordinal: pod.ordinal,
        pod: pod.uid.clone(),
        address: pod.address.clone(),
        daemon,
        uuid: held.state.uuid,
        operating_version: held.state.operating_version,
        // A glusterd that does not answer has still said in its files whom it knows.
        peers: seen.unwrap_or_else(|| held.state.peers.iter().map(remembered).collect()),
        heals: if bricks { shared.heals.borrow().pending(&held.volumes) } else { Some(0) },
        volumes: held.volumes,
        stuck_bricks,
        done,
        doing: shared.doing(),
    }
}

fn remembered(file: &PeerFile) -> Peer {
    Peer { uuid: Some(file.uuid), hosts: file.hosts.clone(), state: PeerState::of(file.state), connected: false }
}
