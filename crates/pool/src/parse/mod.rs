//! Parses what the gluster command prints as XML, and the files of glusterd's state directory.
//!
//! These are functions on strings. Input that is too long, too deep or unexpected is an error, never a panic.

mod state;
mod volumes;
mod xml;

pub use state::{glusterd_info, peer_file, write_glusterd_info, write_peer_file};
pub use volumes::{Heal, heal_summary, volume_files, volume_info};
pub use xml::{PoolList, peer_status, pool_list};

use crate::InvalidName;

/// Input that glusterd does not produce.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ParseError {
    /// The input: `peer status`, `glusterd.info`, …
    pub what: &'static str,
    /// The problem.
    pub reason: String,
}

impl ParseError {
    fn new(what: &'static str, reason: impl Into<String>) -> ParseError {
        ParseError { what, reason: reason.into() }
    }

    fn invalid(what: &'static str) -> impl Fn(InvalidName) -> ParseError {
        move |error| ParseError::new(what, error.to_string())
    }
}

/// The maximum length of a text; a pool of a hundred peers with a hundred volumes needs less.
const MAX_LENGTH: usize = 8 << 20;

/// Returns the `key=value` lines of a text.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()))
}
