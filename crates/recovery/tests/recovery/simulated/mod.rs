//! Recoveries in a simulated cluster: the simulation plays Kubernetes, machines and storage, and its world is the witness of
//! who could write. This adds the people and programs that recover nodes, faults, and what must never happen.

pub(crate) mod checks;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod follow;
pub(crate) mod read;
pub(crate) mod recoverer;
pub(crate) mod run;
pub(crate) mod scripted;
