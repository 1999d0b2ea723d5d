//! Installed objects on a real API server.

mod admission;
mod gluster_admission;
mod gluster_takeover;
