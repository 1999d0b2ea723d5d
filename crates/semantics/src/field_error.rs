//! Errors about a field of a value, in Kubernetes' wording.
//!
//! Mirrors `field.Error` and its aggregate from `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt;

use thiserror::Error;

/// An error about a field: its path, the kind of error, the value, and the detail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    place: String,
    field: String,
    kind: Kind,
    value: String,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Invalid,
    Unsupported,
    Required,
    Forbidden,
}

impl FieldError {
    /// `field.Invalid`: a malformed value. `value` is as [`quoted`] or [`json_list`] render it.
    pub(crate) fn invalid(field: String, value: String, detail: impl Into<String>) -> Self {
        Self::new(field, Kind::Invalid, value, detail.into())
    }

    /// `field.NotSupported`: a value outside an enumeration.
    pub(crate) fn unsupported(field: String, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|v| quoted(v)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(field, Kind::Unsupported, json_string(value), detail)
    }

    /// `field.Required`: a value that must not be empty.
    pub(crate) fn required(field: String) -> Self {
        Self::required_because(field, "")
    }

    /// `field.Required` with its reason.
    pub(crate) fn required_because(field: String, detail: &str) -> Self {
        Self::new(field, Kind::Required, String::new(), detail.to_owned())
    }

    /// `field.Forbidden`: a value that is not allowed.
    pub(crate) fn forbidden(field: String, detail: &str) -> Self {
        Self::new(field, Kind::Forbidden, String::new(), detail.to_owned())
    }

    fn new(field: String, kind: Kind, value: String, detail: String) -> Self {
        Self { place: String::new(), field, kind, value, detail }
    }

    /// Adds the path of the field inside the caller's value, for errors in which Kubernetes reports
    /// only the last part of the path.
    pub(crate) fn at(mut self, place: &str) -> Self {
        place.clone_into(&mut self.place);
        self
    }

    /// The path of the invalid field inside the value that was checked.
    #[must_use]
    pub fn field(&self) -> String {
        child(&self.place, &self.field)
    }

    /// The error without the field (`field.Error.ErrorBody`).
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = match self.kind {
            Kind::Invalid => format!("Invalid value: {}", self.value),
            Kind::Unsupported => format!("Unsupported value: {}", self.value),
            Kind::Required => "Required value".to_owned(),
            Kind::Forbidden => "Forbidden".to_owned(),
        };
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    fn kubernetes_message(&self) -> String {
        format!("{}: {}", self.field, self.body())
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field(), self.body())
    }
}

/// One or more [`FieldError`]s, printed as Kubernetes prints an aggregate: several in brackets,
/// without duplicates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
#[error("{}", aggregate(.0.iter().map(ToString::to_string)))]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// `Err` if the list is not empty, as in `ErrorList.ToAggregate`.
    pub(crate) fn check(errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }

    /// The errors, in Kubernetes' order.
    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.0
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }

    pub(crate) fn at(self, place: &str) -> Self {
        Self(self.0.into_iter().map(|e| e.at(place)).collect())
    }

    /// The exact message of the Kubernetes function.
    pub(crate) fn kubernetes_message(&self) -> String {
        aggregate(self.0.iter().map(FieldError::kubernetes_message))
    }
}

fn aggregate(messages: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for message in messages {
        if !distinct.contains(&message) {
            distinct.push(message);
        }
    }
    match distinct.len() {
        1 => distinct.concat(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// `path.Child`: the root has no leading dot.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A string as Go's `%q` prints it, which is how `field.Error` shows a plain string.
pub(crate) fn quoted(s: &str) -> String {
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            _ if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            // Rust's Debug and Go's %q agree on what is printable, except for Unicode versions.
            _ if c.is_ascii() || c.escape_debug().len() == 1 => out.push(c),
            _ if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// A string as Go's `encoding/json` prints it, which is how `field.Error` shows a string of a
/// named type such as an operator or an effect.
pub(crate) fn json_string(s: &str) -> String {
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Go escapes these three so that JSON can be embedded in HTML, and the two line
            // separators so that it can be embedded in JavaScript.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of strings as Go's `encoding/json` prints it; an absent list is `null`.
pub(crate) fn json_list(values: Option<&[String]>) -> String {
    let Some(values) = values else {
        return "null".to_owned();
    };
    let items: Vec<String> = values.iter().map(|v| json_string(v)).collect();
    format!("[{}]", items.join(","))
}
