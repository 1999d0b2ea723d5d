//! Leader election with a Lease, and how long a write of the leader may take.
//!
//! [`Candidate`] decides what to do with the Lease; callers pass the time. [`run_candidate`] does it on a real cluster,
//! and [`Election`] runs that on a thread of its own. Everything that writes asks [`Leadership`] how long a write that
//! starts now may take. This crate does not know what the leader writes.

mod candidate;
mod clock;
mod election;
mod leadership;

pub use candidate::{Candidate, LeaseAction, LeaseState, LeaseTiming};
pub use clock::MonotonicClock;
pub use election::{Election, LeaseName, run_candidate};
pub use leadership::{ElectionRole, Leadership, Term};
