//! Names and identities for tests.

use std::fmt::Debug;
use std::str::FromStr;

use stead_pool::PeerId;

/// Parses a valid name.
pub(crate) fn name<T: FromStr<Err: Debug>>(text: impl AsRef<str>) -> T {
    text.as_ref().parse().unwrap()
}

/// The UUID of a pod.
pub(crate) fn id(ordinal: u32) -> PeerId {
    name(format!("00000000-0000-4000-8000-{:012x}", ordinal + 1))
}
