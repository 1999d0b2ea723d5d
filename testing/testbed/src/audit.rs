//! Reads the API server's audit log.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Every request once, when it has been answered, without the bodies.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// A request that was answered. (A watch is here twice: when it began, and when it ended.)
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …
    pub verb: String,
    /// How far it was when this was written: `ResponseComplete`, or `ResponseStarted` for a watch that began.
    pub stage: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// When the API server had the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: String,
    user: Somebody,
    /// What it was about; none for what is no resource, such as `/healthz`.
    pub object_ref: Option<ObjectRef>,
    response_status: Option<Answer>,
    /// What the caller says of itself.
    #[serde(default)]
    pub user_agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Somebody {
    #[serde(default)]
    username: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Answer {
    #[serde(default)]
    code: u16,
}

impl AuditEvent {
    /// Who asked.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The status code of the answer; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |answer| answer.code)
    }
}

/// What a request was about. What does not apply is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The API group; empty for the core one.
    pub api_group: String,
    /// The resource, plural.
    pub resource: String,
    /// `status`, `scale`, …
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Reads what has been logged so far. A last line that is still being written is left out.
pub(crate) fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let event = |line: &str| serde_json::from_str(line).with_context(|| format!("the audit log: {line}"));
    whole.lines().map(event).collect()
}
