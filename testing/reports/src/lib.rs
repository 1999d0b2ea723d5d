//! Replays the field reports behind Stead on a real control plane.
//!
//! A report is a list of commands with their output and comments. [`glance::play`] runs the same commands in a real
//! shell, with the real kubectl, while `stead operator` runs. It prints them with their output, and fails if something
//! that the report asserts is not true.

pub mod cinder;
pub mod glance;
pub mod gluster;

mod demo_app;
mod pods;
mod terminal;

pub use terminal::Terminal;
