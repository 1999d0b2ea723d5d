//! Decides what a trusted storage pool of Gluster needs next.
//!
//! The agent of each pod reports the state of its glusterd ([`Report`]). The last known state of the pool is in a
//! [`Record`]. From the desired pods ([`PoolSpec`]), the record and the reports, [`decide`] computes the next action
//! ([`Decision`]), and [`boot`] computes what a pod's state directory needs before its glusterd starts ([`Boot`]). This
//! crate runs no program and has no client, clock or files. [`config_map`] defines how the record is stored,
//! [`status`] the status of a pool for people.

mod boot;
pub mod config_map;
mod decide;
mod json;
pub mod key_secret;
mod names;
mod note;
pub mod parse;
mod pool_spec;
mod record;
mod report;
pub mod status;

pub use boot::{Boot, Identity, PeerFile, StateDir, boot, identity};
#[cfg(feature = "switchable-guards")]
pub use decide::decide_under;
pub use decide::{Decision, DecisionInput, PeerCommand, Rule, Rules, decide, loses_nothing, still_needed};
pub use json::JsonFieldError;
pub use names::{BrickPath, HostName, InvalidName, PeerId, VolumeName};
pub use note::{Note, NoteReason, Severity};
pub use pool_spec::{PoolSpec, ordinal};
pub use record::{BrickAt, Member, Membership, Record, Repair, RepairOrder};
pub use report::{Brick, Daemon, GlusterVolume, Peer, PeerState, Report};
