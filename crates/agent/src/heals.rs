//! What waits to be healed on this pod's bricks, or from them.
//!
//! A brick that missed writes knows nothing of it: the others of its set have an index of what it missed. Our own
//! bricks' indexes are read as files, which costs nothing. What the others have is asked of Gluster, which starts a
//! client of the volume for it; that is done after a start and after a peer was away, until nothing waits, and seldom
//! otherwise.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::parse::Heal;
use stead_pool::{Daemon, PeerState, Report};
use tracing::debug;

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

/// The most entries that are counted in an index.
const MOST: u64 = 100_000;

/// Keeps count for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut looked = shared.looked.subscribe();
    let mut connected: Option<BTreeSet<String>> = None;
    let (mut pause, mut next) = (ASK.0, Instant::now());
    loop {
        let report = looked.borrow_and_update().report.clone();
        let held = shared.state.read(&shared.host());
        if report.daemon == Daemon::Running {
            let now = companions(&report);
            if connected.as_ref() != Some(&now) {
                (pause, next) = (ASK.0, Instant::now());
                connected = Some(now);
            }
            let pending = match index(&held) {
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
                Some(0) | None => *shared.heals.borrow(),
                here => {
                    (pause, next) = (ASK.0, Instant::now());
                    here
                }
            };
            if shared.heals.send_if_modified(|before| std::mem::replace(before, pending) != pending) {
                shared.nudge.notify_one();
            }
        }
        let pause = LOOK.min(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(500)));
        let news = async {
            // What was seen is let go of at once: as long as somebody holds it, nobody can look.
            drop(looked.wait_for(|looked| connected.as_ref() != Some(&companions(&looked.report))).await);
            // Between two looks, as many as there are changes, but not more.
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = news => {}
        }
    }
}

/// The peers that are of the pool and there; none while glusterd does not answer.
fn companions(report: &Report) -> BTreeSet<String> {
    let there = report.peers.iter().filter(|peer| peer.connected && peer.state == PeerState::Befriended);
    there.map(|peer| peer.uuid.clone()).collect()
}

/// The volumes that have more than one copy, one of them here.
fn shared_volumes(held: &Held) -> impl Iterator<Item = &stead_pool::Volume> {
    held.volumes.iter().filter(|volume| {
        let here = held.state.volumes.get(&volume.name).is_some_and(|bricks| !bricks.is_empty());
        volume.started && here && held.sets.get(&volume.name).is_some_and(|set| *set > 1)
    })
}

/// How many entries our own bricks know that others lack; none if an index cannot be read.
fn index(held: &Held) -> Option<u64> {
    let mut count = 0;
    for volume in shared_volumes(held) {
        for path in held.state.volumes.get(&volume.name).into_iter().flatten() {
            let entries = std::fs::read_dir(Path::new(path).join(".glusterfs/indices/xattrop")).ok()?;
            // One file, to which all entries are links, is always there.
            let entries = entries.flatten().filter(|e| !e.file_name().to_string_lossy().starts_with("xattrop-"));
            count += u64::try_from(entries.take(MOST as usize).count()).unwrap_or(MOST);
        }
    }
    Some(count)
}

/// What Gluster says; none if it cannot tell.
async fn asked(shared: &Shared, held: &Held) -> Option<u64> {
    let mut count = 0;
    for volume in shared_volumes(held) {
        match shared.gluster.heals(&volume.name).await {
            Ok(heals) => {
                let set = held.sets.get(&volume.name).copied().unwrap_or(1);
                count += involved(&heals, set, &shared.host(), held.state.uuid.as_deref())?;
            }
            Err(error) => {
                debug!("{error:#}");
                return None;
            }
        }
    }
    Some(count)
}

/// The entries of those sets of bricks that one of this pod's is in; none if one of its own bricks cannot tell. A brick
/// elsewhere that cannot tell is away; what it lacks, the others know.
fn involved(heals: &[Heal], set: usize, host: &str, uuid: Option<&str>) -> Option<u64> {
    let own = |heal: &Heal| heal.host == host || (heal.uuid.is_some() && heal.uuid.as_deref() == uuid);
    let mut count = 0;
    for bricks in heals.chunks(set.max(1)).filter(|bricks| bricks.iter().any(own)) {
        for brick in bricks {
            match brick.entries {
                Some(entries) => count += entries,
                None if own(brick) => return None,
                None => {}
            }
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heal(host: &str, entries: Option<u64>) -> Heal {
        Heal { host: host.into(), uuid: None, path: "/data/b".into(), entries }
    }

    #[test]
    fn only_sets_with_a_brick_here_count() {
        for (heals, set, found) in [
            (vec![heal("a", Some(0)), heal("b", Some(2)), heal("c", Some(1))], 3, Some(3)),
            (vec![heal("a", Some(0)), heal("b", Some(0)), heal("c", Some(5)), heal("d", Some(5))], 2, Some(0)),
            (vec![heal("a", Some(0)), heal("b", None), heal("c", Some(4))], 3, Some(4)),
            (vec![heal("a", None), heal("b", Some(1)), heal("c", Some(4))], 3, None),
            (vec![], 3, Some(0)),
        ] {
            assert_eq!(involved(&heals, set, "a", None), found, "{heals:?}");
        }
    }
}
