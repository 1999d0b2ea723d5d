//! What `cargo xtask dist` tells the compiler about a release. Other builds do not know it.

/// The version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this program was built from.
pub(crate) const COMMIT: Option<&str> = option_env!("STEAD_COMMIT");

/// The operator's image that was released together with this program.
pub(crate) const IMAGE: Option<&str> = option_env!("STEAD_IMAGE");
