//! A pool that is played: glusterds, pods with agents, and what goes wrong.

pub(crate) mod glusterd;
