//! Runs in each pod of a Gluster pool: supervises glusterd, reports its state, and acts for the pool while it leads.
//!
//! What to do is decided by `stead-pool`, which is pure; this is the shell around it. `daemon` keeps glusterd running
//! and `children` reaps what it leaves behind; `boot` restores a pod's identity before the first start; `observe` and
//! `heals` observe this pod, `web` reports it; `cluster` reads and writes the pool's objects in Kubernetes. One agent
//! holds the Lease: `lead` collects all reports, decides, writes the record and runs commands. `orders` carries out
//! repairs of the agent's own pod. The agent does not manage volumes, but it respects their bricks.

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
mod leader_clock;
mod metrics;
mod observe;
mod orders;
mod other_agents;
mod ready;
mod run;
mod server;
mod settings;
mod shared;
mod shutdown;
mod state_dir;
#[cfg(test)]
mod test_agent;
mod web;

pub use run::run;
pub use settings::{PoolPod, Settings};
pub use stead_pool::ordinal;
