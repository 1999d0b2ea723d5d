//! Seeded runs with random faults. `STEAD_RECOVERY_RUNS` sets how many.

use stead_recovery::{Guard, Guards};

use crate::simulated::run::Run;
use crate::simulated::scripted;

/// The number of runs. The default fits into CI.
fn runs() -> u64 {
    std::env::var("STEAD_RECOVERY_RUNS").ok().and_then(|r| r.parse().ok()).unwrap_or(400)
}

/// The number of runs at the same time.
const THREADS: u64 = 2;

fn play(seed: u64, guards: Guards) -> Result<(), String> {
    Run::new(seed, guards, false).play()
}

/// The first runs that fail.
fn failed(guards: Guards, lies: bool, many: bool) -> Vec<(u64, String)> {
    let part = |first: u64| {
        let seeds = (first..runs()).step_by(THREADS as usize);
        let failed = seeds.filter_map(|seed| Some((seed, Run::new(seed, guards, lies).play().err()?)));
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
fn never_two_writers_and_every_run_recovers() {
    if let Some(seed) = std::env::var("STEAD_RECOVERY_SEED").ok().and_then(|s| s.parse().ok()) {
        let guard = std::env::var("STEAD_RECOVERY_WITHOUT").ok();
        let without = Guard::ALL.into_iter().find(|g| Some(format!("{g:?}")) == guard);
        let mut world = Run::new(seed, without.map_or(Guards::ALL, Guards::without), false);
        world.log = Some(Vec::new());
        let outcome = world.play();
        panic!("seed {seed}: {outcome:?}\n{}", world.log.unwrap().join("\n"));
    }
    let failed = failed(Guards::ALL, false, true);
    assert!(failed.is_empty(), "of {} runs; replay one with STEAD_RECOVERY_SEED: {failed:#?}", runs());
}

/// A run that is kept.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// The random run of a seed.
    Seed(u64),
    /// A run that is written down.
    Scripted(fn(Guards) -> Result<(), String>),
}

impl Kept {
    fn play(self, guards: Guards) -> Result<(), String> {
        match self {
            Kept::Seed(seed) => play(seed, guards),
            Kept::Scripted(play) => play(guards),
        }
    }
}

/// For each guard a run that fails without it. After a change of the simulation, `STEAD_RECOVERY_SEARCH=GUARD` prints the
/// first such seed of a guard, searching as many runs as `STEAD_RECOVERY_RUNS` says.
const FAILS_WITHOUT: [(Guard, Kept); 23] = [
    (Guard::Lease, Kept::Scripted(scripted::resumed_while_confirmed)),
    (Guard::Unreachable, Kept::Scripted(scripted::recovered_before_it_is_marked)),
    (Guard::SignOfLife, Kept::Scripted(scripted::resumed_after_the_record)),
    (Guard::ConfirmationAge, Kept::Seed(113)),
    (Guard::CloudAge, Kept::Scripted(scripted::reported_for_an_earlier_outage)),
    (Guard::Evidence, Kept::Seed(0)),
    (Guard::Coverage, Kept::Scripted(scripted::restarted_with_other_pods)),
    (Guard::Record, Kept::Seed(2)),
    (Guard::Identity, Kept::Scripted(scripted::registered_again)),
    (Guard::Boot, Kept::Seed(8)),
    (Guard::MostUnreachable, Kept::Seed(8)),
    (Guard::Limits, Kept::Seed(243)),
    (Guard::Plan, Kept::Scripted(scripted::scheduled_after_the_record)),
    (Guard::Tolerations, Kept::Seed(328)),
    (Guard::Version, Kept::Seed(211)),
    (Guard::Uid, Kept::Seed(151)),
    (Guard::Foreign, Kept::Seed(12)),
    (Guard::RunningPods, Kept::Seed(3)),
    (Guard::VolumesInUse, Kept::Seed(3)),
    (Guard::PoweredOff, Kept::Seed(31)),
    (Guard::Terminating, Kept::Scripted(scripted::switched_on_after_the_taint)),
    (Guard::EndAnnotation, Kept::Scripted(scripted::tainted_after_the_end)),
    (Guard::PointOfNoReturn, Kept::Seed(3)),
];

#[test]
fn a_kept_run_fails_without_its_guard() {
    if let Ok(name) = std::env::var("STEAD_RECOVERY_SEARCH") {
        let guard = Guard::ALL.into_iter().find(|guard| format!("{guard:?}") == name).expect("the name of a guard");
        panic!("{guard:?}: {:?}", failed(Guards::without(guard), false, false).first());
    }
    for guard in Guard::ALL {
        let (_, kept) = FAILS_WITHOUT.iter().find(|(of, _)| *of == guard).expect("each guard has a run");
        let without = kept.play(Guards::without(guard));
        assert!(without.is_err(), "{kept:?} does not fail without {guard:?}");
        // What fails without the guard must pass with it.
        assert_eq!(kept.play(Guards::ALL), Ok(()), "{kept:?} without {guard:?}: {without:?}");
    }
}

#[test]
fn a_false_confirmation_leads_to_two_writers() {
    let caught = failed(Guards::ALL, true, true);
    assert!(caught.iter().any(|(_, why)| why.contains("two writers")), "{caught:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let play = |seed| {
        let mut world = Run::new(seed, Guards::ALL, false);
        world.log = Some(Vec::new());
        (world.play(), world.log)
    };
    for seed in 0..20 {
        assert_eq!(play(seed), play(seed), "seed {seed}");
    }
}
