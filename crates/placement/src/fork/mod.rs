//! Containers that forks share: a copy copies a few pointers, and a change copies one chunk.

mod chunks;
mod sorted;

pub(crate) use chunks::Chunks;
pub(crate) use sorted::Sorted;
