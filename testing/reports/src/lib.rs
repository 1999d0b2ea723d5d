//! The field reports behind Stead, played on a real control plane.
//!
//! A report is a list of lines that somebody typed, what they saw, and what they said about it. [`glance::play`] types
//! the same lines into a real shell, with the real kubectl, while `stead operator` runs; prints them with their
//! output; and fails if something that the report asserts does not hold.

pub mod cinder;
pub mod glance;
pub mod gluster;

mod pods;
mod served;
mod terminal;

pub use terminal::Terminal;
