//! Tests of single steps, plans and refusals, and seeded runs in a simulated cluster.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read the environment, and may fail on it")]

mod cluster;
mod corner_cases;
mod plans;
mod records;
mod refusals;
mod seeds;
mod simulated;
