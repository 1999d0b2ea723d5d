//! The endpoints for probes and metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::shared::Shared;

/// The longest that one reconcile may take: it sends few requests, and each has a deadline.
const STUCK: Duration = Duration::from_secs(600);

/// The endpoints.
pub(crate) fn pages(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

async fn healthz(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    match shared.oldest_work() {
        Some(age) if age > STUCK => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("one reconcile has taken {} s\n", age.as_secs()))
        }
        _ => (StatusCode::OK, "ok\n".into()),
    }
}

async fn readyz(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let waits = shared.waits_for();
    if !waits.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", waits.join("\n")));
    }
    (StatusCode::OK, if shared.leadership.leads() { "ok: leads\n" } else { "ok: stands by\n" }.into())
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let (due, leads) = (shared.due(), shared.leadership.leads());
    let text = shared.metrics.text(shared.loops.reconciled, shared.index().store(), due, leads);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
