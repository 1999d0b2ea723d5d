//! Stand-in nodes whose pods are processes, on the real control plane. They need root and FUSE.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cinder_demo;
mod cluster;
mod disks;
mod glusterd;
mod processes;
