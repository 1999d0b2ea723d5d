//! The field reports that Stead comes from, played on a real control plane.
//!
//! A report is a walk: lines that somebody typed, what they saw, and what they said about it. [`glance::play`] types the
//! same lines into a real shell, with the real kubectl, while `stead operator` runs; prints them with what came; and
//! fails where something that the report asserts does not hold.

pub mod cinder;
pub mod glance;
pub mod gluster;

mod pods;
mod served;
mod terminal;

pub use terminal::Terminal;
