//! What is wrong with an object.

use crate::key::ObjectKey;

/// An object that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A field of the wrong type, or a value that Kubernetes would reject.
    #[error("{object}: {field}: {reason}")]
    Malformed {
        /// Kind and name, such as `pod default/web-0`.
        object: String,
        /// The path to the field, such as `spec.containers[0].resources`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The object that is asked about does not exist.
    #[error("{0} not found")]
    NotFound(ObjectKey),
}

impl ModelError {
    /// A malformed field of an object.
    pub fn malformed(object: impl ToString, field: impl Into<String>, reason: impl ToString) -> ModelError {
        ModelError::Malformed { object: object.to_string(), field: field.into(), reason: reason.to_string() }
    }

    /// The same error of an object whose part at `parent` was parsed alone.
    pub fn below(self, parent: &str) -> ModelError {
        match self {
            ModelError::Malformed { object, field, reason } if field == "." => {
                ModelError::malformed(object, parent, reason)
            }
            ModelError::Malformed { object, field, reason } => {
                ModelError::malformed(object, format!("{parent}.{field}"), reason)
            }
            other => other,
        }
    }
}
