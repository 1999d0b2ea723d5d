//! What the loss of a node means: how a node stands, and what hangs on it.

mod node;
mod volumes;

pub use node::{BootId, LeaseSeen, NodeStanding, OUT_OF_SERVICE, Readiness, SHUTDOWN, UNREACHABLE};
pub use volumes::{Attachment, HeldVolume, volumes_of};
