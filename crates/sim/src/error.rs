//! The errors of the API server and of the simulation.

use jiff::Timestamp;

use crate::object::SimKey;

/// Why the API server refuses a request. Messages are Kubernetes' own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// There is no such object.
    #[error("{} \"{}\" not found", resource(.0), .0.name)]
    NotFound(SimKey),
    /// There is such an object already.
    #[error("{} \"{}\" already exists", resource(.0), .0.name)]
    AlreadyExists(SimKey),
    /// The object is not the one, or not the version, that the request was decided for.
    #[error("Operation cannot be fulfilled on {} \"{}\": {message}", resource(.key), .key.name)]
    Conflict {
        /// Which object.
        key: SimKey,
        /// What differs.
        message: String,
    },
    /// The request is not allowed.
    #[error("{} \"{}\" is forbidden: {message}", resource(.key), .key.name)]
    Forbidden {
        /// Which object.
        key: SimKey,
        /// Why.
        message: String,
    },
    /// The object is not valid.
    #[error("{} \"{}\" is invalid: {message}", .key.kind, .key.name)]
    Invalid {
        /// Which object.
        key: SimKey,
        /// The field and what is wrong with it.
        message: String,
    },
    /// A disruption budget does not allow an eviction now.
    #[error("{message}")]
    TooManyRequests {
        /// The message.
        message: String,
    },
    /// The server failed.
    #[error("{message}")]
    Internal {
        /// The message.
        message: String,
    },
}

/// The resource of an object with its API group, as messages name it: `statefulsets.apps`.
fn resource(key: &SimKey) -> String {
    let kind = key.kind.entry();
    if kind.group().is_empty() { kind.plural.to_owned() } else { format!("{}.{}", kind.plural, kind.group()) }
}

impl ApiError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            ApiError::NotFound(_) => 404,
            ApiError::AlreadyExists(_) | ApiError::Conflict { .. } => 409,
            ApiError::Forbidden { .. } => 403,
            ApiError::Invalid { .. } => 422,
            ApiError::TooManyRequests { .. } => 429,
            ApiError::Internal { .. } => 500,
        }
    }

    /// The reason of the Status.
    pub fn reason(&self) -> &'static str {
        match self {
            ApiError::NotFound(_) => "NotFound",
            ApiError::AlreadyExists(_) => "AlreadyExists",
            ApiError::Conflict { .. } => "Conflict",
            ApiError::Forbidden { .. } => "Forbidden",
            ApiError::Invalid { .. } => "Invalid",
            ApiError::TooManyRequests { .. } => "TooManyRequests",
            ApiError::Internal { .. } => "InternalError",
        }
    }
}

/// A limit of the simulation was reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the simulation stopped at {at}: more than {limit} {what}")]
pub struct LimitReached {
    /// The virtual time.
    pub at: Timestamp,
    /// The limit.
    pub limit: u64,
    /// What was counted: `steps` or `objects`.
    pub what: &'static str,
}
