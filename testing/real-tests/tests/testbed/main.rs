//! The testbed itself: its control plane, its stand-in nodes and its proxy.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod proxy;
