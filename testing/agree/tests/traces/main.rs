//! The recordings of the field reports on the real control plane, played in the simulation.
//!
//! Each recording (`testdata/traces`) has every change that its stand-in nodes saw. The same commands are given at the same
//! times; nodes and names that the real components chose by chance are taken from the recording, after the check that they
//! were possible. Then what happened has to be the same, in the same order, within the periods of the loops.

mod recording;
mod scripts;

use expect_test::{ExpectFile, expect_file};
use recording::{Recording, play};
use stead_agree::{Tolerances, compare};

/// The stand-in kubelets report each 4 s, the node controller looks each 5 s, pod garbage collection each 20 s.
const TOLERANCES: Tolerances = Tolerances { time: 12.0, transient: 1.6 };

/// Plays a recording. The objects that differ have to be those of the file of known differences: none more, none less.
/// `UPDATE_EXPECT=1` writes the file.
fn differs_only_as_known(name: &str, script: &[scripts::Act], known: &ExpectFile) {
    let recording = Recording::read(name);
    let (simulated, impossible) = play(&recording, script);
    // What comes later may have happened after the recording.
    let end = recording.end();
    let differences = compare(&recording.observations(), &simulated, TOLERANCES);
    let differences: Vec<_> = differences.into_iter().filter(|difference| difference.at <= end).collect();
    let subjects = differences.iter().map(|difference| difference.subject.clone()).chain(impossible);
    let text: String = subjects.map(|subject| subject + "\n").collect();
    known.assert_eq(&text);
}

#[test]
fn cinder() {
    differs_only_as_known("cinder", &scripts::cinder(), &expect_file!["known/cinder.txt"]);
}

#[test]
fn gluster() {
    differs_only_as_known("gluster", &scripts::gluster(), &expect_file!["known/gluster.txt"]);
}

#[test]
fn glance() {
    differs_only_as_known("glance", &scripts::glance(), &expect_file!["known/glance.txt"]);
}
