//! What is said of input that Kubernetes would have refused.

use std::fmt::{self, Display};

/// An object that cannot be understood: which one, which field, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {reason}")]
pub struct InputError {
    /// Kind and name, such as `pod openstack/glance-0`.
    pub object: String,
    /// The path to the field, such as `spec.containers[0].resources.requests[cpu]`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A fault in a field, before it is known which object the field belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    field: String,
    reason: String,
}

pub(crate) type FieldResult<T> = Result<T, FieldError>;

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, reason: impl Display) -> Self {
        FieldError { field: field.into(), reason: reason.to_string() }
    }

    /// The same fault seen from the enclosing field.
    pub(crate) fn under(mut self, parent: impl Display) -> Self {
        self.field = if self.field.is_empty() { parent.to_string() } else { format!("{parent}.{}", self.field) };
        self
    }

    pub(crate) fn of(self, object: impl Display) -> InputError {
        InputError { object: object.to_string(), field: self.field, reason: self.reason }
    }
}

/// Names the field that a result belongs to.
pub(crate) trait InField<T> {
    fn in_field(self, field: impl Display) -> FieldResult<T>;
}

impl<T, E: Display> InField<T> for Result<T, E> {
    fn in_field(self, field: impl Display) -> FieldResult<T> {
        self.map_err(|reason| FieldError::new(field.to_string(), reason))
    }
}

/// Puts a result's fault under an enclosing field.
pub(crate) trait Under<T> {
    fn under(self, parent: impl Display) -> FieldResult<T>;
}

impl<T> Under<T> for FieldResult<T> {
    fn under(self, parent: impl Display) -> FieldResult<T> {
        self.map_err(|e| e.under(parent))
    }
}

/// `kind namespace/name`, or `kind name` for what has no namespace.
pub(crate) struct ObjectName<'a>(pub(crate) &'static str, pub(crate) &'a str, pub(crate) &'a str);

impl Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectName(kind, namespace, name) = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}
