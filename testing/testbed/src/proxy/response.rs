//! The proxy's responses: the API server's, complete or truncated, or an injected error.

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

/// The body of a response.
pub(super) struct ResponseBody {
    body: Body,
    stall: Option<Stall>,
}

/// A body that stops sending data at some time, and breaks off at a later one.
struct Stall {
    stalled: bool,
    until: Pin<Box<Sleep>>,
    end: Instant,
}

impl ResponseBody {
    /// The complete body.
    pub(super) fn complete(body: Body) -> ResponseBody {
        ResponseBody { body, stall: None }
    }

    /// Sends data for the time `after`, then nothing for the time `lasting` while the connection stays open, then
    /// closes it.
    pub(super) fn stalling(body: Body, after: Duration, lasting: Duration) -> ResponseBody {
        let begin = Instant::now() + after;
        let stall = Stall { stalled: false, until: Box::pin(sleep_until(begin)), end: begin + lasting };
        ResponseBody { body, stall: Some(stall) }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let ResponseBody { body, stall } = &mut *self;
        if let Some(stall) = stall {
            while stall.until.as_mut().poll(cx).is_ready() {
                if stall.stalled {
                    return Poll::Ready(Some(Err(anyhow::anyhow!("a stalled watch was closed"))));
                }
                stall.stalled = true;
                stall.until.as_mut().reset(stall.end);
            }
            if stall.stalled {
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

/// The API server's response to a write to an object that was modified meanwhile.
pub(super) fn conflict(path: &str) -> Result<Response<ResponseBody>> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let message = format!(
        "Operation cannot be fulfilled on \"{name}\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    error_status(StatusCode::CONFLICT, "Conflict", &message, json!({ "name": name }))
}

/// The API server's response when it is overloaded.
pub(super) fn too_many() -> Result<Response<ResponseBody>> {
    let message = "Too many requests, please try again later.";
    let mut response =
        error_status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, json!({ "retryAfterSeconds": 1 }))?;
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    Ok(response)
}

/// The API server's internal error.
pub(super) fn internal() -> Result<Response<ResponseBody>> {
    let message = "Internal error occurred: injected by the fault proxy";
    error_status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, json!({}))
}

/// The API server's version.
pub(super) fn version(major: &str, minor: &str) -> Result<Response<ResponseBody>> {
    let git = format!("v{major}.{minor}.0");
    json(StatusCode::OK, &json!({ "major": major, "minor": minor, "gitVersion": git }))
}

fn error_status(code: StatusCode, reason: &str, message: &str, details: Value) -> Result<Response<ResponseBody>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code.as_u16(),
    });
    json(code, &status)
}

fn json(code: StatusCode, value: &Value) -> Result<Response<ResponseBody>> {
    Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(ResponseBody::complete(Body::from(value.to_string().into_bytes())))
        .context("building a response")
}
