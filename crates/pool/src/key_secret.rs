//! The Secret with the key that the agents of a pool share: they sign their requests and answers with it.
//!
//! The Secret is installed empty, and the first agent writes a key into it. Pods whose agents sign have an annotation;
//! unsigned answers are accepted only from pods without it, which have an older version.

/// The entry of the pool's key in the Secret's data.
pub const KEY: &str = "key";

/// The annotation of a pod whose agent signs its answers.
pub const SIGNS: &str = "stead.dev/signs-reports";

/// The length of generated keys, and the minimum length of accepted keys, in bytes.
pub const LENGTH: usize = 32;

/// The name of a pool's Secret.
pub fn name(pool: &str) -> String {
    format!("{pool}-pool-key")
}
