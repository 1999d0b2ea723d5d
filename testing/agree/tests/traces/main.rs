//! The recordings of the field reports on the real control plane, played in the simulation.
//!
//! Each recording (`testdata/traces`) has every change that its stand-in nodes saw. The same commands are given at the same
//! times; nodes and names that the real components chose by chance are taken from the recording, after the check that they
//! were possible. Then what happened has to be the same, in the same order, within the periods of the loops.

mod recording;
mod scripts;

use recording::{Recording, play};
use stead_agree::{Tolerances, compare};

/// The stand-in kubelets report each 4 s, the node controller looks each 5 s, the volume binder each 15 s, pod garbage
/// collection each 20 s.
const TOLERANCES: Tolerances = Tolerances { time: 12.0, claims: 16.0, transient: 1.6 };

/// Plays a recording: nothing differs, and every recorded choice was possible.
fn agrees(name: &str, script: &[scripts::Act]) {
    let recording = Recording::read(name);
    let (simulated, impossible) = play(&recording, script);
    // What comes in the last period of the node controller may have happened after the recording.
    let end = recording.end() - 5.0;
    let differences = compare(&recording.observations(), &simulated, TOLERANCES);
    let differences = differences.into_iter().filter(|difference| difference.at <= end);
    let found: Vec<String> = differences.map(|difference| difference.to_string()).chain(impossible).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn cinder() {
    agrees("cinder", &scripts::cinder());
}

#[test]
fn gluster() {
    agrees("gluster", &scripts::gluster());
}

#[test]
fn glance() {
    agrees("glance", &scripts::glance());
}
