//! A pool that is played: glusterds, pods with agents, and what goes wrong.

pub(crate) mod agent;
pub(crate) mod checks;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod glusterd;
pub(crate) mod help;
