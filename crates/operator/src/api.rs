//! What the executor needs of a cluster: something that answers requests.

use std::time::Duration;

use serde_json::Value;
use stead_client::{ApiPath, ApiRequest, ApiStatus, Error};
use stead_loops::{Failure, ObjectKey, Watched};

/// Answers requests: a client, or a fake of a test that fails on demand.
pub(crate) trait Api: Send + Sync + 'static {
    /// Sends a request and returns the body of the answer.
    fn send(&self, request: ApiRequest) -> impl Future<Output = Result<Value, Fault>> + Send;
}

/// Where the objects of a kind are.
pub(crate) fn path_of(watched: &Watched) -> ApiPath<'static> {
    ApiPath::from(watched.kind)
}

/// Reads an object.
pub(crate) fn get(path: ApiPath<'_>, key: &ObjectKey) -> ApiRequest {
    ApiRequest::get(path.object(&key.namespace, &key.name))
}

/// A request that failed, or a write that was not attempted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What the loop is told.
    pub(crate) failure: Failure,
    /// How long the server asks to wait.
    pub(crate) retry_after: Option<Duration>,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let reason = match error {
            Error::Api(ApiStatus { code, reason, message, retry_after }) => {
                return Fault { failure: Failure { code, reason, message }, retry_after };
            }
            Error::Timeout(_) => "Timeout",
            _ => "Unreachable",
        };
        Fault::unanswered(reason, error.to_string())
    }
}

impl Fault {
    /// A request without an answer.
    fn unanswered(reason: &str, message: String) -> Fault {
        Fault { failure: Failure { code: 0, reason: reason.to_owned(), message }, retry_after: None }
    }

    /// A write that was not attempted: this process is not the leader.
    pub(crate) fn not_leader() -> Fault {
        Fault::unanswered("NotLeader", "another process is the leader".to_owned())
    }

    /// A write that was not attempted: it is not known where the objects of its kind are.
    pub(crate) fn unknown_kind(target: &ObjectKey) -> Fault {
        Fault::unanswered("UnknownKind", format!("{target}: its kind is not known"))
    }

    /// A write that was not attempted: a precondition does not hold.
    pub(crate) fn precondition_failed(message: String) -> Fault {
        Fault { failure: Failure { code: 412, reason: "PreconditionFailed".into(), message }, retry_after: None }
    }

    /// Whether the object has changed since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        self.failure.code == 409
    }

    /// Whether the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.failure.code == 404
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.failure.code, 0 | 408 | 409 | 429 | 500..)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { code, reason, message } = &self.failure;
        match code {
            0 => write!(f, "{reason}: {message}"),
            _ => write!(f, "{code} {reason}: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_told_what_the_server_said() {
        let status =
            |code, reason: &str| ApiStatus { code, reason: reason.into(), message: "m".into(), retry_after: None };
        for (error, text, transient) in [
            (Error::Api(status(422, "Invalid")), "422 Invalid: m", false),
            (Error::Api(status(429, "TooManyRequests")), "429 TooManyRequests: m", true),
            (Error::Timeout(Duration::from_secs(4)), "Timeout: no answer within 4 s", true),
            (Error::Timeout(Duration::from_millis(1)), "Timeout: no answer within 0.001 s", true),
            (Error::Unreachable("Connection refused".into()), "Unreachable: Connection refused", true),
        ] {
            let fault = Fault::from(error);
            assert_eq!((fault.to_string().as_str(), fault.is_transient()), (text, transient));
        }
    }
}
