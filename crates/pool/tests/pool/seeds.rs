//! Ten thousand runs in which everything goes wrong that a seed can think of.

use stead_pool::{Rule, Rules};

use crate::model::cluster::Cluster;

/// How many runs: ten thousand, if nothing else is said.
fn runs() -> u64 {
    std::env::var("STEAD_POOL_RUNS").ok().and_then(|r| r.parse().ok()).unwrap_or(10_000)
}

/// How many at once.
const THREADS: u64 = 4;

fn play(seed: u64, rules: Rules) -> (Result<(), String>, Vec<String>) {
    let mut cluster = Cluster::new(seed, rules);
    let outcome = cluster.play();
    (outcome, cluster.log)
}

#[test]
fn the_pool_is_whole_again_and_nothing_was_broken() {
    if let Some(seed) = std::env::var("STEAD_POOL_SEED").ok().and_then(|s| s.parse().ok()) {
        let (outcome, log) = play(seed, Rules::ALL);
        panic!("seed {seed}: {outcome:?}\n{}", log.join("\n"));
    }
    let part = |first: u64| {
        let seeds = (first..runs()).step_by(THREADS as usize);
        seeds.filter_map(|seed| Some((seed, play(seed, Rules::ALL).0.err()?))).collect::<Vec<_>>()
    };
    let mut failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    });
    failed.sort();
    assert!(
        failed.is_empty(),
        "{} of {} runs failed; replay one with STEAD_POOL_SEED: {:?}",
        failed.len(),
        runs(),
        &failed[..failed.len().min(10)]
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..50 {
        assert_eq!(play(seed, Rules::ALL), play(seed, Rules::ALL), "seed {seed}");
    }
}

#[test]
fn every_rule_is_missed_when_it_is_taken_away() {
    for rule in [Rule::Majority, Rule::Bricks, Rule::OnlyCopy, Rule::OneRepair, Rule::Patience, Rule::Healthy] {
        let caught = (0..runs()).find_map(|seed| play(seed, Rules::without(rule)).0.err().map(|why| (seed, why)));
        let (seed, why) = caught.unwrap_or_else(|| panic!("no run misses {rule:?}"));
        // What fails without the rule has to be the rule's doing.
        assert_eq!(play(seed, Rules::ALL).0, Ok(()), "seed {seed} without {rule:?}: {why}");
    }
}
