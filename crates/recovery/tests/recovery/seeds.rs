//! A hundred thousand runs (or as many as one asks for) in which everything goes wrong that a seed can think of.

use stead_recovery::{Guard, Guards};

use crate::model::world::World;

/// How many runs: a hundred thousand, if nothing else is said.
fn runs() -> u64 {
    std::env::var("STEAD_RECOVERY_RUNS").ok().and_then(|r| r.parse().ok()).unwrap_or(100_000)
}

/// How many at once.
const THREADS: u64 = 2;

fn play(seed: u64, guards: Guards) -> Result<(), String> {
    World::new(seed, guards, false).play()
}

/// Runs that fail: the first one, or some.
fn failed(guards: Guards, lies: bool, many: bool) -> Vec<(u64, String)> {
    let part = |first: u64| {
        let seeds = (first..runs()).step_by(THREADS as usize);
        let failed = seeds.filter_map(|seed| Some((seed, World::new(seed, guards, lies).play().err()?)));
        failed.take(if many { 10 } else { 1 }).collect::<Vec<_>>()
    };
    let mut failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    });
    failed.sort();
    failed
}

#[test]
fn nobody_writes_twice_and_all_is_well_again() {
    if let Some(seed) = std::env::var("STEAD_RECOVERY_SEED").ok().and_then(|s| s.parse().ok()) {
        let guard = std::env::var("STEAD_RECOVERY_WITHOUT").ok();
        let without = Guard::ALL.into_iter().find(|g| Some(format!("{g:?}")) == guard);
        let mut world = World::new(seed, without.map_or(Guards::ALL, Guards::without), false);
        world.log = Some(Vec::new());
        let outcome = world.play();
        panic!("seed {seed}: {outcome:?}\n{}", world.log.unwrap().join("\n"));
    }
    let failed = failed(Guards::ALL, false, true);
    assert!(failed.is_empty(), "of {} runs; replay one with STEAD_RECOVERY_SEED: {failed:#?}", runs());
}

#[test]
fn a_guard_is_missed_when_it_is_taken_away() {
    let mut never = Vec::new();
    // One of them only, where it is named.
    let named = std::env::var("STEAD_RECOVERY_WITHOUT").ok();
    for guard in Guard::ALL.into_iter().filter(|g| named.as_ref().is_none_or(|name| *name == format!("{g:?}"))) {
        let caught = failed(Guards::without(guard), false, false).into_iter().next();
        match caught {
            None => never.push(guard),
            // What fails without the guard has to be the guard's doing.
            Some((seed, why)) => assert_eq!(play(seed, Guards::ALL), Ok(()), "seed {seed} without {guard:?}: {why}"),
        }
    }
    assert!(never.is_empty(), "no run misses {never:?}");
}

#[test]
fn a_lie_makes_two_writers_and_is_seen() {
    let caught = failed(Guards::ALL, true, true);
    assert!(caught.iter().any(|(_, why)| why.contains("two writers")), "{caught:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let play = |seed| {
        let mut world = World::new(seed, Guards::ALL, false);
        world.log = Some(Vec::new());
        (world.play(), world.log)
    };
    for seed in 0..50 {
        assert_eq!(play(seed), play(seed), "seed {seed}");
    }
}
