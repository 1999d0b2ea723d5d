//! A simulated pool: glusterds, pods with agents, and faults.

pub(crate) mod agent;
pub(crate) mod checks;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod glusterd;
pub(crate) mod interventions;
