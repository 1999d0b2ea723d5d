//! A write that went through the proxy.

use jiff::Timestamp;

use serde_json::Value;

/// A write, and how the API server answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// When it was passed on.
    pub at: Timestamp,
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// The path, without a query.
    pub path: String,
    /// What was to be written, where that is JSON.
    pub body: Value,
    /// The status code of the answer; 0 while there is none.
    pub code: u16,
}

impl Written {
    /// A write that is about to be made. A review is a question, and none.
    pub(super) fn about(method: &http::Method, path: &str, body: &[u8]) -> Option<Written> {
        let body = serde_json::from_slice(body).unwrap_or_default();
        let written = Written { at: Timestamp::now(), method: method.to_string(), path: path.into(), body, code: 0 };
        (!path.ends_with("reviews")).then_some(written)
    }

    pub(super) fn answered(self, code: u16) -> Written {
        Written { code, ..self }
    }

    /// Whether the API server has made it.
    pub fn was_made(&self) -> bool {
        (200..300).contains(&self.code)
    }
}
