//! What a trusted storage pool of Gluster needs next, as a pure decision.
//!
//! Each pod of the pool has an agent, which tells what its own glusterd says ([`Report`]). What the pool was is kept in
//! a [`Record`]. From what is wanted ([`Wanted`]), what is recorded and what is reported, [`decide`] says what to do
//! next ([`Decision`]), and [`boot`] says what a pod's state has to be before its glusterd starts ([`Boot`]). This
//! crate runs no program and knows no client, no clock and no files. [`config_map`] says how the record is kept,
//! [`status`] how a pool stands, for people.

mod boot;
pub mod config_map;
mod decide;
mod json;
pub mod key_secret;
mod names;
pub mod parse;
mod record;
mod report;
pub mod status;
mod wanted;

pub use boot::{Boot, Identity, PeerFile, StateDir, boot, identity};
#[cfg(feature = "switchable-guards")]
pub use decide::decide_under;
pub use decide::{Act, Decision, Note, Rule, Rules, Severity, View, decide, loses_nothing, still_needed};
pub use json::FieldError;
pub use names::{BrickPath, HostName, InvalidName, PeerId, VolumeName};
pub use record::{BrickAt, Member, Order, Record, Repair, Standing};
pub use report::{Brick, Daemon, Peer, PeerState, Report, Volume};
pub use wanted::{Wanted, ordinal};
