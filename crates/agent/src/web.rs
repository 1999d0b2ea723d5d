//! What probes, Prometheus, the other agents and the kubelet's hook ask.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use stead_pool::{Report, Severity};

use crate::daemon::Process;
use crate::leave;
use crate::metrics::Now;
use crate::ready::unready;
use crate::shared::Shared;

/// How old the last look may be before the agent counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// How long glusterd may fail to run before somebody else should try.
const FAILING: Duration = Duration::from_secs(120);

/// How long somebody who wants a fresh report waits for it.
const FRESH: Duration = Duration::from_secs(3);

/// The pages.
pub(crate) fn pages(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/state", get(state))
        .route("/pool", get(pool))
        .route("/metrics", get(metrics))
        .route("/prestop", get(prestop))
        .with_state(shared)
}

/// Whether a new container would do better. That other peers are away is no reason.
async fn livez(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let age = shared.looked.borrow().began.elapsed();
    if age > STUCK {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("the last look is {} s old\n", age.as_secs()));
    }
    match shared.daemon.process() {
        Process::Failed { since } if since.elapsed() > FAILING => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("glusterd has not stayed up for {} s\n", since.elapsed().as_secs()),
        ),
        _ => (StatusCode::OK, "ok\n".into()),
    }
}

async fn readyz(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    match why_unready(&shared) {
        None => (StatusCode::OK, "ok\n".into()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn why_unready(shared: &Shared) -> Option<String> {
    unready(&shared.report(), shared.cluster.seen().borrow().record().as_ref())
}

#[derive(Debug, Deserialize)]
struct How {
    /// Whether the report has to be a new one.
    #[serde(default)]
    fresh: bool,
}

async fn state(State(shared): State<Arc<Shared>>, Query(how): Query<How>) -> Json<Report> {
    Json(if how.fresh { shared.fresh(FRESH).await } else { shared.report() })
}

/// What this agent last said of the pool, if it is the one who decides.
async fn pool(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let notes: Vec<Value> = shared
        .notes()
        .iter()
        .map(|note| {
            let severity = match note.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            };
            json!({"ordinal": note.ordinal, "reason": note.reason, "text": note.text, "severity": severity})
        })
        .collect();
    Json(json!({
        "pool": shared.settings.pool,
        "ordinal": shared.settings.pod.ordinal,
        "leads": shared.leadership.leads(),
        "unready": why_unready(&shared),
        "notes": notes,
    }))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let looked = shared.looked.borrow().clone();
    let warnings = shared.notes().iter().filter(|note| note.severity == Severity::Warning).count();
    let text = shared.metrics.text(Now {
        report: &looked.report,
        ready: why_unready(&shared).is_none(),
        leads: shared.leadership.leads(),
        age: looked.began.elapsed().as_secs(),
        warnings,
    });
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// The kubelet waits for this before it ends the container.
async fn prestop(State(shared): State<Arc<Shared>>) -> String {
    leave::before_end(&shared).await
}
