//! The errors of the API server and of the simulation.

use jiff::Timestamp;
use stead_model::Kind;

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
    /// The same about something that messages do not name by its resource.
    #[error("Operation cannot be fulfilled on {subject} \"{}\": {message}", .key.name)]
    ConflictOn {
        /// Which object.
        key: SimKey,
        /// What messages name: the kind, or a subresource such as `pods/binding`.
        subject: String,
        /// What differs.
        message: String,
    },
    /// Nothing can be created in a namespace that is being deleted (`NamespaceTerminatingCause`).
    #[error("{} \"{}\" is forbidden: {}", resource(.0), .0.name, terminating(.0))]
    NamespaceTerminating(SimKey),
    /// The request is not allowed.
    #[error("{} \"{}\" is forbidden: {message}", resource(.key), .key.name)]
    Forbidden {
        /// Which object.
        key: SimKey,
        /// Why.
        message: String,
    },
    /// The object is not valid.
    #[error("{} \"{}\" is invalid: {message}", qualified_kind(.key), .key.name)]
    Invalid {
        /// Which object.
        key: SimKey,
        /// The field and what is wrong with it.
        message: String,
    },
    /// The request cannot be understood.
    #[error("{message}")]
    BadRequest {
        /// The message.
        message: String,
    },
    /// A disruption budget does not allow an eviction now.
    #[error("{message}")]
    TooManyRequests {
        /// The message.
        message: String,
        /// The cause in the details of the Status (`DisruptionBudget`).
        cause: String,
        /// When to try again, in seconds; none if the server does not say.
        retry_after: Option<u32>,
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
    resource_of(key.kind.entry())
}

/// The same of a kind.
pub(crate) fn resource_of(kind: &Kind) -> String {
    if kind.group().is_empty() { kind.plural.to_owned() } else { format!("{}.{}", kind.plural, kind.group()) }
}

/// The kind of an object with its API group, as messages name it: `StatefulSet.apps`.
pub(crate) fn qualified_kind(key: &SimKey) -> String {
    let kind = key.kind.entry();
    if kind.group().is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group()) }
}

fn terminating(key: &SimKey) -> String {
    format!("unable to create new content in namespace {} because it is being terminated", key.namespace)
}

impl ApiError {
    /// Whether the object is not the one, or not the version, that the request was decided for.
    pub fn is_conflict(&self) -> bool {
        matches!(self, ApiError::Conflict { .. } | ApiError::ConflictOn { .. })
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            ApiError::NotFound(_) => 404,
            ApiError::AlreadyExists(_) | ApiError::Conflict { .. } | ApiError::ConflictOn { .. } => 409,
            ApiError::Forbidden { .. } | ApiError::NamespaceTerminating(_) => 403,
            ApiError::BadRequest { .. } => 400,
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
            ApiError::Conflict { .. } | ApiError::ConflictOn { .. } => "Conflict",
            ApiError::Forbidden { .. } | ApiError::NamespaceTerminating(_) => "Forbidden",
            ApiError::BadRequest { .. } => "BadRequest",
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
