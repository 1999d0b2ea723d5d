//! The HTTP pages for probes, Prometheus and the other agents.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use stead_pool::Severity;
use stead_pool::status::{NoteText, PoolPage};

use crate::auth::{self, Refused, Request};
use crate::daemon::Process;
use crate::metrics::MetricsInput;
use crate::ready::unready;
use crate::shared::Shared;

/// The age of the last observation after which the agent counts as stuck.
const MAX_OBSERVATION_AGE: Duration = Duration::from_secs(120);

/// How long glusterd may fail before the container is restarted.
const MAX_FAILING_TIME: Duration = Duration::from_secs(120);

/// How long a request for a fresh report waits for it.
const FRESH_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the pages. None of them changes anything.
pub(crate) fn pages(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/state", get(state))
        .route("/pool", get(pool))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

/// Whether the container should keep running. Disconnected peers are no reason for a restart.
async fn livez(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let age = shared.observation.borrow().began.elapsed();
    if age > MAX_OBSERVATION_AGE {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("the last observation is {} s old\n", age.as_secs()));
    }
    match shared.daemon.process() {
        Process::Failed { since } if since.elapsed() > MAX_FAILING_TIME => (
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
    // Without the key the others do not accept this agent's reports, so the next pod must not be replaced.
    let keys = shared.keys();
    let no_key = keys.missing().filter(|_| shared.settings.key_secret.is_some());
    no_key.map(str::to_owned).or_else(|| unready(&shared.report(), shared.cluster.objects().borrow().record().as_ref()))
}

#[derive(Debug, Deserialize)]
struct StateQuery {
    /// Whether the report has to be fresh.
    #[serde(default)]
    fresh: bool,
}

/// Returns this pod's report. A signed request of another agent gets a fresh report, signed; other requests get the
/// last one.
async fn state(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    Query(query): Query<StateQuery>,
) -> Response {
    let keys = shared.keys();
    let uid = &shared.settings.pod.uid;
    let nonce = match headers.get(header::AUTHORIZATION).filter(|_| keys.missing().is_none()) {
        None => None,
        Some(value) => {
            let path = uri.path_and_query().map_or("", |path| path.as_str());
            let request = Request { path, asked: uid };
            let checked = value.to_str().map_err(|_| Refused::Unreadable);
            match checked.and_then(|header| shared.answered.check(&keys, &request, header)) {
                Ok(nonce) => Some(nonce),
                Err(refused) => return (StatusCode::UNAUTHORIZED, format!("{refused}\n")).into_response(),
            }
        }
    };
    // Agents of older versions cannot sign, but need fresh reports during an update.
    let entitled = nonce.is_some() || shared.has_older_agents();
    let report = if query.fresh && entitled { shared.fresh(FRESH_TIMEOUT).await } else { shared.report() };
    let Ok(body) = serde_json::to_vec(&report) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let signature = nonce.and_then(|nonce| nonce.sign_answer(&keys, uid, &body));
    let mut answer = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(signature) = signature.and_then(|signature| signature.parse().ok()) {
        answer.headers_mut().insert(auth::SIGNATURE, signature);
    }
    answer
}

/// Returns the notes of this agent's last decision, if it leads.
async fn pool(State(shared): State<Arc<Shared>>) -> Json<PoolPage> {
    let note_text = |note: &stead_pool::Note| NoteText {
        ordinal: note.ordinal,
        reason: note.reason.to_string(),
        text: note.text.clone(),
        severity: note.severity.as_str().to_owned(),
    };
    Json(PoolPage {
        pool: shared.settings.pool.clone(),
        ordinal: shared.settings.pod.ordinal,
        leads: shared.leadership.leads(),
        unready: why_unready(&shared),
        notes: shared.notes().iter().map(note_text).collect(),
    })
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let observation = shared.observation.borrow().clone();
    let warnings = shared.notes().iter().filter(|note| note.severity == Severity::Warning).count();
    let text = shared.metrics.text(MetricsInput {
        report: &observation.report,
        ready: why_unready(&shared).is_none(),
        leads: shared.leadership.leads(),
        age: observation.began.elapsed().as_secs(),
        warnings,
    });
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use stead_pool::Report;

    use crate::auth::{Key, Keys};
    use crate::cluster::{PoolObjects, PoolPodView};
    use crate::other_agents::{self, OtherAgent};
    use crate::server::{Limits, serve};
    use crate::test_agent::{TestAgent, keys};

    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).unwrap()
    }

    async fn start_server(agent: &TestAgent) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, pages(agent.shared.clone()), Limits::DEFAULT));
        port
    }

    /// Sends a request as it is: agents of older versions and `stead gluster status` do not sign.
    async fn send_request(port: u16, path: &str, authorization: &str) -> (u16, bool, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.contains(auth::SIGNATURE), body.to_owned())
    }

    #[tokio::test]
    async fn an_agent_answers_older_agents_and_signs_for_new_ones() {
        let agent = TestAgent::new("web", "http://127.0.0.1:1", Some(3), PoolObjects::default()).await;
        let port = start_server(&agent).await;
        let other = OtherAgent { ordinal: 0, uid: "uid".into(), host: "127.0.0.1".into(), signs: true };
        let keys = keys(1);
        // Before it has the key, agents that need a signature reject its answers.
        let answers = other_agents::ask(std::slice::from_ref(&other), port, &keys, "g-1").await;
        assert_eq!(answers.rejected.get(&0).map(String::as_str), Some("its answer is not signed"));
        agent.shared.cluster.set_key(key(1));
        let answers = other_agents::ask(std::slice::from_ref(&other), port, &keys, "g-1").await;
        assert_eq!(answers.reports.keys().copied().collect::<Vec<_>>(), [0], "{answers:?}");
        let (status, signed, body) = send_request(port, "/state?fresh=true", "").await;
        assert_eq!((status, signed), (200, false));
        assert_eq!(Report::from_json(body.as_bytes()).unwrap().ordinal, 0, "an older agent can read it");
        let (status, _, body) = send_request(port, "/state", "authorization: Stead-HMAC-SHA256 g-1 00 00\r\n").await;
        assert_eq!((status, body.as_str()), (401, "the Authorization header cannot be read\n"));
        let wrong = crate::test_agent::keys(2);
        assert!(other_agents::ask(&[other], port, &wrong, "g-1").await.reports.is_empty());
    }

    #[tokio::test]
    async fn no_request_ends_leadership() {
        let agent = TestAgent::new("prestop", "http://127.0.0.1:1", Some(3), PoolObjects::default()).await;
        let port = start_server(&agent).await;
        assert_eq!(send_request(port, "/prestop", "").await.0, 404);
        assert!(agent.shared.declines_until.borrow().is_none());
    }

    #[tokio::test]
    async fn unsigned_requests_get_fresh_reports_only_while_there_are_older_agents() {
        for (signs, older) in [(true, false), (false, true)] {
            let pods = [(1, PoolPodView { signs, ..PoolPodView::default() })].into();
            let objects = PoolObjects { pods: Some(pods), ..PoolObjects::default() };
            let agent = TestAgent::new(&format!("older-{older}"), "http://127.0.0.1:1", None, objects).await;
            assert_eq!(agent.shared.has_older_agents(), older);
        }
    }

    #[tokio::test]
    async fn a_pod_without_the_key_is_not_ready() {
        let agent = TestAgent::new("no-key", "http://127.0.0.1:1", Some(3), PoolObjects::default()).await;
        let (port, shared) = (start_server(&agent).await, &agent.shared);
        assert_eq!(shared.settings.key_secret.as_deref(), Some("g-pool-key"));
        assert_eq!(send_request(port, "/readyz", "").await.2, "the pool's key has not been read yet\n");
        assert_eq!(send_request(port, "/livez", "").await.0, 200);
        shared.cluster.set_key(key(1));
        assert!(!send_request(port, "/readyz", "").await.2.contains("key"));
    }

    const UID: [&str; 3] = ["uid-0", "uid-1", "uid-2"];

    /// The pages of an agent of the previous version, which does not sign.
    fn older_pages(ordinal: u32, report: &Report) -> Router {
        let pod = UID[ordinal as usize].to_owned();
        let mut sent = serde_json::to_value(Report { ordinal, pod, ..report.clone() }).unwrap();
        sent.as_object_mut().unwrap().remove("stuckBricks");
        Router::new().route("/state", get(async move || Json(sent)))
    }

    /// The pods of a pool are replaced one by one, from agents that do not sign to agents that do: during all of it
    /// each agent gets the reports of all others, so the majority is never lost.
    #[tokio::test]
    async fn a_pool_of_older_agents_is_updated_pod_by_pod() {
        for updated in 0..=3 {
            let is_new = |ordinal: u32| ordinal >= 3 - updated;
            // The same port at three addresses.
            let first = tokio::net::TcpListener::bind("127.0.1.1:0").await.unwrap();
            let port = first.local_addr().unwrap().port();
            let mut listeners = vec![first];
            for address in ["127.0.1.2", "127.0.1.3"] {
                listeners.push(tokio::net::TcpListener::bind((address, port)).await.unwrap());
            }
            let pods: Vec<OtherAgent> = (0..3)
                .map(|ordinal| OtherAgent {
                    ordinal,
                    uid: UID[ordinal as usize].into(),
                    host: format!("127.0.1.{}", ordinal + 1),
                    signs: is_new(ordinal),
                })
                .collect();
            let objects = PoolObjects {
                pods: Some(
                    pods.iter()
                        .map(|p| (p.ordinal, PoolPodView { signs: p.signs, ..PoolPodView::default() }))
                        .collect(),
                ),
                ..PoolObjects::default()
            };
            let mut agents = Vec::new();
            for (ordinal, listener) in (0..3).zip(listeners) {
                let mut settings = crate::test_agent::settings();
                settings.pod.ordinal = ordinal;
                (settings.pod.name, settings.pod.uid) = (format!("g-{ordinal}"), UID[ordinal as usize].into());
                let test = format!("update-{updated}-{ordinal}");
                let agent =
                    TestAgent::with_settings(&test, "http://127.0.0.1:1", None, objects.clone(), settings).await;
                agent.shared.cluster.set_key(key(1));
                let pages = match is_new(ordinal) {
                    true => pages(agent.shared.clone()),
                    false => older_pages(ordinal, &agent.shared.report()),
                };
                tokio::spawn(serve(listener, pages, Limits::DEFAULT));
                agents.push(agent);
            }
            for asking in 0..3 {
                let mut others: Vec<OtherAgent> = pods.iter().filter(|p| p.ordinal != asking).cloned().collect();
                let mut keys = agents[asking as usize].shared.keys();
                if !is_new(asking) {
                    // An older agent asks without a signature, and expects none.
                    keys = Keys::default();
                    others.iter_mut().for_each(|other| other.signs = false);
                }
                let answers = other_agents::ask(&others, port, &keys, &format!("g-{asking}")).await;
                assert_eq!(answers.reports.len(), 2, "{updated} updated, {asking} asks: {answers:?}");
                assert!(answers.reports.iter().all(|(ordinal, report)| report.pod == UID[*ordinal as usize]));
            }
        }
    }
}
