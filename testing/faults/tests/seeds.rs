//! A few clusters with planted faults; `cargo xtask faults` compares more of them.

use std::collections::BTreeSet;

#[test]
fn triage_finds_exactly_what_was_planted() {
    for (seed, nodes) in [(1, 8), (2, 30), (3, 80), (4, 12)] {
        let cluster = stead_faults::cluster(seed, Some(nodes));
        assert_eq!(stead_faults::difference(&cluster), None, "seed {seed}: {:?}", cluster.planted());
    }
}

#[test]
fn triage_finds_each_fault_alone_with_and_without_events() {
    for (seed, fault) in stead_faults::FAULTS.iter().enumerate() {
        for more in 0..2 {
            let cluster = stead_faults::plant(seed as u64 * 2 + more, fault);
            assert_eq!(stead_faults::difference(&cluster), None, "{} (seed {more})", fault.name);
        }
    }
    let names: BTreeSet<&str> = stead_faults::FAULTS.iter().map(|fault| fault.name).collect();
    assert!(names.len() == stead_faults::FAULTS.len() && names.len() >= 15);
}

#[test]
fn nothing_is_stuck_in_a_healthy_cluster() {
    for seed in 0..4 {
        let cluster = stead_faults::healthy_cluster(seed, Some(25));
        assert!(cluster.expected().is_empty());
        assert_eq!(stead_faults::difference(&cluster), None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_cluster() {
    assert_eq!(stead_faults::cluster(7, Some(10)).items(), stead_faults::cluster(7, Some(10)).items());
}
