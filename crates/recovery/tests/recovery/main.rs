//! The steps of a recovery against a model of a cluster; plans and refusals one by one.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read the environment, and may fail on it")]

mod cluster;
mod corners;
mod model;
mod plans;
mod records;
mod refusals;
mod seeds;
