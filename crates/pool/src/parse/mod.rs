//! glusterd's own words and files, as data: what its command line prints as XML, and what its state directory holds.
//!
//! These are functions on strings. What is too long, too deep or not what was expected is an error, never a panic.

mod state;
mod volumes;
mod xml;

pub use state::{glusterd_info, peer_file, write_glusterd_info, write_peer_file};
pub use volumes::{Heal, heal_summary, volume_files, volume_info};
pub use xml::{PoolList, peer_status, pool_list};

use crate::InvalidName;

/// What was read is not what glusterd writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ParseError {
    /// What was read: `peer status`, `glusterd.info`, …
    pub what: &'static str,
    /// What is wrong with it.
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

/// The longest text that is read; a pool of a hundred peers with a hundred volumes needs less.
const LONGEST: usize = 8 << 20;

/// A text's lines of the form `key=value`.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()))
}
