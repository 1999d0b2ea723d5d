//! Compares the simulation with the real control plane, change by change.
//!
//! A [`Situation`] is drawn from a seed, played on a real control plane ([`record`](record::record)), and kept as a
//! [`Recording`]. [`replay`] starts the simulation from the recording's snapshot and gives it the same actions. Both arms
//! are reduced to the same [`Observation`]s: for each object, the states that a user or a controller can see, one after the
//! other, with their times. [`compare`] finds where the sequences differ.
//!
//! A rehearsal is compared in another way ([`play_both`]): both arms play its steps, with the same checks.

mod answers;
mod compare;
mod history;
mod judgement;
mod observation;
pub mod record;
mod recording;
mod rehearsal;
mod replay;
pub mod situation;

pub use compare::{Difference, Tolerances, compare};
pub use judgement::{Judgement, Summary, deeds, judge};
pub use observation::{EventFacts, Names, Observation, Observer, single};
pub use recording::{Deed, Downtime, Header, Moment, Recording, What};
pub use rehearsal::{PlayedRehearsal, play_both};
pub use replay::{Replay, replay};
pub use situation::Situation;
