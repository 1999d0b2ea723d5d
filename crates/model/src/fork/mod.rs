//! Containers that forks share: a copy copies a few pointers, and a change copies one chunk.

mod chunks;
mod sorted;

pub use chunks::Chunks;
pub use sorted::Sorted;
