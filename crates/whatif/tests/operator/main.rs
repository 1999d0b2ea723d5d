//! Stead's operator in a simulated cluster: what becomes of a Glance.
#![expect(clippy::unwrap_used, reason = "tests may fail")]

mod glance;
