//! Why a cluster could not be read.

use stead_client::Error;

/// Why a cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A kind that is required may not be listed.
    #[error("cannot list {plural}: {message}; needs the permission to list {plural}{scope}")]
    Forbidden {
        /// The kind's name in a path.
        plural: &'static str,
        /// Where the permission is needed, for a namespaced kind.
        scope: &'static str,
        /// The server's message.
        message: String,
    },
    /// The server did not answer, or not with a list.
    #[error("cannot list {plural}: {}", .source.message())]
    Failed {
        /// The kind's name in a path.
        plural: &'static str,
        /// What went wrong.
        #[source]
        source: Error,
    },
}

impl ReadError {
    /// Whether the server does not accept the credentials.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, ReadError::Failed { source, .. } if source.is_unauthorized())
    }

    /// Whether no server answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ReadError::Failed { source, .. } if source.is_unreachable())
    }
}
