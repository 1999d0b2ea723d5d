//! The program `stead` on the real control plane.

mod dump;
mod gluster;
mod install;
mod kubernetes_1_29;
mod newcomers;
mod recover;
mod recoveries;
mod refusals;
mod rights;
mod scene;
mod topologies;

use std::path::PathBuf;

/// The program to test.
fn stead() -> anyhow::Result<PathBuf> {
    stead_stage::program("stead")
}
