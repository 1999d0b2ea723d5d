//! Counts the pending heals on this pod's bricks, or from them.
//!
//! A brick that missed writes does not know it: the other bricks of its set keep an index of what it missed. The
//! indexes of this pod's bricks are read as files, which is cheap. For the others Gluster is queried, which starts a
//! client of the volume. That happens after a start, after a peer was disconnected and when the volumes change, until
//! no heals are pending, and rarely otherwise.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::parse::Heal;
use stead_pool::{Brick, BrickPath, Daemon, GlusterVolume, HostName, PeerId, PeerState, Report, VolumeName};
use tracing::{debug, warn};

use crate::shared::Shared;
use crate::state_dir::StateContent;

/// How often the indexes of this pod's bricks are read.
const INDEX_INTERVAL: Duration = Duration::from_secs(5);

/// The interval of queries while heals are pending.
const PENDING_INTERVAL: Duration = Duration::from_secs(5);

/// The interval of queries while the number of pending heals is not known: at first and at most.
const UNKNOWN_INTERVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// The interval of queries while there is no reason to expect pending heals.
const IDLE_INTERVAL: Duration = Duration::from_secs(300);

/// How long reading a brick may take before the brick counts as stuck.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// The maximum number of entries counted in an index.
const MAX_ENTRIES: u64 = 100_000;

/// The last count of pending heals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HealCount {
    /// The volumes that were counted.
    volumes: Vec<VolumeLayout>,
    /// The number of pending heals; none if it is not known.
    pending: Option<u64>,
    /// This pod's bricks that did not answer.
    pub(crate) stuck: Vec<BrickPath>,
}

/// Counts the entries of a brick's index.
pub(crate) type IndexReader = fn(&Path) -> io::Result<u64>;

impl HealCount {
    /// Returns the pending heals of these volumes; none if other volumes were counted.
    pub(crate) fn pending(&self, volumes: &[GlusterVolume]) -> Option<u64> {
        self.pending.filter(|_| self.volumes == layouts(volumes))
    }
}

/// The properties of a volume that matter for healing: its name, whether it is started, and its bricks.
type VolumeLayout = (VolumeName, bool, Vec<Brick>);

fn layouts(volumes: &[GlusterVolume]) -> Vec<VolumeLayout> {
    volumes.iter().map(|volume| (volume.name.clone(), volume.started, volume.bricks.clone())).collect()
}

/// Keeps the count up to date, for as long as it is polled.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut observation = shared.observation.subscribe();
    let mut queried_with: Option<QueryInputs> = None;
    let (mut pause, mut next) = (UNKNOWN_INTERVAL.0, Instant::now());
    loop {
        let report = observation.borrow_and_update().report.clone();
        let content = shared.state.read(&shared.host()).await.ok().filter(|_| report.daemon == Daemon::Running);
        if let Some(content) = content {
            let now = query_inputs(&report);
            if queried_with.as_ref() != Some(&now) {
                (pause, next) = (UNKNOWN_INTERVAL.0, Instant::now());
                queried_with = Some(now);
            }
            let (counted, stuck) = count_own_entries(&shared, &content).await;
            let pending = match counted {
                // A brick that does not answer cannot tell what is pending.
                _ if !stuck.is_empty() => None,
                // A non-empty index of this pod is enough to know that heals are pending.
                Some(0) | None if Instant::now() >= next => {
                    let pending = query_gluster(&shared, &content).await;
                    (pause, next) = match pending {
                        Some(0) => (UNKNOWN_INTERVAL.0, Instant::now() + IDLE_INTERVAL),
                        Some(_) => (UNKNOWN_INTERVAL.0, Instant::now() + PENDING_INTERVAL),
                        None => ((pause * 2).min(UNKNOWN_INTERVAL.1), Instant::now() + pause),
                    };
                    pending
                }
                Some(0) | None => shared.heals.borrow().pending(&content.volumes),
                here => {
                    (pause, next) = (UNKNOWN_INTERVAL.0, Instant::now());
                    here
                }
            };
            let counted = HealCount { volumes: layouts(&content.volumes), pending, stuck };
            if shared.heals.send_if_modified(|before| std::mem::replace(before, counted.clone()) != counted) {
                shared.nudge.notify_one();
            }
        }
        let pause = INDEX_INTERVAL.min(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(500)));
        let news = async {
            // The borrowed observation is dropped at once: while it is held, no new one can be made.
            drop(
                observation
                    .wait_for(|observation| queried_with.as_ref() != Some(&query_inputs(&observation.report)))
                    .await,
            );
            // Limits how often changes lead to a new count.
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = news => {}
        }
    }
}

/// The inputs of a query's answer: when they change, Gluster is queried again.
type QueryInputs = (BTreeSet<PeerId>, Vec<VolumeLayout>);

fn query_inputs(report: &Report) -> QueryInputs {
    (connected_members(report), layouts(&report.volumes))
}

/// The connected members of the pool; empty while glusterd does not answer.
fn connected_members(report: &Report) -> BTreeSet<PeerId> {
    let there = report.peers.iter().filter(|peer| peer.connected && peer.state == PeerState::Befriended);
    there.filter_map(|peer| peer.uuid).collect()
}

/// The started volumes with more than one copy of the data, one of them on this pod.
fn shared_volumes(content: &StateContent) -> impl Iterator<Item = &GlusterVolume> {
    content.volumes.iter().filter(|volume| {
        let here = content.state.volumes.get(&volume.name).is_some_and(|bricks| !bricks.is_empty());
        volume.started && here && content.sets.get(&volume.name).is_some_and(|set| *set > 1)
    })
}

/// Counts the entries in the indexes of this pod's bricks: none if one cannot be read. Also returns the bricks that did
/// not answer.
async fn count_own_entries(shared: &Shared, content: &StateContent) -> (Option<u64>, Vec<BrickPath>) {
    let (mut count, mut stuck) = (Some(0), Vec::new());
    for volume in shared_volumes(content) {
        for path in content.state.volumes.get(&volume.name).into_iter().flatten() {
            let (reader, brick) = (shared.count_index, PathBuf::from(&**path));
            match shared.disks.run(&brick.clone(), READ_TIMEOUT, move || reader(&brick)).await {
                Ok(Ok(entries)) => count = count.map(|count| count + entries),
                Ok(Err(error)) => {
                    debug!("{path}: {error}");
                    count = None;
                }
                Err(error) => {
                    warn!("{error}");
                    stuck.push(path.clone());
                }
            }
        }
    }
    (count, stuck)
}

/// Counts the entries of a brick's index.
pub(crate) fn count_index(brick: &Path) -> io::Result<u64> {
    let entries = std::fs::read_dir(brick.join(".glusterfs/indices/xattrop"))?;
    // One file is always there: all entries are hard links to it.
    let entries = entries.flatten().filter(|e| !e.file_name().to_string_lossy().starts_with("xattrop-"));
    Ok(u64::try_from(entries.take(MAX_ENTRIES as usize).count()).unwrap_or(MAX_ENTRIES))
}

/// Queries Gluster for the pending heals; none if it cannot tell.
async fn query_gluster(shared: &Shared, content: &StateContent) -> Option<u64> {
    let mut count = 0;
    for volume in shared_volumes(content) {
        match shared.gluster.heals(&volume.name).await {
            Ok(heals) => {
                let set = content.sets.get(&volume.name).copied().unwrap_or(1);
                count += pending_here(&heals, set, &shared.host(), content.state.uuid)?;
            }
            Err(error) => {
                debug!("{error:#}");
                return None;
            }
        }
    }
    Some(count)
}

/// Returns the pending heals of the sets that contain a brick of this pod; none if they are not known. A brick on
/// another pod without an answer is down; the others know what it lacks. But that no heals are pending is certain only
/// if more than half of a set answered: a brick that is down may be the only one that knows what this pod's bricks
/// lack.
fn pending_here(heals: &[Heal], set: usize, host: &HostName, uuid: Option<PeerId>) -> Option<u64> {
    let own = |heal: &Heal| heal.host == *host || (heal.uuid.is_some() && heal.uuid == uuid);
    let (mut count, mut sets, mut uncertain) = (0, 0, false);
    for bricks in heals.chunks(set.max(1)).filter(|bricks| bricks.iter().any(own)) {
        if bricks.iter().any(|brick| own(brick) && brick.entries.is_none()) {
            return None;
        }
        let answered: Vec<u64> = bricks.iter().filter_map(|brick| brick.entries).collect();
        count += answered.iter().sum::<u64>();
        sets += 1;
        uncertain |= answered.len() * 2 <= bricks.len();
    }
    // An answer without this pod's bricks says nothing about them.
    (count > 0 || (sets > 0 && !uncertain)).then_some(count)
}

#[cfg(test)]
mod tests {
    use crate::cluster::PoolObjects;
    use crate::observe::observe_once;
    use crate::test_agent::{A, TestAgent, name};

    use super::*;

    fn heal(host: &str, entries: Option<u64>) -> Heal {
        Heal { host: name(host), uuid: None, path: name("/data/b"), entries }
    }

    #[test]
    fn only_sets_with_a_brick_here_count() {
        for (heals, set, found) in [
            (vec![heal("a", Some(0)), heal("b", Some(2)), heal("c", Some(1))], 3, Some(3)),
            (vec![heal("a", Some(0)), heal("b", Some(0)), heal("c", Some(5)), heal("d", Some(5))], 2, Some(0)),
            (vec![heal("a", Some(0)), heal("b", None), heal("c", Some(4))], 3, Some(4)),
            (vec![heal("a", None), heal("b", Some(1)), heal("c", Some(4))], 3, None),
            (vec![heal("a", Some(0)), heal("b", None), heal("c", Some(0))], 3, Some(0)),
            (vec![heal("a", Some(0)), heal("b", None), heal("c", None)], 3, None),
            (vec![heal("a", Some(2)), heal("b", None), heal("c", None)], 3, Some(2)),
            (vec![heal("a", Some(0)), heal("b", None)], 2, None),
            (vec![heal("a", Some(0)), heal("b", Some(0)), heal("a", Some(0)), heal("c", None)], 2, None),
            (vec![heal("a", Some(0)), heal("b", Some(0)), heal("c", None), heal("d", None)], 2, Some(0)),
            (vec![heal("b", Some(0)), heal("c", Some(0))], 2, None),
            (vec![], 3, None),
        ] {
            assert_eq!(pending_here(&heals, set, &name("a"), None), found, "{heals:?}");
        }
    }

    /// A brick on a hung disk is reported, and does not block the runtime's only thread.
    #[tokio::test]
    async fn a_brick_that_does_not_answer_is_reported_and_blocks_nothing() {
        fn never_returns(_: &Path) -> io::Result<u64> {
            loop {
                std::thread::park();
            }
        }
        let mut agent = TestAgent::new("hung-brick", "http://127.0.0.1:1", Some(3), PoolObjects::default()).await;
        agent.set_index_reader(never_returns);
        agent.write("vols/gv0/info", "type=2\nstatus=1\nsub_count=2\nversion=1\n");
        agent.write("vols/gv0/bricks/a", &format!("uuid={A}\nhostname=g-0\npath=/data/b\n"));
        agent.write("vols/gv0/bricks/b", "hostname=g-1\npath=/data/b\n");
        let shared = &agent.shared;
        tokio::spawn(run(shared.clone()));
        let mut heals = shared.heals.subscribe();
        let stuck = heals.wait_for(|counted| !counted.stuck.is_empty());
        let stuck =
            tokio::time::timeout(Duration::from_secs(60), stuck).await.expect("in time").expect("kept").stuck.clone();
        assert_eq!(stuck, [name::<BrickPath>("/data/b")]);
        let report = observe_once(shared).await;
        assert_eq!((report.daemon, report.heals, &report.stuck_bricks), (Daemon::Running, None, &stuck));
    }

    #[test]
    fn a_count_of_other_volumes_is_not_used() {
        let volume = |volume: &str, started: bool, hosts: &[&str]| GlusterVolume {
            name: name(volume),
            version: Some(1),
            checksum: None,
            started,
            bricks: hosts.iter().map(|h| Brick { host: name(h), uuid: None, path: name("/data/b") }).collect(),
        };
        let before = vec![volume("gv0", true, &["a", "b"])];
        let counted = HealCount { volumes: layouts(&before), pending: Some(0), stuck: Vec::new() };
        for (volumes, found) in [
            (before.clone(), Some(0)),
            (vec![GlusterVolume { version: Some(2), ..before[0].clone() }], Some(0)),
            (vec![volume("gv0", false, &["a", "b"])], None),
            (vec![volume("gv0", true, &["a", "c"])], None),
            (vec![before[0].clone(), volume("gv1", true, &["a", "b"])], None),
        ] {
            assert_eq!(counted.pending(&volumes), found, "{volumes:?}");
        }
        // A pod that lost its state had no volumes at the first count.
        assert_eq!(HealCount { pending: Some(0), ..HealCount::default() }.pending(&before), None);
    }
}
