//! Why a cluster could not be read.

/// Why a cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing can be said without this kind, and it may not be listed.
    #[error("cannot list {plural}: {message}; needs the right to list {plural}{scope}")]
    Forbidden {
        /// The kind's name in a path.
        plural: String,
        /// Where the right is needed, for a kind that lives in namespaces.
        scope: &'static str,
        /// The server's own words.
        message: String,
    },
    /// The server did not answer, or with something else than a list.
    #[error("cannot list {plural}: {}", said(.source))]
    Failed {
        /// The kind's name in a path.
        plural: String,
        /// What went wrong.
        #[source]
        source: kube::Error,
    },
}

impl ReadError {
    /// Whether the server does not know who asks.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, ReadError::Failed { source: kube::Error::Api(status), .. } if status.code == 401)
    }

    /// Whether no server answered at all.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ReadError::Failed { source: kube::Error::Service(_) | kube::Error::HyperError(_), .. })
    }
}

/// A server's own words where there are some, or else the innermost cause, which names it best.
fn said(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
