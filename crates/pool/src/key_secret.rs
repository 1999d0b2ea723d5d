//! The Secret with the key that the agents of a pool share: they sign what they ask and answer each other with it.
//!
//! The Secret is installed empty, and the first agent fills it. Pods whose agents sign have an annotation: from the
//! others, which are of an older version, answers are accepted as they are.

/// The key of the pool's key in the Secret's data.
pub const KEY: &str = "key";

/// The annotation of a pod whose agent signs its answers.
pub const SIGNS: &str = "stead.dev/signs-reports";

/// The length of a key that an agent makes, and of the shortest one that is accepted, in bytes.
pub const LENGTH: usize = 32;

/// The name of a pool's Secret.
pub fn name(pool: &str) -> String {
    format!("{pool}-pool-key")
}
