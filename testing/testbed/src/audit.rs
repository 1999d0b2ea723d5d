//! Reads the API server's audit log.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Logs every request once, after the response, without bodies.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// A request that was answered. (A watch is logged twice: when it starts and when it ends.)
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …
    pub verb: String,
    /// `ResponseComplete`, or `ResponseStarted` for a watch that starts.
    pub stage: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// When the API server received the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: String,
    user: AuditUser,
    /// The requested object; none for a path that is not a resource, such as `/healthz`.
    pub object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    /// The client's user agent.
    #[serde(default)]
    pub user_agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct AuditUser {
    #[serde(default)]
    username: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl AuditEvent {
    /// The user name.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The status code of the response; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}

/// The object of a request. Fields that do not apply are empty.
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

/// Reads the log. A last line that is still being written is left out.
pub(crate) fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let event = |line: &str| serde_json::from_str(line).with_context(|| format!("the audit log: {line}"));
    complete.lines().map(event).collect()
}
