//! Earlier responses to reads, for stale reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Response, StatusCode, Uri, response};
use http_body_util::BodyExt;
use kube::client::Body;

/// Responses by URI, the oldest first.
#[derive(Default)]
pub(super) struct ResponseCache(Mutex<BTreeMap<String, VecDeque<CachedResponse>>>);

struct CachedResponse {
    at: Instant,
    parts: response::Parts,
    body: Bytes,
}

/// Whether the API server itself produces the response. Responses that it proxies from a kubelet are never stale.
pub(super) fn is_cacheable(uri: &Uri) -> bool {
    !uri.path().split('/').any(|part| part == "proxy")
}

impl ResponseCache {
    /// Stores a successful response.
    pub(super) async fn store(&self, uri: &Uri, response: Response<Body>) -> Result<Response<Body>> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.context("reading a response body")?.to_bytes();
        if parts.status == StatusCode::OK {
            let cached = CachedResponse { at: Instant::now(), parts: parts.clone(), body: body.clone() };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(uri.to_string()).or_default().push_back(cached);
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    /// Returns the oldest response that is not older than `max_age`.
    pub(super) fn stale(&self, uri: &Uri, max_age: Duration) -> Option<Response<Body>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let responses = all.get_mut(&uri.to_string())?;
        while responses.front().is_some_and(|cached| cached.at.elapsed() > max_age) {
            responses.pop_front();
        }
        let cached = responses.front()?;
        Some(Response::from_parts(cached.parts.clone(), Body::from(cached.body.clone())))
    }
}
