//! The recordings of the field reports on the real control plane, played in the simulation.
//!
//! Each recording (`testdata/traces`) has every change that its stand-in nodes saw. The same commands are given at the same
//! times; nodes and names that the real components chose by chance are taken from the recording, after the check that they
//! were possible. Then what happened has to be the same, in the same order, within the periods of the loops.

mod recording;
mod scripts;

use recording::{Recording, play};
use scripts::{cinder, glance, gluster};
use stead_agree::{Tolerances, compare};

/// The stand-in kubelets report each 4 s, the node controller looks each 5 s, pod garbage collection each 20 s.
const TOLERANCES: Tolerances = Tolerances { time: 12.0, transient: 1.6 };

fn agrees(name: &str, script: &[scripts::Act]) {
    let recording = Recording::read(name);
    let (simulated, impossible) = play(&recording, script);
    let differences = compare(&recording.observations(), &simulated, TOLERANCES);
    let text: Vec<String> = differences.iter().map(ToString::to_string).chain(impossible).collect();
    assert!(text.is_empty(), "{} differences in {name}:\n{}", text.len(), text.join("\n"));
}

#[test]
fn cinder_agrees() {
    agrees("cinder", &cinder());
}

#[test]
fn gluster_agrees() {
    agrees("gluster", &gluster());
}

#[test]
fn glance_agrees() {
    agrees("glance", &glance());
}
