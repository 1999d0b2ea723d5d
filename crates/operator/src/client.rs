//! The real cluster behind [`Api`].

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use serde_json::Value;
use stead_loops::Failure;

use crate::api::{Api, Fault};
use crate::request::Request;
use crate::shared::Shared;

/// How long a read may take.
const LONGEST_READ: Duration = Duration::from_secs(30);

/// Sends requests through a client, and writes only while this process leads.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    shared: Arc<Shared>,
}

impl Cluster {
    /// A cluster that is reached through a client.
    pub(crate) fn new(client: Client, shared: Arc<Shared>) -> Cluster {
        Cluster { client, shared }
    }
}

impl Api for Cluster {
    async fn send(&self, request: Request) -> Result<Value, Fault> {
        let verb = request.verb;
        let limit = if verb.reads() {
            LONGEST_READ
        } else {
            self.shared
                .leadership
                .allows(self.shared.clock.now())
                .ok_or_else(|| Fault::unanswered("NotLeader", "another process leads".into()))?
        };
        let answer = match tokio::time::timeout(limit, exchange(&self.client, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::unanswered("Timeout", format!("no answer within {} s", limit.as_secs()))),
        };
        let code = answer.as_ref().err().map_or(200, |fault| fault.failure.code);
        self.shared.metrics.answered(verb.name(), code);
        answer
    }
}

/// Sends one request and reads its answer.
pub(crate) async fn exchange(client: &Client, request: Request) -> Result<Value, Fault> {
    let unanswered = |e: &dyn std::error::Error| Fault::unanswered("Unreachable", chain(e));
    let body = request.body.as_ref().map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder()
        .method(request.verb.method())
        .uri(&request.path)
        .header("content-type", request.verb.content_type())
        .header("accept", "application/json")
        .body(Body::from(body.into_bytes()))
        .map_err(|e| unanswered(&e))?;
    let answer = client.send(request).await.map_err(|e| unanswered(&e))?;
    let (parts, body) = answer.into_parts();
    let body = body.collect_bytes().await.map_err(|e| unanswered(&e))?;
    if parts.status.is_success() {
        return serde_json::from_slice(&body).map_err(|e| unanswered(&e));
    }
    let header = parts.headers.get("retry-after").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    Err(fault(parts.status.as_u16(), header, &body))
}

/// What an answer that is no success says: a Status, or any text that something on the way put in its place.
fn fault(code: u16, retry_after: Option<u64>, body: &[u8]) -> Fault {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().map(str::to_owned);
    let message = text("message").unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(500).collect());
    let seconds = retry_after.or_else(|| status["details"]["retryAfterSeconds"].as_u64());
    Fault {
        failure: Failure { code, reason: text("reason").unwrap_or_default(), message },
        retry_after: seconds.map(Duration::from_secs),
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_what_the_server_said() {
        let invalid =
            br#"{"kind":"Status","code":422,"reason":"Invalid","message":"spec: Invalid value","details":{}}"#;
        let busy =
            br#"{"kind":"Status","reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":3}}"#;
        for (code, header, body, said, after) in [
            (422, None, &invalid[..], "422 Invalid: spec: Invalid value", None),
            (429, None, &busy[..], "429 TooManyRequests: later", Some(3)),
            (429, Some(7), &busy[..], "429 TooManyRequests: later", Some(7)),
            (502, None, &b"bad gateway"[..], "502 : bad gateway", None),
        ] {
            let fault = fault(code, header, body);
            assert_eq!((fault.to_string().as_str(), fault.retry_after.map(|d| d.as_secs())), (said, after));
        }
    }
}
