//! Plays the walk-through undisturbed, with the operator killed at random moments, and behind a faulty proxy. Checks
//! that the final state is the same and nothing is created twice.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use stead_testbed::{Binaries, ClusterSpec, FaultProxy, Faults, Options, Tally, User};

use crate::audit_log::{self, Counts};
use crate::end_state::{self, EndState, differences};
use crate::{Operator, Stage, walk};

/// The operator's user name, which identifies its requests in the audit log.
pub const USER: &str = "operator";
const TOKEN: &str = "operatortoken";

/// The namespace of every walk: the same, so that the names that are derived from it are the same.
const NAMESPACE: &str = "walk";

/// The timeout for reaching the final state.
const TIMEOUT: Duration = Duration::from_secs(300);

/// How long the final state of a disturbed walk must stay the same.
const STABLE_TIME: Duration = Duration::from_secs(3);

/// How long the final state of the undisturbed walk must stay the same: the others are compared with it, so it must not
/// be an intermediate state.
const REFERENCE_STABLE_TIME: Duration = Duration::from_secs(10);

/// The result of a walk.
#[derive(Debug, Clone, PartialEq)]
pub struct WalkResult {
    /// The objects of the namespace at the end.
    pub state: EndState,
    /// How often the operator created each object.
    pub created: Counts,
    /// How often the operator deleted each StatefulSet.
    pub deleted: Counts,
    /// The number of writes with an unknown result, by object.
    pub unanswered: Counts,
    /// How often the operator was killed.
    pub kills: u32,
    /// The duration of the walk.
    pub duration: Duration,
}

/// Opens a stage for walks: with an audit log, and a separate user for the operator.
pub async fn open(binaries: &Binaries, stead: &Path, storage: &str) -> Result<Stage> {
    let user = User { name: USER.into(), token: TOKEN.into(), groups: vec!["system:masters".into()] };
    let options = Options { audit: true, users: vec![user], ..Options::default() };
    let stage = Stage::open(binaries, stead, options, ClusterSpec::seven()).await?;
    stage.kubectl_with(&["apply", "-f", "-"], storage).await?;
    stage.install_definitions().await?;
    Ok(stage)
}

/// Returns the operator's kubeconfig file.
pub fn kubeconfig(stage: &Stage) -> Result<PathBuf> {
    stage.plane.kubeconfig_for(USER, TOKEN)
}

/// Plays the walk-through undisturbed; before the namespace is deleted, checks that nothing is written for a while.
pub async fn play_undisturbed(stage: &Stage, rest: Duration, say: &mut impl FnMut(&str)) -> Result<WalkResult> {
    stage.wait_for_garbage_collector().await?;
    let file = kubeconfig(stage)?;
    let operator = stage.start_operator(&file, &[]).await?;
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    walk::create_namespace(stage, NAMESPACE).await?;
    walk::play(stage, NAMESPACE, &mut *say).await?;
    let state = wait_until_stable(stage).await?;
    let walked = walk_result(stage, state, before, 0, began)?;
    ensure!(walked.created.values().any(|n| *n > 1), "the walk recreates no StatefulSet");
    say("no writes");
    check_no_writes(stage, rest).await?;
    walk::delete_namespace(stage, NAMESPACE).await?;
    operator.stop().await?;
    Ok(walked)
}

/// Plays the walk-through while the operator is killed up to `most` times, at random moments.
pub async fn play_with_kills(
    stage: &Stage,
    expected: &WalkResult,
    most: u32,
    random: &mut SeededRandom,
    say: &mut impl FnMut(&str),
) -> Result<WalkResult> {
    let file = kubeconfig(stage)?;
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let played = async {
        walk::create_namespace(stage, NAMESPACE).await?;
        let played = walk::play(stage, NAMESPACE, &mut *say).await;
        over.store(true, Ordering::Relaxed);
        played
    };
    let ((), (operator, kills)) = tokio::try_join!(played, kill_repeatedly(stage, &file, most, random, &over))?;
    let state = wait_for_state(stage, &expected.state).await?;
    let walked = walk_result(stage, state, before, kills, began)?;
    check_counts(expected, &walked)?;
    walk::delete_namespace(stage, NAMESPACE).await?;
    operator.stop().await?;
    Ok(walked)
}

/// Starts the operator and kills it repeatedly. Returns the last operator, and how many were killed.
async fn kill_repeatedly(
    stage: &Stage,
    file: &Path,
    most: u32,
    random: &mut SeededRandom,
    over: &AtomicBool,
) -> Result<(Operator, u32)> {
    let mut kills = 0;
    loop {
        let mut operator = stage.spawn_operator(file, &["--leader-elect=false"])?;
        if kills == most || over.load(Ordering::Relaxed) {
            operator.wait_until_ready().await?;
            return Ok((operator, kills));
        }
        // Kill the operator at any time from before its first read to long after its last write.
        tokio::time::sleep(random.up_to(Duration::from_secs(3))).await;
        operator.kill().await?;
        kills += 1;
    }
}

/// Plays the walk-through behind a proxy that refuses and fails requests, loses responses, delays requests and stalls
/// watches.
pub async fn play_behind_faulty_proxy(
    stage: &Stage,
    expected: &WalkResult,
    share: f64,
    seed: u64,
    say: &mut impl FnMut(&str),
) -> Result<(WalkResult, Tally)> {
    let proxy = FaultProxy::start(&stage.plane, seed).await?;
    let file = proxy.kubeconfig(stage.plane.folder(), USER, TOKEN)?;
    proxy.set(Faults { stall_within: Duration::from_secs(3), ..Faults::all(share) });
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    // A stalled watch is restarted 10 s after this timeout.
    let operator = stage.start_operator(&file, &["--leader-elect=false", "--watch-timeout=5"]).await?;
    walk::create_namespace(stage, NAMESPACE).await?;
    let played = walk::play(stage, NAMESPACE, &mut *say).await;
    if let Err(error) = played {
        bail!("{error:#}\nthe end of the operator's log:\n{}", tail(&operator.log()?));
    }
    let state = wait_for_state(stage, &expected.state).await?;
    let tally = proxy.tally();
    let walked = walk_result(stage, state, before, 0, began)?;
    check_counts(expected, &walked)?;
    proxy.set(Faults::default());
    walk::delete_namespace(stage, NAMESPACE).await?;
    operator.stop().await?;
    Ok((walked, tally))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn walk_result(stage: &Stage, state: EndState, before: usize, kills: u32, began: Instant) -> Result<WalkResult> {
    let events = stage.plane.audit_events()?;
    let events = &events[before..];
    let mut deleted = audit_log::deletions(events, USER, NAMESPACE);
    deleted.retain(|object, _| object.starts_with("statefulsets/"));
    Ok(WalkResult {
        state,
        created: audit_log::creations(events, USER, NAMESPACE),
        deleted,
        unanswered: audit_log::unanswered(events, USER, NAMESPACE),
        kills,
        duration: began.elapsed(),
    })
}

/// Checks that each object was created, and each StatefulSet deleted, as often as in the undisturbed walk. It can be
/// less often by the number of writes with an unknown result.
fn check_counts(expected: &WalkResult, walked: &WalkResult) -> Result<()> {
    let count = |counts: &Counts, name: &String| counts.get(name).copied().unwrap_or(0);
    for (what, expected, found) in
        [("created", &expected.created, &walked.created), ("deleted", &expected.deleted, &walked.deleted)]
    {
        let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
        let differing: Vec<String> = names
            .map(|name| (name, count(expected, name), count(found, name), count(&walked.unanswered, name)))
            .filter(|(_, expected, found, open)| found > expected || found + open < *expected)
            .map(|(name, expected, found, open)| {
                format!("{name} was {what} {found} times, not {expected}; {open} writes to it have an unknown result")
            })
            .collect();
        ensure!(differing.is_empty(), "{}", differing.join("\n"));
    }
    Ok(())
}

/// Waits until the namespace has the expected final state, and keeps it for a while.
async fn wait_for_state(stage: &Stage, expected: &EndState) -> Result<EndState> {
    let objects = stage.objects(NAMESPACE);
    let end = Instant::now() + TIMEOUT;
    let mut since = None;
    loop {
        let found = end_state::read(&objects).await?;
        let differing = differences(expected, &found);
        if differing.is_empty() {
            if since.get_or_insert_with(Instant::now).elapsed() > STABLE_TIME {
                return Ok(found);
            }
        } else {
            since = None;
        }
        ensure!(Instant::now() < end, "the final state differs from the undisturbed walk:\n{}", differing.join("\n"));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Waits until the objects of the namespace no longer change.
async fn wait_until_stable(stage: &Stage) -> Result<EndState> {
    let objects = stage.objects(NAMESPACE);
    let end = Instant::now() + TIMEOUT;
    let mut last = (end_state::read(&objects).await?, Instant::now());
    loop {
        let found = end_state::read(&objects).await?;
        if found != last.0 {
            last = (found, Instant::now());
        } else if last.1.elapsed() > REFERENCE_STABLE_TIME {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "the objects of the namespace keep changing");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Checks for a while that the operator writes nothing but its Lease.
async fn check_no_writes(stage: &Stage, time: Duration) -> Result<()> {
    let before = stage.plane.audit_events()?.len();
    tokio::time::sleep(time).await;
    let events = stage.plane.audit_events()?;
    let writes = audit_log::writes(&events[before..], USER);
    ensure!(writes.is_empty(), "{} writes at rest:\n{}", writes.len(), writes.join("\n"));
    let renewed = audit_log::requests_by_verb(&events[before..], USER).contains_key("lease");
    ensure!(renewed || time < Duration::from_secs(5), "the Lease was not renewed: there is no leader");
    Ok(())
}

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom(pub u64);

impl SeededRandom {
    /// Returns a duration below `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Returns a number below `most`.
    pub fn below(&mut self, most: u32) -> u32 {
        (self.next() % u64::from(most)) as u32
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
