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

/// Observes this pod, for as long as it is polled.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut process = shared.daemon.changes();
    loop {
        let began = Instant::now();
        let report = observe_once(&shared).await;
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

/// Observes this pod once.
pub(crate) async fn observe_once(shared: &Shared) -> Report {
    let mut daemon = match shared.daemon.process() {
        Process::Stopped => Daemon::Stopped,
        Process::Running | Process::Failed { .. } => Daemon::Starting,
    };
    let mut answered = None;
    if shared.daemon.process() == Process::Running {
        match shared.gluster.peers().await {
            Ok(peers) => (daemon, answered) = (Daemon::Running, Some(peers)),
            Err(error) => debug!("{error:#}"),
        }
    }
    // glusterd creates its identity at the first query, so its files are read after that.
    let pod = &shared.settings.pod;
    let content = match shared.state.read(&shared.host()).await {
        Ok(content) => content,
        // Nothing is known of this pod while its disk does not answer.
        Err(error) => {
            return Report {
                daemon: Daemon::Starting,
                doing: Some(error.to_string()),
                ..initial_report(&shared.settings)
            };
        }
    };
    let bricks = content.state.volumes.values().any(|bricks| !bricks.is_empty());
    let stuck_bricks = shared.heals.borrow().stuck.clone();
    let done = content.done(&pod.uid);
    Report {
        ordinal: pod.ordinal,
        pod: pod.uid.clone(),
        address: pod.address.clone(),
        daemon,
        uuid: content.state.uuid,
        operating_version: content.state.operating_version,
        // The files of a glusterd that does not answer still tell which peers it knows.
        peers: answered.unwrap_or_else(|| content.state.peers.iter().map(peer_from_file).collect()),
        heals: if bricks { shared.heals.borrow().pending(&content.volumes) } else { Some(0) },
        volumes: content.volumes,
        stuck_bricks,
        done,
        doing: shared.doing(),
    }
}

fn peer_from_file(file: &PeerFile) -> Peer {
    Peer { uuid: Some(file.uuid), hosts: file.hosts.clone(), state: PeerState::of(file.state), connected: false }
}
