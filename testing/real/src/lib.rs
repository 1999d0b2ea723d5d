//! Finds the real components that tests run against, and reports tests that are skipped without them.
//!
//! [`Binaries`] finds the Kubernetes programs, [`go_tool`] builds tools of other projects. A test without them calls [`skip`] and returns; a program that runs
//! checks ends with an [`Outcome`]. It depends on nothing, so that `cargo xtask` starts fast.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod binaries;
pub mod go_tool;
mod outcome;
mod skip;

pub use binaries::Binaries;
pub use outcome::Outcome;
pub use skip::{SKIPPED, skip};
