//! Writes that went through the proxy.

use jiff::Timestamp;

use serde_json::Value;

/// A write, and the API server's response.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedWrite {
    /// When it was forwarded.
    pub at: Timestamp,
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// The path, without a query.
    pub path: String,
    /// The request body; null if it is not JSON.
    pub body: Value,
    /// The status code of the response; 0 while there is none.
    pub code: u16,
}

impl RecordedWrite {
    /// Records a write before it is forwarded; none for a review, which writes nothing.
    pub(super) fn new(method: &http::Method, path: &str, body: &[u8]) -> Option<RecordedWrite> {
        let body = serde_json::from_slice(body).unwrap_or_default();
        let write =
            RecordedWrite { at: Timestamp::now(), method: method.to_string(), path: path.into(), body, code: 0 };
        (!path.ends_with("reviews")).then_some(write)
    }

    pub(super) fn with_code(self, code: u16) -> RecordedWrite {
        RecordedWrite { code, ..self }
    }

    /// Whether the API server applied it.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}
