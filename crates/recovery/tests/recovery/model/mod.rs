//! A cluster that is played: machines that fail and come back, Kubernetes' controllers as far as they matter, a storage
//! that knows who can write, and people and programs that recover nodes. Ten seconds are a tick, and all the times are
//! Kubernetes' own.

pub(crate) mod api;
pub(crate) mod checks;
pub(crate) mod controllers;
pub(crate) mod faults;
pub(crate) mod machine;
pub(crate) mod recoverer;
pub(crate) mod storage;
pub(crate) mod world;
