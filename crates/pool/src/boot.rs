//! What a pod's state has to be before its glusterd starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Record, Report, Wanted};

/// What a pod's `/var/lib/glusterd` holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDir {
    /// The identity in `glusterd.info`, if there is one.
    pub uuid: Option<String>,
    /// The operating version in `glusterd.info`.
    pub operating_version: Option<u32>,
    /// The files in `peers/`.
    pub peers: Vec<PeerFile>,
    /// The volumes in `vols/`, with the directories of bricks that are this pod's own.
    pub volumes: BTreeMap<String, Vec<String>>,
}

/// A file in `peers/`, which is named for the identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFile {
    /// `uuid=`.
    pub uuid: String,
    /// `state=`; 3 is a friend.
    pub state: u32,
    /// `hostname1=` and so on.
    pub hosts: Vec<String>,
}

/// An identity to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `UUID=` in `glusterd.info`.
    pub uuid: String,
    /// `operating-version=` in `glusterd.info`.
    pub operating_version: u32,
    /// The files in `peers/`, all of them.
    pub peers: Vec<PeerFile>,
}

/// What to do before glusterd starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Start it as it is.
    Start,
    /// Write this identity in place of what is there, then start; what is there is kept aside.
    Restore(Identity),
    /// Take peers and volumes away, keep the identity, then start; what is there is kept aside.
    Forget,
    /// Do not start yet: look again shortly.
    Wait(String),
}

/// What to do before the glusterd of `ordinal` starts, by what its state directory holds, what is recorded, and what
/// those of the others that answer report.
pub fn boot(wanted: &Wanted, ordinal: u32, state: &StateDir, record: &Record, reports: &BTreeMap<u32, Report>) -> Boot {
    let _ = (wanted, ordinal, state, record, reports);
    Boot::Start
}
