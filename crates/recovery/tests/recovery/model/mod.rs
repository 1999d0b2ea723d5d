//! A simulated cluster: machines that fail and come back, the relevant controllers of Kubernetes, storage that knows
//! who can write, and users and programs that recover nodes. A tick is ten seconds; all timeouts are those of
//! Kubernetes.

pub(crate) mod api;
pub(crate) mod checks;
pub(crate) mod controllers;
pub(crate) mod faults;
pub(crate) mod machine;
pub(crate) mod recoverer;
pub(crate) mod storage;
pub(crate) mod world;
