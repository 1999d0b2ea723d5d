//! Compares the simulation with the real control plane, change by change.
//!
//! Both arms are reduced to the same [`Observation`]s: for each object, the states that a user or a controller can see,
//! one after the other, with their times. [`compare`] finds where the sequences differ.

mod compare;
mod observation;

pub use compare::{Difference, Tolerances, compare};
pub use observation::{EventFacts, Names, Observation, Observer};
