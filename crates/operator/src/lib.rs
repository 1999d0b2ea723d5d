//! Runs the loops on a real cluster: watches, an ordered queue, writes, leader election, metrics.
//!
//! Data flows in a circle: watches → index of objects → which loops a change affects → queue → a worker runs the loop → the
//! writes that change something → answers back into the index. Everything that decides is pure and is told the time
//! (`queue`, `index`); `execute` knows a cluster only as something that answers requests; `client`, `watch`, `definitions`
//! and `web` are the thin shell. `stead-election` elects the leader. What the loops want is not known here.

mod api;
mod client;
mod cluster;
mod definitions;
mod execute;
mod index;
pub mod log;
mod loop_set;
mod metrics;
mod queue;
mod references;
mod run;
mod services;
mod shared;
mod watch;
mod web;

pub use loop_set::LoopSet;
pub use run::{Options, run};
