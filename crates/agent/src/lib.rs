//! Runs in each pod of a Gluster pool: supervises glusterd, reports, and acts for the pool where it is its turn.
//!
//! What to do is decided by `stead-pool`, which is pure; this is the shell around it. `daemon` keeps glusterd running and
//! `children` takes note of what it leaves behind; `boot` gives a pod its identity back before the first start; `look`
//! and `heals` say how this pod is, `web` tells others; `cluster` is what Kubernetes has of the pool. One agent holds the
//! Lease: `lead` gathers what all report, asks for a decision, writes the record and acts. `orders` are repairs that an
//! agent makes on its own pod. Volumes are nobody's business here, but their bricks are respected.

mod auth;
mod boot;
mod children;
mod cluster;
mod daemon;
mod disk;
mod events;
mod gluster;
mod heals;
mod lead;
mod leave;
mod look;
mod metrics;
mod neighbours;
mod orders;
mod ready;
mod run;
mod server;
mod settings;
mod shared;
mod since;
#[cfg(test)]
mod stand_in;
mod state_dir;
mod web;

pub use run::run;
pub use settings::{Pod, Settings};
pub use stead_pool::ordinal;
