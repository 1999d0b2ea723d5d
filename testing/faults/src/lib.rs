//! Clusters with planted faults, and whether triage finds exactly these.
//!
//! A seed gives a cluster: a healthy background of every kind of workload (`background.rs`), and faults in it (`faults/`),
//! each with the causes and objects that triage has to report. The objects are written as Kubernetes' components write them
//! (`objects.rs`), after recordings of the real control plane; they share no code with what reads them. Events are
//! present or have expired, and some kinds are missing, as in dumps that people send. `compare.rs` compares cause, object
//! and stuck objects exactly.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod background;
mod cluster;
mod compare;
mod faults;
mod objects;

pub use cluster::{Expected, FaultyCluster};
pub use compare::{difference, found};
pub use faults::{FAULTS, plant};

use stead_chance::Chance;

/// The cluster of a seed: with this many nodes, or a random number of them.
pub fn cluster(seed: u64, nodes: Option<usize>) -> FaultyCluster {
    let mut chance = Chance::new(seed);
    let size = [5, 20, 60, 150, 400, 1000];
    let nodes = nodes.unwrap_or_else(|| chance.one_of(&size).unwrap_or(20));
    let mut cluster = FaultyCluster::new(chance, nodes);
    background::add(&mut cluster);
    faults::plant_some(&mut cluster);
    cluster.finish();
    cluster
}

/// The same without faults: nothing in it is stuck.
pub fn healthy_cluster(seed: u64, nodes: Option<usize>) -> FaultyCluster {
    let mut cluster = FaultyCluster::new(Chance::new(seed), nodes.unwrap_or(40));
    background::add(&mut cluster);
    cluster.finish();
    cluster
}

/// A large cluster with faults, for measurements: about this many pods, and everything was read.
pub fn large_cluster(seed: u64, nodes: usize, pods: usize) -> FaultyCluster {
    let mut cluster = FaultyCluster::new(Chance::new(seed), nodes);
    cluster.has_events = true;
    cluster.omitted.clear();
    // Beside a DaemonSet pod on each node, each of the four namespaces has 4.5 pods for each app on average.
    cluster.apps = pods.saturating_sub(nodes) / 18;
    background::add(&mut cluster);
    for fault in FAULTS {
        faults::plant_one(&mut cluster, *fault);
    }
    cluster.finish();
    cluster
}
