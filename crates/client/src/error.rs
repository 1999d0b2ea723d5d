//! Why a request failed.

use std::time::Duration;

use kube::core::Status;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server rejected the request.
    #[error("{0}")]
    Api(ApiStatus),
    /// No server could be reached, or the connection was lost.
    #[error("{0}")]
    Unreachable(String),
    /// The server did not answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The credentials of the kubeconfig could not be obtained, for example because a login plugin failed.
    #[error("cannot get credentials: {0}")]
    Credentials(String),
    /// The request could not be built, or its answer not be read.
    #[error("{0}")]
    Malformed(String),
}

/// The Kubernetes `Status` of a rejected request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `Conflict`; empty if the answer has none.
    pub reason: String,
    /// The message; the text of the answer if something other than an API server answered.
    pub message: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

impl std::fmt::Display for ApiStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ApiStatus { code, reason, message, .. } = self;
        match reason.as_str() {
            "" => write!(f, "{code}: {message}"),
            reason => write!(f, "{code} {reason}: {message}"),
        }
    }
}

/// How much is kept of an answer that is not a `Status`.
const MAX_TEXT: usize = 500;

impl ApiStatus {
    /// Reads the answer to a rejected request: a `Status`, or the text of a proxy in between.
    pub(crate) fn parse(code: u16, retry_after: Option<u64>, body: &[u8]) -> ApiStatus {
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        let asked = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
        let message = match status.message.is_empty() {
            true => String::from_utf8_lossy(body).trim().chars().take(MAX_TEXT).collect(),
            false => status.message,
        };
        let retry_after = retry_after.or(asked.filter(|seconds| *seconds > 0)).map(Duration::from_secs);
        ApiStatus { code, reason: status.reason, message, retry_after }
    }
}

impl From<Status> for ApiStatus {
    fn from(status: Status) -> ApiStatus {
        let asked = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
        ApiStatus {
            code: status.code,
            reason: status.reason,
            message: status.message,
            retry_after: asked.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        }
    }
}

impl Error {
    /// The HTTP status code; none if no server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the object, or its kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object has changed, or exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the user lacks a permission.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether the server does not accept the credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// Whether the server no longer has the requested revision.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// Whether no server answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable(_) | Error::Timeout(_))
    }

    /// The server's message; without one, what went wrong.
    pub fn message(&self) -> String {
        match self {
            Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Error {
        match error {
            kube::Error::Api(status) => Error::Api((*status).into()),
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                Error::Unreachable(root_cause(&error))
            }
            kube::Error::Auth(_) => Error::Credentials(root_cause(&error)),
            kube::Error::SerdeError(cause) => Error::unreadable(&cause),
            other => Error::Malformed(other.to_string()),
        }
    }
}

impl Error {
    /// An answer that is not what was asked for.
    pub(crate) fn unreadable(cause: &dyn std::error::Error) -> Error {
        Error::Malformed(format!("cannot parse the answer: {cause}"))
    }
}

/// The innermost cause of an error: it says most, such as `Connection refused`.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_keeps_the_status() {
        let invalid =
            br#"{"kind":"Status","code":422,"reason":"Invalid","message":"spec: Invalid value","details":{}}"#;
        let busy =
            br#"{"kind":"Status","reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":3}}"#;
        for (code, header, body, text, retry_after) in [
            (422, None, &invalid[..], "422 Invalid: spec: Invalid value", None),
            (429, None, &busy[..], "429 TooManyRequests: later", Some(3)),
            (429, Some(7), &busy[..], "429 TooManyRequests: later", Some(7)),
            (502, None, &b"bad gateway\n"[..], "502: bad gateway", None),
        ] {
            let status = ApiStatus::parse(code, header, body);
            let found = (status.to_string(), status.retry_after.map(|d| d.as_secs()));
            assert_eq!(found, (text.to_owned(), retry_after));
        }
    }
}
