//! Ten thousand runs in which everything goes wrong that a seed can think of.

use std::collections::{BTreeMap, BTreeSet};

use stead_pool::{Rule, Rules};

use crate::model::cluster::Cluster;
use crate::model::faults::NOT_WHOLE;
use crate::model::help::Help;

/// How many runs: ten thousand, if nothing else is said.
fn runs() -> u64 {
    std::env::var("STEAD_POOL_RUNS").ok().and_then(|r| r.parse().ok()).unwrap_or(10_000)
}

/// How many at once.
const THREADS: u64 = 4;

/// In how many runs of a hundred a person may have to help, when all is calm again and the agents have tried. It is for what
/// they must not do: say which definition is right where half of the pool has either, bring back members that were scaled
/// away, delete volumes that nobody else knows.
const HELPED: u64 = 6;

/// A run that is over.
#[derive(Debug, PartialEq, Eq)]
struct Played {
    outcome: Result<(), String>,
    /// What a person did.
    helped: BTreeSet<Help>,
    log: Vec<String>,
}

fn play(seed: u64, rules: Rules) -> Played {
    let mut cluster = Cluster::new(seed, rules);
    let outcome = cluster.play();
    Played { outcome, helped: cluster.truth.helped, log: cluster.log }
}

#[test]
fn the_pool_is_whole_again_and_nothing_was_broken() {
    if let Some(seed) = std::env::var("STEAD_POOL_SEED").ok().and_then(|s| s.parse().ok()) {
        let Played { outcome, log, .. } = play(seed, Rules::default());
        panic!("seed {seed}: {outcome:?}\n{}", log.join("\n"));
    }
    let part = |first: u64| {
        let seeds = (first..runs()).step_by(THREADS as usize);
        let played = seeds.map(|seed| (seed, play(seed, Rules::default())));
        played.map(|(seed, run)| (seed, run.outcome.err(), run.helped)).collect::<Vec<_>>()
    };
    let played: Vec<(u64, Option<String>, BTreeSet<Help>)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    });
    let helped = played.iter().filter(|(_, _, helped)| !helped.is_empty()).count() as u64;
    let mut ways: BTreeMap<Help, u64> = BTreeMap::new();
    played.iter().flat_map(|(_, _, helped)| helped).for_each(|how| *ways.entry(*how).or_default() += 1);
    let mut failed: Vec<(u64, String)> = played.into_iter().filter_map(|(seed, why, _)| Some((seed, why?))).collect();
    failed.sort();
    #[expect(clippy::print_stdout, reason = "the count is for whoever runs the test")]
    {
        println!("a person helped in {helped} of {} runs: {ways:?}", runs());
    }
    assert!(
        failed.is_empty(),
        "{} of {} runs failed; replay one with STEAD_POOL_SEED: {:?}",
        failed.len(),
        runs(),
        &failed[..failed.len().min(10)]
    );
    // A few runs say nothing of how many it is of a hundred.
    let bounded = runs() < 1_000 || helped * 100 <= runs() * HELPED;
    assert!(bounded, "a person had to help in {helped} of {} runs", runs());
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..50 {
        assert_eq!(play(seed, Rules::default()), play(seed, Rules::default()), "seed {seed}");
    }
}

#[test]
fn every_rule_is_missed_when_it_is_taken_away() {
    for rule in [Rule::Majority, Rule::Bricks, Rule::OnlyCopy, Rule::OneRepair, Rule::Patience, Rule::Healthy] {
        // Something that must never happen has to happen: that the pool is not whole again is not enough.
        let broken = |seed| play(seed, Rules::without(rule)).outcome.err().filter(|why| why != NOT_WHOLE);
        let caught = (0..runs()).find_map(|seed| Some((seed, broken(seed)?)));
        let (seed, why) = caught.unwrap_or_else(|| panic!("no run misses {rule:?}"));
        // What fails without the rule has to be the rule's doing.
        assert_eq!(play(seed, Rules::default()).outcome, Ok(()), "seed {seed} without {rule:?}: {why}");
    }
}
