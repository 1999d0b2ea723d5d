//! A web page that lists the rows of a SQLite file on a volume, can add a row, and names its pod and node.
//!
//! `DATA` is the file (`/data/test.db`), `LISTEN` the address (`0.0.0.0:8080`); `POD_NAME` and `NODE_NAME` come from the
//! downward API. If the volume is gone, the page has status 500 and says so; the process continues.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod page;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Router, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::page::Whereabouts;
use crate::rows::{Row, Rows};

struct App {
    rows: Rows,
    whereabouts: Whereabouts,
}

#[tokio::main]
async fn main() -> Result<()> {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let app = App {
        rows: Rows::new(PathBuf::from(variable("DATA", "/data/test.db"))),
        whereabouts: Whereabouts { pod: variable("POD_NAME", "unknown"), node: variable("NODE_NAME", "unknown") },
    };
    let router = Router::new()
        .route("/", get(list).post(add))
        .route("/healthz", get(|| async { "ok\n" }))
        // The path that OpenStack services have: the application can run in place of one.
        .route("/healthcheck", get(|| async { "ok\n" }))
        .with_state(Arc::new(app));
    let address = variable("LISTEN", "0.0.0.0:8080");
    let listener = TcpListener::bind(&address).await.with_context(|| format!("listening on {address}"))?;
    // The first process of a container has no default signal handlers.
    let mut terminate = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    tokio::select! {
        served = serve(listener, router) => served.context("serving"),
        _ = terminate.recv() => Ok(()),
    }
}

async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let asked = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = asked.contains("text/plain");
    match blocking(app.clone(), |app| app.rows.all()).await {
        Ok(rows) if plain => page::text(&rows, &app.whereabouts).into_response(),
        Ok(rows) => Html(page::html(&rows, &app.whereabouts)).into_response(),
        Err(e) => failure(&app, &e),
    }
}

async fn add(State(app): State<Arc<App>>, Form(row): Form<Row>) -> Response {
    if let Err(why) = row.check() {
        return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
    }
    match blocking(app.clone(), move |app| app.rows.add(&row)).await {
        Ok(()) => Redirect::to("/").into_response(),
        Err(e) => failure(&app, &e),
    }
}

/// Accesses the volume on another thread, so that a disk which hangs does not block other requests.
async fn blocking<T: Send + 'static>(app: Arc<App>, act: impl FnOnce(&App) -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(move || act(&app)).await.context("a thread that reads the volume")?
}

fn failure(app: &App, error: &anyhow::Error) -> Response {
    let Whereabouts { pod, node } = &app.whereabouts;
    let text = format!("{error:#}\nMy pod name: {pod}\nMy node name {node}\n");
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}
