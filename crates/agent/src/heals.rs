//! What waits to be healed on this pod's bricks, or from them.
//!
//! A brick that missed writes knows nothing of it: the others of its set have an index of what it missed. Our own
//! bricks' indexes are read as files, which costs nothing. What the others have is asked of Gluster, which starts a
//! client of the volume for it; that is done after a start, after a peer was away and when the volumes are other ones,
//! until nothing waits, and seldom otherwise.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::parse::Heal;
use stead_pool::{Brick, BrickPath, Daemon, HostName, PeerId, PeerState, Report, Volume, VolumeName};
use tracing::{debug, warn};

use crate::shared::Shared;
use crate::state_dir::Held;

/// How often our own indexes are read.
const LOOK: Duration = Duration::from_secs(5);

/// How soon Gluster is asked again while something waits.
const HEALING: Duration = Duration::from_secs(5);

/// How soon Gluster is asked again while it cannot be told what waits: at first, and at most.
const ASK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// How often Gluster is asked where there is no reason to.
const SELDOM: Duration = Duration::from_secs(300);

/// How long a brick may take to be read before it counts as one that does not answer.
const READ: Duration = Duration::from_secs(3);

/// The most entries that are counted in an index.
const MOST: u64 = 100_000;

/// What was counted last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The volumes that it was counted in.
    of: Vec<Shape>,
    /// Entries that wait; none if that is not known.
    pending: Option<u64>,
    /// Bricks of this pod that did not answer.
    pub(crate) stuck: Vec<BrickPath>,
}

/// Counts the entries of a brick's index.
pub(crate) type IndexReader = fn(&Path) -> io::Result<u64>;

impl Counted {
    /// What waits in these volumes; none if it was counted in other ones.
    pub(crate) fn pending(&self, volumes: &[Volume]) -> Option<u64> {
        self.pending.filter(|_| self.of == shapes(volumes))
    }
}

/// What a volume is made of, as far as healing is concerned: its name, whether it is started, and its bricks.
type Shape = (VolumeName, bool, Vec<Brick>);

fn shapes(volumes: &[Volume]) -> Vec<Shape> {
    volumes.iter().map(|volume| (volume.name.clone(), volume.started, volume.bricks.clone())).collect()
}

/// Keeps count for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut observation = shared.observation.subscribe();
    let mut asked_in: Option<Circumstances> = None;
    let (mut pause, mut next) = (ASK.0, Instant::now());
    loop {
        let report = observation.borrow_and_update().report.clone();
        let held = shared.state.read(&shared.host()).await.ok().filter(|_| report.daemon == Daemon::Running);
        if let Some(held) = held {
            let now = circumstances(&report);
            if asked_in.as_ref() != Some(&now) {
                (pause, next) = (ASK.0, Instant::now());
                asked_in = Some(now);
            }
            let (counted, stuck) = index(&shared, &held).await;
            let pending = match counted {
                // A brick that does not answer cannot tell what waits.
                _ if !stuck.is_empty() => None,
                // Our own index is enough to know that something waits.
                Some(0) | None if Instant::now() >= next => {
                    let pending = asked(&shared, &held).await;
                    (pause, next) = match pending {
                        Some(0) => (ASK.0, Instant::now() + SELDOM),
                        Some(_) => (ASK.0, Instant::now() + HEALING),
                        None => ((pause * 2).min(ASK.1), Instant::now() + pause),
                    };
                    pending
                }
                Some(0) | None => shared.heals.borrow().pending(&held.volumes),
                here => {
                    (pause, next) = (ASK.0, Instant::now());
                    here
                }
            };
            let counted = Counted { of: shapes(&held.volumes), pending, stuck };
            if shared.heals.send_if_modified(|before| std::mem::replace(before, counted.clone()) != counted) {
                shared.nudge.notify_one();
            }
        }
        let pause = LOOK.min(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(500)));
        let news = async {
            // What was seen is let go of at once: as long as somebody holds it, nobody can look.
            drop(
                observation
                    .wait_for(|observation| asked_in.as_ref() != Some(&circumstances(&observation.report)))
                    .await,
            );
            // Between two looks, as many as there are changes, but not more.
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = news => {}
        }
    }
}

/// What an answer of Gluster depends on: when it is another one, it is asked again.
type Circumstances = (BTreeSet<PeerId>, Vec<Shape>);

fn circumstances(report: &Report) -> Circumstances {
    (companions(report), shapes(&report.volumes))
}

/// The peers that are of the pool and there; none while glusterd does not answer.
fn companions(report: &Report) -> BTreeSet<PeerId> {
    let there = report.peers.iter().filter(|peer| peer.connected && peer.state == PeerState::Befriended);
    there.filter_map(|peer| peer.uuid).collect()
}

/// The volumes that have more than one copy, one of them here.
fn shared_volumes(held: &Held) -> impl Iterator<Item = &Volume> {
    held.volumes.iter().filter(|volume| {
        let here = held.state.volumes.get(&volume.name).is_some_and(|bricks| !bricks.is_empty());
        volume.started && here && held.sets.get(&volume.name).is_some_and(|set| *set > 1)
    })
}

/// How many entries our own bricks know that others lack, none if an index cannot be read; and the bricks that did not
/// answer.
async fn index(shared: &Shared, held: &Held) -> (Option<u64>, Vec<BrickPath>) {
    let (mut count, mut stuck) = (Some(0), Vec::new());
    for volume in shared_volumes(held) {
        for path in held.state.volumes.get(&volume.name).into_iter().flatten() {
            let (reader, brick) = (shared.count_index, PathBuf::from(&**path));
            match shared.disks.on(&brick.clone(), READ, move || reader(&brick)).await {
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
    // One file, to which all entries are links, is always there.
    let entries = entries.flatten().filter(|e| !e.file_name().to_string_lossy().starts_with("xattrop-"));
    Ok(u64::try_from(entries.take(MOST as usize).count()).unwrap_or(MOST))
}

/// What Gluster says; none if it cannot tell.
async fn asked(shared: &Shared, held: &Held) -> Option<u64> {
    let mut count = 0;
    for volume in shared_volumes(held) {
        match shared.gluster.heals(&volume.name).await {
            Ok(heals) => {
                let set = held.sets.get(&volume.name).copied().unwrap_or(1);
                count += involved(&heals, set, &shared.host(), held.state.uuid)?;
            }
            Err(error) => {
                debug!("{error:#}");
                return None;
            }
        }
    }
    Some(count)
}

/// The entries of those sets of bricks that one of this pod's is in; none if that cannot be told. A brick elsewhere that
/// cannot tell is away; what it lacks, the others know. But that nothing waits is known only where more than half of a set
/// can tell: what this pod's bricks lack, one that is away may be the only one to know.
fn involved(heals: &[Heal], set: usize, host: &HostName, uuid: Option<PeerId>) -> Option<u64> {
    let own = |heal: &Heal| heal.host == *host || (heal.uuid.is_some() && heal.uuid == uuid);
    let (mut count, mut sets, mut unsure) = (0, 0, false);
    for bricks in heals.chunks(set.max(1)).filter(|bricks| bricks.iter().any(own)) {
        if bricks.iter().any(|brick| own(brick) && brick.entries.is_none()) {
            return None;
        }
        let told: Vec<u64> = bricks.iter().filter_map(|brick| brick.entries).collect();
        count += told.iter().sum::<u64>();
        sets += 1;
        unsure |= told.len() * 2 <= bricks.len();
    }
    // An answer that has none of this pod's bricks is not about them.
    (count > 0 || (sets > 0 && !unsure)).then_some(count)
}

#[cfg(test)]
mod tests {
    use crate::cluster::Seen;
    use crate::observe::look;
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
            assert_eq!(involved(&heals, set, &name("a"), None), found, "{heals:?}");
        }
    }

    /// A brick whose disk hangs is reported, and everything else goes on: on the one thread that there is.
    #[tokio::test]
    async fn a_brick_that_does_not_answer_is_reported_and_blocks_nothing() {
        fn never_returns(_: &Path) -> io::Result<u64> {
            loop {
                std::thread::park();
            }
        }
        let mut agent = TestAgent::new("hung-brick", "http://127.0.0.1:1", Some(3), Seen::default()).await;
        agent.reads_bricks_with(never_returns);
        agent.write("vols/gv0/info", "type=2\nstatus=1\nsub_count=2\nversion=1\n");
        agent.write("vols/gv0/bricks/a", &format!("uuid={A}\nhostname=g-0\npath=/data/b\n"));
        agent.write("vols/gv0/bricks/b", "hostname=g-1\npath=/data/b\n");
        let shared = &agent.shared;
        tokio::spawn(keep(shared.clone()));
        let mut heals = shared.heals.subscribe();
        let stuck = heals.wait_for(|counted| !counted.stuck.is_empty());
        let stuck =
            tokio::time::timeout(Duration::from_secs(60), stuck).await.expect("in time").expect("kept").stuck.clone();
        assert_eq!(stuck, [name::<BrickPath>("/data/b")]);
        let report = look(shared).await;
        assert_eq!((report.daemon, report.heals, &report.stuck_bricks), (Daemon::Running, None, &stuck));
    }

    #[test]
    fn what_was_counted_in_other_volumes_says_nothing() {
        let volume = |volume: &str, started: bool, hosts: &[&str]| Volume {
            name: name(volume),
            version: Some(1),
            checksum: None,
            started,
            bricks: hosts.iter().map(|h| Brick { host: name(h), uuid: None, path: name("/data/b") }).collect(),
        };
        let before = vec![volume("gv0", true, &["a", "b"])];
        let counted = Counted { of: shapes(&before), pending: Some(0), stuck: Vec::new() };
        for (volumes, found) in [
            (before.clone(), Some(0)),
            (vec![Volume { version: Some(2), ..before[0].clone() }], Some(0)),
            (vec![volume("gv0", false, &["a", "b"])], None),
            (vec![volume("gv0", true, &["a", "c"])], None),
            (vec![before[0].clone(), volume("gv1", true, &["a", "b"])], None),
        ] {
            assert_eq!(counted.pending(&volumes), found, "{volumes:?}");
        }
        // A pod that lost its state had no volumes when it was counted first.
        assert_eq!(Counted { pending: Some(0), ..Counted::default() }.pending(&before), None);
    }
}
