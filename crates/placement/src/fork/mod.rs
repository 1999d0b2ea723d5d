//! Containers that forks share: a copy costs a handful of pointers, and a change copies only what lies around it.

mod chunks;
mod sorted;

pub(crate) use chunks::Chunks;
pub(crate) use sorted::Sorted;
