//! What the executor needs of a cluster: somebody who sends a request and brings the answer.

use std::time::Duration;

use serde_json::Value;
use stead_loops::Failure;

use crate::request::Request;

/// Sends requests. The real one is a client; tests have one that fails where they want.
pub(crate) trait Api: Send + Sync + 'static {
    /// Sends a request, and gives the body of the answer.
    fn send(&self, request: Request) -> impl Future<Output = Result<Value, Fault>> + Send;
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What the server said.
    pub(crate) failure: Failure,
    /// How long the server asked us to wait.
    pub(crate) retry_after: Option<Duration>,
}

impl Fault {
    /// A request that had no answer.
    pub(crate) fn unanswered(reason: &str, message: String) -> Fault {
        Fault { failure: Failure { code: 0, reason: reason.to_owned(), message }, retry_after: None }
    }

    /// A write that was not attempted: the object is not as it has to be for it.
    pub(crate) fn refused(message: String) -> Fault {
        Fault { failure: Failure { code: 412, reason: "PreconditionFailed".into(), message }, retry_after: None }
    }

    /// Whether the object changed under our hands.
    pub(crate) fn is_conflict(&self) -> bool {
        self.failure.code == 409
    }

    /// Whether the object is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        self.failure.code == 404
    }

    /// Whether the same request may well succeed a little later: nothing is wrong with what was asked.
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
