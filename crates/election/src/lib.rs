//! One of many leads: a Lease, and whether this process may write.
//!
//! [`Candidate`] decides what to do about a Lease and is told the time; [`stand`] does it in front of a real one, and
//! [`Election`] does so on a thread of its own. Everybody else asks [`Leadership`], which knows for how long a write
//! that begins now may take. What is written by whoever leads is not known here.

mod clock;
mod election;
mod lease;
mod standing;

pub use clock::Clock;
pub use election::{Election, LeaseName, stand};
pub use lease::{Candidate, Deed, Pace, Seen};
pub use standing::{Leadership, Standing, Term};
