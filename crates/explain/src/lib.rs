//! Why a pod waits, and the ways out that were tried.
mod change;
mod objects;
pub use change::{Action, Change};
pub use objects::{KINDS, Kind, ObjectError, ObjectKey, Objects};
