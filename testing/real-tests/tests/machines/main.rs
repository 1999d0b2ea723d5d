//! Stand-in nodes that run pods as processes, on the real control plane. They need root and FUSE.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cinder_demo;
mod cluster;
mod disks;
mod glusterd;
mod processes;
