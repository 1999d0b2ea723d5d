//! Seeded runs with random faults. `STEAD_POOL_RUNS` sets how many.

use std::collections::{BTreeMap, BTreeSet};

use stead_pool::{Rule, Rules};

use crate::model::cluster::Cluster;
use crate::model::faults::NOT_RECOVERED;
use crate::model::interventions::Intervention;

/// The number of runs.
fn runs() -> u64 {
    std::env::var("STEAD_POOL_RUNS").ok().and_then(|r| r.parse().ok()).unwrap_or(10_000)
}

/// The number of runs at the same time.
const THREADS: u64 = 4;

/// The maximum share of runs, in percent, in which a person has to help after the faults have ended and the agents have
/// tried. Some things agents must not do: decide which definition is right if half of the pool has either, bring back
/// members that were scaled away, delete volumes that no other pod knows.
const MAX_HELPED_PERCENT: u64 = 6;

/// A finished run.
#[derive(Debug, PartialEq, Eq)]
struct FinishedRun {
    outcome: Result<(), String>,
    /// The interventions of a person.
    helped: BTreeSet<Intervention>,
    log: Vec<String>,
}

fn play(seed: u64, rules: Rules) -> FinishedRun {
    let mut cluster = Cluster::new(seed, rules);
    let outcome = cluster.play();
    FinishedRun { outcome, helped: cluster.truth.helped, log: cluster.log }
}

/// Plays all runs, in the order of their seeds, and keeps of each what `keep` returns.
fn play_all<T: Send>(rules: Rules, keep: impl Fn(u64, FinishedRun) -> Option<T> + Sync) -> Vec<T> {
    let part = |first: u64| {
        let seeds = (first..runs()).step_by(THREADS as usize);
        seeds.filter_map(|seed| Some((seed, keep(seed, play(seed, rules))?))).collect::<Vec<_>>()
    };
    let part = &part;
    let mut kept: Vec<(u64, T)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    });
    kept.sort_by_key(|(seed, _)| *seed);
    kept.into_iter().map(|(_, kept)| kept).collect()
}

#[test]
fn the_pool_recovers_and_no_invariant_is_violated() {
    if let Some(seed) = std::env::var("STEAD_POOL_SEED").ok().and_then(|s| s.parse().ok()) {
        let rule = std::env::var("STEAD_POOL_WITHOUT").ok();
        let without = Rule::ALL.into_iter().find(|r| Some(format!("{r:?}")) == rule);
        let FinishedRun { outcome, log, .. } = play(seed, without.map_or(Rules::default(), Rules::without));
        panic!("seed {seed}: {outcome:?}\n{}", log.join("\n"));
    }
    let played = play_all(Rules::default(), |seed, run| Some((seed, run.outcome.err(), run.helped)));
    let helped = played.iter().filter(|(_, _, helped)| !helped.is_empty()).count() as u64;
    let mut interventions: BTreeMap<Intervention, u64> = BTreeMap::new();
    played.iter().flat_map(|(_, _, helped)| helped).for_each(|how| *interventions.entry(*how).or_default() += 1);
    let failed: Vec<(u64, String)> = played.into_iter().filter_map(|(seed, why, _)| Some((seed, why?))).collect();
    #[expect(clippy::print_stdout, reason = "the count is informative")]
    {
        println!("a person helped in {helped} of {} runs: {interventions:?}", runs());
    }
    let count = failed.len();
    assert!(failed.is_empty(), "{count} of {} runs failed; replay one with STEAD_POOL_SEED: {failed:?}", runs());
    // The share is meaningful only for many runs.
    let bounded = runs() < 1_000 || helped * 100 <= runs() * MAX_HELPED_PERCENT;
    assert!(bounded, "a person had to help in {helped} of {} runs", runs());
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..50 {
        assert_eq!(play(seed, Rules::default()), play(seed, Rules::default()), "seed {seed}");
    }
}

/// For each rule a run that violates an invariant without it. After a change of the model, `STEAD_POOL_SEARCH=RULE`
/// prints such seeds of a rule, searching as many runs as `STEAD_POOL_RUNS` says.
const FAILS_WITHOUT: [(Rule, u64); 6] = [
    (Rule::Majority, 3),
    (Rule::Bricks, 79),
    (Rule::OnlyCopy, 137),
    (Rule::OneRepair, 127),
    (Rule::Patience, 4),
    (Rule::Healthy, 2085),
];

/// A rule for which no run is known that fails without it: it takes a report that is older than a change right before
/// it. The first 15,000 runs have none.
const WITHOUT_A_RUN: Rule = Rule::Settled;

#[test]
fn a_kept_run_fails_without_its_rule() {
    // That the pool does not recover is not enough: an invariant has to be violated.
    let violation = |run: FinishedRun| run.outcome.err().filter(|why| why != NOT_RECOVERED);
    if let Ok(name) = std::env::var("STEAD_POOL_SEARCH") {
        let rule = Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == name).expect("the name of a rule");
        let found = play_all(Rules::without(rule), |seed, run| Some((seed, violation(run)?)));
        let passes = |seed: u64| play(seed, Rules::default()).outcome.is_ok();
        let found: Vec<(u64, String)> = found.into_iter().filter(|(seed, _)| passes(*seed)).take(5).collect();
        panic!("{rule:?}: {found:?}");
    }
    for rule in Rule::ALL.into_iter().filter(|rule| *rule != WITHOUT_A_RUN) {
        let (_, seed) = FAILS_WITHOUT.iter().find(|(of, _)| *of == rule).expect("each rule has a run");
        let why = violation(play(*seed, Rules::without(rule)));
        assert!(why.is_some(), "seed {seed} does not fail without {rule:?}");
        // What fails without the rule must pass with it.
        assert_eq!(play(*seed, Rules::default()).outcome, Ok(()), "seed {seed} without {rule:?}: {why:?}");
    }
}
