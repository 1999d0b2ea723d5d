//! Errors for input that Kubernetes would reject.

use std::fmt::{self, Display};

/// An invalid object: which one, which field, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {reason}")]
pub struct InputError {
    /// Kind and name, such as `pod openstack/glance-0`.
    pub object: String,
    /// The path to the field, such as `spec.containers[0].resources.requests[cpu]`.
    pub field: String,
    /// What is wrong with the field.
    pub reason: String,
}

/// An error in a field, without the object that it belongs to.
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

    /// Prefixes the enclosing field.
    pub(crate) fn under(mut self, parent: impl Display) -> Self {
        self.field = if self.field.is_empty() { parent.to_string() } else { format!("{parent}.{}", self.field) };
        self
    }

    pub(crate) fn of(self, object: impl Display) -> InputError {
        InputError { object: object.to_string(), field: self.field, reason: self.reason }
    }
}

/// Adds the field to an error.
pub(crate) trait InField<T> {
    fn in_field(self, field: impl Display) -> FieldResult<T>;
}

impl<T, E: Display> InField<T> for Result<T, E> {
    fn in_field(self, field: impl Display) -> FieldResult<T> {
        self.map_err(|reason| FieldError::new(field.to_string(), reason))
    }
}

/// Adds the enclosing field to an error.
pub(crate) trait Under<T> {
    fn under(self, parent: impl Display) -> FieldResult<T>;
}

impl<T> Under<T> for FieldResult<T> {
    fn under(self, parent: impl Display) -> FieldResult<T> {
        self.map_err(|e| e.under(parent))
    }
}

/// `kind namespace/name`, or `kind name` for cluster-scoped objects.
pub(crate) struct ObjectName<'a>(pub(crate) &'static str, pub(crate) &'a str, pub(crate) &'a str);

impl Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectName(kind, namespace, name) = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}
