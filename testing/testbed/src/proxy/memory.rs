//! Earlier responses to reads, for stale reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Response, StatusCode, Uri, response};
use http_body_util::BodyExt;
use kube::client::Body;

/// Answers by what was asked, the oldest first.
#[derive(Default)]
pub(super) struct Memory(Mutex<BTreeMap<String, VecDeque<Kept>>>);

struct Kept {
    at: Instant,
    parts: response::Parts,
    body: Bytes,
}

/// Whether an answer is the API server's own. What it only passes on, a kubelet's, comes from no cache.
pub(super) fn may_be_kept(uri: &Uri) -> bool {
    !uri.path().split('/').any(|part| part == "proxy")
}

impl Memory {
    /// Keeps an answer, if it is one.
    pub(super) async fn keep(&self, uri: &Uri, response: Response<Body>) -> Result<Response<Body>> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.context("an answer's body")?.to_bytes();
        if parts.status == StatusCode::OK {
            let kept = Kept { at: Instant::now(), parts: parts.clone(), body: body.clone() };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(uri.to_string()).or_default().push_back(kept);
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    /// The oldest answer that is not older than this.
    pub(super) fn recall(&self, uri: &Uri, by: Duration) -> Option<Response<Body>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = all.get_mut(&uri.to_string())?;
        while answers.front().is_some_and(|kept| kept.at.elapsed() > by) {
            answers.pop_front();
        }
        let kept = answers.front()?;
        Some(Response::from_parts(kept.parts.clone(), Body::from(kept.body.clone())))
    }
}
