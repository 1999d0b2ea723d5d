//! A Topology: what it says, who uses it, what it does to them, and what is wrong with it.
//!
//! [`troubles`] needs no more than the Topology, the nodes and the labels of its consumers' pods, so that a control
//! loop can ask it too.

mod rules;
mod troubles;

pub use troubles::{Consumer, Effect, Trouble, TroubleReason, troubles};
