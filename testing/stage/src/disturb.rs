//! The walk-through undisturbed, with the operator killed at random moments, and behind a faulty proxy: the final
//! state is the same, and nothing is created twice.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use stead_testbed::{Binaries, ClusterSpec, FaultProxy, Faults, Options, Tally, User};

use crate::audited::{self, Counts};
use crate::end_state::{self, EndState, differences};
use crate::{Operator, Stage, walk};

/// The user that the operator is, so that the audit log tells its requests from others.
pub const USER: &str = "operator";
const TOKEN: &str = "operatortoken";

/// Every walk has a namespace of this name, so that what is made of the name is the same too.
const NAMESPACE: &str = "walk";

/// How long a disturbed walk may take to come to the same end, and how long an end has to hold.
const PATIENCE: Duration = Duration::from_secs(300);
const REST: Duration = Duration::from_secs(3);

/// How long the end has to hold that the others are compared with: it must not be a lull on the way.
const LONG_REST: Duration = Duration::from_secs(10);

/// What a walk came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Walked {
    /// What the namespace holds in the end.
    pub state: EndState,
    /// How often the operator made each object.
    pub made: Counts,
    /// How often the operator ended each StatefulSet.
    pub ended: Counts,
    /// How often nobody heard what became of a change, by object.
    pub unanswered: Counts,
    /// How often it was killed.
    pub kills: u32,
    /// How long it took.
    pub took: Duration,
}

/// A stage for walks: an audit log, and the operator as a user of its own.
pub async fn open(binaries: &Binaries, stead: &Path, storage: &str) -> Result<Stage> {
    let user = User { name: USER.into(), token: TOKEN.into(), groups: vec!["system:masters".into()] };
    let options = Options { audit: true, users: vec![user], ..Options::default() };
    let stage = Stage::open(binaries, stead, options, ClusterSpec::seven()).await?;
    stage.kubectl_with(&["apply", "-f", "-"], storage).await?;
    stage.define().await?;
    Ok(stage)
}

/// The kubeconfig of the operator.
pub fn kubeconfig(stage: &Stage) -> Result<PathBuf> {
    stage.plane.kubeconfig_for(USER, TOKEN)
}

/// A walk with nobody in its way, and, before its namespace goes, a while in which nothing may be written.
pub async fn undisturbed(stage: &Stage, rest: Duration, say: &mut impl FnMut(&str)) -> Result<Walked> {
    stage.collects().await?;
    let file = kubeconfig(stage)?;
    let operator = stage.operate(&file, &[]).await?;
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    walk::begin(stage, NAMESPACE).await?;
    walk::play(stage, NAMESPACE, &mut *say).await?;
    let state = rested(stage).await?;
    let walked = walked(stage, state, before, 0, began)?;
    ensure!(walked.made.values().any(|n| *n > 1), "the walk makes no StatefulSet anew");
    say("rest");
    at_rest(stage, rest).await?;
    walk::end(stage, NAMESPACE).await?;
    operator.end().await?;
    Ok(walked)
}

/// A walk in which the operator is killed up to `most` times, at random moments.
pub async fn killed(
    stage: &Stage,
    expected: &Walked,
    most: u32,
    random: &mut SeededRandom,
    say: &mut impl FnMut(&str),
) -> Result<Walked> {
    let file = kubeconfig(stage)?;
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let played = async {
        walk::begin(stage, NAMESPACE).await?;
        let played = walk::play(stage, NAMESPACE, &mut *say).await;
        over.store(true, Ordering::Relaxed);
        played
    };
    let ((), (operator, kills)) = tokio::try_join!(played, kill(stage, &file, most, random, &over))?;
    let state = same_end(stage, &expected.state).await?;
    let walked = walked(stage, state, before, kills, began)?;
    nothing_twice(expected, &walked)?;
    walk::end(stage, NAMESPACE).await?;
    operator.end().await?;
    Ok(walked)
}

/// Starts the operator and kills it, again and again; gives the one that is left, and how many were killed.
async fn kill(
    stage: &Stage,
    file: &Path,
    most: u32,
    random: &mut SeededRandom,
    over: &AtomicBool,
) -> Result<(Operator, u32)> {
    let mut kills = 0;
    loop {
        let mut operator = stage.launch(file, &["--leader-elect=false"])?;
        if kills == most || over.load(Ordering::Relaxed) {
            operator.ready().await?;
            return Ok((operator, kills));
        }
        // From before it has read anything to well after it has settled.
        tokio::time::sleep(random.up_to(Duration::from_secs(3))).await;
        operator.kill().await?;
        kills += 1;
    }
}

/// A walk behind a proxy that refuses, fails, loses answers, holds requests back and lets watches fall silent.
pub async fn behind_faulty_proxy(
    stage: &Stage,
    expected: &Walked,
    share: f64,
    seed: u64,
    say: &mut impl FnMut(&str),
) -> Result<(Walked, Tally)> {
    let proxy = FaultProxy::start(&stage.plane, seed).await?;
    let file = proxy.kubeconfig(stage.plane.folder(), USER, TOKEN)?;
    proxy.set(Faults { stall_within: Duration::from_secs(3), ..Faults::all(share) });
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    // A silent watch is given up after this and ten seconds.
    let operator = stage.operate(&file, &["--leader-elect=false", "--watch-timeout=5"]).await?;
    walk::begin(stage, NAMESPACE).await?;
    let played = walk::play(stage, NAMESPACE, &mut *say).await;
    if let Err(error) = played {
        bail!("{error:#}\nthe operator's last words:\n{}", tail(&operator.log()?));
    }
    let state = same_end(stage, &expected.state).await?;
    let tally = proxy.tally();
    let walked = walked(stage, state, before, 0, began)?;
    nothing_twice(expected, &walked)?;
    proxy.set(Faults::default());
    walk::end(stage, NAMESPACE).await?;
    operator.end().await?;
    Ok((walked, tally))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn walked(stage: &Stage, state: EndState, before: usize, kills: u32, began: Instant) -> Result<Walked> {
    let events = stage.plane.audit_events()?;
    let events = &events[before..];
    let mut ended = audited::deletions(events, USER, NAMESPACE);
    ended.retain(|object, _| object.starts_with("statefulsets/"));
    Ok(Walked {
        state,
        made: audited::creations(events, USER, NAMESPACE),
        ended,
        unanswered: audited::unanswered(events, USER, NAMESPACE),
        kills,
        took: began.elapsed(),
    })
}

/// Nothing was made, and no StatefulSet was ended, more often than in the undisturbed walk; nor less, as far as the
/// answers tell.
fn nothing_twice(expected: &Walked, walked: &Walked) -> Result<()> {
    let count = |counts: &Counts, name: &String| counts.get(name).copied().unwrap_or(0);
    for (what, expected, found) in [("made", &expected.made, &walked.made), ("ended", &expected.ended, &walked.ended)] {
        let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
        let odd: Vec<String> = names
            .map(|name| (name, count(expected, name), count(found, name), count(&walked.unanswered, name)))
            .filter(|(_, expected, found, open)| found > expected || found + open < *expected)
            .map(|(name, expected, found, open)| {
                format!("{name} was {what} {found} times, not {expected}; {open} changes of it were not answered")
            })
            .collect();
        ensure!(odd.is_empty(), "{}", odd.join("\n"));
    }
    Ok(())
}

/// Waits until the namespace holds what it should in the end, and for a while goes on to.
async fn same_end(stage: &Stage, expected: &EndState) -> Result<EndState> {
    let objects = stage.objects(NAMESPACE);
    let end = Instant::now() + PATIENCE;
    let mut since = None;
    loop {
        let found = end_state::read(&objects).await?;
        let odd = differences(expected, &found);
        if odd.is_empty() {
            if since.get_or_insert_with(Instant::now).elapsed() > REST {
                return Ok(found);
            }
        } else {
            since = None;
        }
        ensure!(Instant::now() < end, "another end than undisturbed:\n{}", odd.join("\n"));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Waits until nothing changes in the namespace any more.
async fn rested(stage: &Stage) -> Result<EndState> {
    let objects = stage.objects(NAMESPACE);
    let end = Instant::now() + PATIENCE;
    let mut last = (end_state::read(&objects).await?, Instant::now());
    loop {
        let found = end_state::read(&objects).await?;
        if found != last.0 {
            last = (found, Instant::now());
        } else if last.1.elapsed() > LONG_REST {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "the namespace does not come to rest");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Watches for so long that the operator writes nothing but its Lease.
async fn at_rest(stage: &Stage, time: Duration) -> Result<()> {
    let before = stage.plane.audit_events()?.len();
    tokio::time::sleep(time).await;
    let events = stage.plane.audit_events()?;
    let writes = audited::writes(&events[before..], USER);
    ensure!(writes.is_empty(), "{} writes at rest:\n{}", writes.len(), writes.join("\n"));
    let renewed = audited::by_verb(&events[before..], USER).contains_key("lease");
    ensure!(renewed || time < Duration::from_secs(5), "the Lease was not renewed: nobody led");
    Ok(())
}

/// Numbers from a seed (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom(pub u64);

impl SeededRandom {
    /// A length of time below `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// A number below `most`.
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
