//! Tests decisions against a model of glusterd, and the model against recordings of real glusterds.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read recordings, and may fail on them")]

mod boots;
mod bricks;
mod model;
mod names;
mod notes;
mod parses;
mod recordings;
mod reports;
mod seeds;
