//! The proxy's responses: the API server's, complete or truncated, or an error of its own.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

/// The body of an answer.
pub(super) struct Answer {
    body: Body,
    stall: Option<Stall>,
}

/// A body that hands nothing on any more from a moment on, and breaks off at a later one.
struct Stall {
    silent: bool,
    until: Pin<Box<Sleep>>,
    end: Instant,
}

impl Answer {
    /// All of it.
    pub(super) fn whole(body: Body) -> Answer {
        Answer { body, stall: None }
    }

    /// What comes within a time; then nothing for a time, while the connection stays; then its end.
    pub(super) fn stalling(body: Body, after: Duration, lasting: Duration) -> Answer {
        let begin = Instant::now() + after;
        let stall = Stall { silent: false, until: Box::pin(sleep_until(begin)), end: begin + lasting };
        Answer { body, stall: Some(stall) }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Answer { body, stall } = &mut *self;
        if let Some(stall) = stall {
            while stall.until.as_mut().poll(cx).is_ready() {
                if stall.silent {
                    return Poll::Ready(Some(Err(anyhow::anyhow!("a silent watch has ended"))));
                }
                stall.silent = true;
                stall.until.as_mut().reset(stall.end);
            }
            if stall.silent {
                return Poll::Pending;
            }
        }
        Pin::new(body).poll_frame(cx).map_err(anyhow::Error::from)
    }

    fn is_end_stream(&self) -> bool {
        self.stall.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.stall.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// As the API server refuses a write to something that has changed meanwhile.
pub(super) fn conflict(path: &str) -> Result<Response<Answer>> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let message = format!(
        "Operation cannot be fulfilled on \"{name}\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    refusal(StatusCode::CONFLICT, "Conflict", &message, json!({ "name": name }))
}

/// As the API server refuses when it has too much to do.
pub(super) fn too_many() -> Result<Response<Answer>> {
    let message = "Too many requests, please try again later.";
    let mut response =
        refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, json!({ "retryAfterSeconds": 1 }))?;
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    Ok(response)
}

/// As the API server fails.
pub(super) fn internal() -> Result<Response<Answer>> {
    let message = "Internal error occurred: the proxy was told to fail";
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, json!({}))
}

/// As an API server says which it is.
pub(super) fn version(major: &str, minor: &str) -> Result<Response<Answer>> {
    let git = format!("v{major}.{minor}.0");
    json(StatusCode::OK, &json!({ "major": major, "minor": minor, "gitVersion": git }))
}

fn refusal(code: StatusCode, reason: &str, message: &str, details: Value) -> Result<Response<Answer>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code.as_u16(),
    });
    json(code, &status)
}

fn json(code: StatusCode, value: &Value) -> Result<Response<Answer>> {
    Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Answer::whole(Body::from(value.to_string().into_bytes())))
        .context("an answer")
}
