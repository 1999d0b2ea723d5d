//! Queries the agents of the other pods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use stead_pool::Report;
use tokio::net::TcpStream;
use tracing::debug;

use crate::auth::{self, Keys, Nonce, Request};
use crate::cluster::PoolObjects;
use crate::shared::Shared;

/// The time limit of a query. The agent queries its glusterd first.
const QUERY_TIMEOUT: Duration = Duration::from_secs(4);

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Limits of an answer's body and headers.
const MAX_BODY: usize = 4 << 20;
const MAX_HEADERS: usize = 64 << 10;

/// The path that is queried.
const PATH: &str = "/state?fresh=true";

/// An agent to query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherAgent {
    /// The pod's ordinal.
    pub(crate) ordinal: u32,
    /// The pod's uid: its address may belong to another pod by now.
    pub(crate) uid: String,
    /// The pod's address or name.
    pub(crate) host: String,
    /// Whether its answers have to be signed. Agents of older versions do not sign.
    pub(crate) signs: bool,
}

/// The answers of the other agents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answers {
    /// The reports, by ordinal.
    pub(crate) reports: BTreeMap<u32, Report>,
    /// Why answers were rejected, by ordinal.
    pub(crate) rejected: BTreeMap<u32, String>,
}

/// Why there is no report.
#[derive(Debug)]
enum NoReport {
    /// There is no answer.
    Unreachable(anyhow::Error),
    /// The answer is not valid.
    Rejected(anyhow::Error),
}

/// Queries all other pods by address: names in DNS may be outdated.
pub(crate) async fn ask_all(shared: &Shared, objects: &PoolObjects) -> Answers {
    let own = shared.settings.pod.ordinal;
    let pods = objects.pods.iter().flatten().filter(|(ordinal, pod)| **ordinal != own && !pod.address.is_empty());
    let other_agents: Vec<OtherAgent> = pods
        .map(|(ordinal, pod)| OtherAgent {
            ordinal: *ordinal,
            uid: pod.uid.clone(),
            host: pod.address.clone(),
            signs: pod.signs,
        })
        .collect();
    ask(&other_agents, shared.settings.listen.port(), &shared.keys(), &shared.settings.pod.name).await
}

/// Queries these agents as the agent of the pod `asking`.
pub(crate) async fn ask(other_agents: &[OtherAgent], port: u16, keys: &Keys, asking: &str) -> Answers {
    let asked = join_all(other_agents.iter().map(|other| async move {
        let report = tokio::time::timeout(QUERY_TIMEOUT, report(other, port, keys, asking)).await;
        let late = |_| Err(NoReport::Unreachable(anyhow::anyhow!("no answer within {} s", QUERY_TIMEOUT.as_secs())));
        (other, report.unwrap_or_else(late))
    }));
    let mut answers = Answers::default();
    for (other, report) in asked.await {
        match report {
            Ok(report) => drop(answers.reports.insert(other.ordinal, report)),
            Err(NoReport::Unreachable(error)) => debug!("pod {} at {}: {error:#}", other.ordinal, other.host),
            Err(NoReport::Rejected(error)) => {
                drop(answers.rejected.insert(other.ordinal, format!("{error:#}")));
            }
        }
    }
    answers
}

async fn report(other: &OtherAgent, port: u16, keys: &Keys, asking: &str) -> Result<Report, NoReport> {
    let signed = Request { path: PATH, asked: &other.uid }.sign(keys, asking).map_err(NoReport::Unreachable)?;
    let (header, nonce) = signed.unzip();
    let answer = get(&other.host, port, header.as_deref()).await.map_err(NoReport::Unreachable)?;
    verify(other, keys, nonce.as_ref(), &answer).map_err(NoReport::Rejected)
}

/// Returns the report in an answer if this pod's agent sent it.
fn verify(other: &OtherAgent, keys: &Keys, nonce: Option<&Nonce>, answer: &Answer) -> Result<Report> {
    match (&answer.signature, nonce) {
        (Some(signature), Some(nonce)) => {
            let valid = nonce.is_valid(keys, &other.uid, &answer.body, signature);
            ensure!(valid, "its answer is not signed with the pool's key");
        }
        _ if !other.signs => {}
        (None, Some(_)) => bail!("its answer is not signed"),
        (_, None) => bail!("its answer cannot be verified: {}", keys.missing().unwrap_or_default()),
    }
    let report = Report::from_json(&answer.body).context("its report is not valid")?;
    let expected = other.uid == report.pod && report.ordinal == other.ordinal;
    ensure!(expected, "another pod answers: ordinal {} with uid {:?}", report.ordinal, report.pod);
    Ok(report)
}

/// An answer before verification.
struct Answer {
    body: Bytes,
    signature: Option<String>,
}

async fn get(host: &str, port: u16, authorization: Option<&str>) -> Result<Answer> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect(host, port)).await.context("cannot connect")??;
    let builder = hyper::client::conn::http1::Builder::new().max_buf_size(MAX_HEADERS).to_owned();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut request = hyper::Request::get(PATH).header("host", host).header("connection", "close");
    if let Some(authorization) = authorization {
        request = request.header(http::header::AUTHORIZATION, authorization);
    }
    // The connection ends with the sender, which also returns its errors.
    tokio::spawn(connection);
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    ensure!(answer.status().is_success(), "it answered {}", answer.status());
    let signature = answer.headers().get(auth::SIGNATURE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(|e| anyhow::anyhow!("reading its answer: {e}"))?.to_bytes();
    Ok(Answer { body, signature })
}

async fn connect(host: &str, port: u16) -> Result<TcpStream> {
    // An address needs no DNS lookup.
    match host.parse() {
        Ok(address) => Ok(TcpStream::connect(SocketAddr::new(address, port)).await?),
        Err(_) => Ok(TcpStream::connect((host, port)).await?),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use axum::http::HeaderMap;
    use stead_pool::Daemon;

    use crate::shared::initial_report;
    use crate::test_agent::{TestAgent, keys, settings};

    use super::*;

    fn report(ordinal: u32, uid: &str) -> Report {
        Report { ordinal, pod: uid.into(), daemon: Daemon::Running, ..initial_report(&settings()) }
    }

    /// Starts an agent that answers with this body, and with a signature if it has keys.
    async fn start_agent(body: String, keys: Option<Keys>) -> u16 {
        let answer = move |headers: HeaderMap| async move {
            let mut answer = HeaderMap::new();
            let nonce = headers.get("authorization").map(|value| {
                let header = value.to_str().unwrap();
                let request = Request { path: PATH, asked: "uid-1" };
                auth::AnsweredRequests::default().check(keys.as_ref().unwrap_or(&Keys::default()), &request, header)
            });
            if let (Some(keys), Some(Ok(nonce))) = (&keys, nonce) {
                let signature = nonce.sign_answer(keys, "uid-1", body.as_bytes()).unwrap();
                answer.insert(auth::SIGNATURE, signature.parse().unwrap());
            }
            (answer, body)
        };
        serve(axum::Router::new().route("/state", axum::routing::get(answer))).await
    }

    async fn serve(pages: axum::Router) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, pages).await });
        port
    }

    fn other(signs: bool) -> OtherAgent {
        OtherAgent { ordinal: 1, uid: "uid-1".into(), host: "127.0.0.1".into(), signs }
    }

    #[tokio::test]
    async fn only_reports_of_the_pools_agents_are_accepted() {
        let good = serde_json::to_string(&report(1, "uid-1")).unwrap();
        let other_pod = serde_json::to_string(&report(1, "uid-2")).unwrap();
        let bad = good.replace("\"uuid\":null", "\"uuid\":\"../../etc/passwd\"");
        for (what, body, theirs, ours, signs, rejected) in [
            ("both have the key", &good, Some(keys(1)), keys(1), true, None),
            ("anybody on the network", &good, None, keys(1), true, Some("its answer is not signed")),
            ("another key", &good, Some(keys(2)), keys(1), true, Some("its answer is not signed")),
            (
                "no key here",
                &good,
                Some(keys(1)),
                Keys::default(),
                true,
                Some("its answer cannot be verified: the pool's key"),
            ),
            ("an older agent", &good, None, keys(1), false, None),
            ("an older agent, no key here", &good, None, Keys::default(), false, None),
            (
                "another pod",
                &other_pod,
                Some(keys(1)),
                keys(1),
                true,
                Some("another pod answers: ordinal 1 with uid \"uid-2\""),
            ),
            (
                "a bad value",
                &bad,
                Some(keys(1)),
                keys(1),
                true,
                Some("its report is not valid: uuid: \"../../etc/passwd\""),
            ),
        ] {
            let port = start_agent(body.clone(), theirs).await;
            let answers = ask(&[other(signs)], port, &ours, "g-0").await;
            assert_eq!(answers.reports.contains_key(&1), rejected.is_none(), "{what}: {answers:?}");
            let reason = answers.rejected.get(&1).map_or("", String::as_str);
            assert!(reason.starts_with(rejected.unwrap_or("")), "{what}: {reason}");
        }
    }

    #[tokio::test]
    async fn a_signature_of_another_key_is_refused_from_an_older_agent_too() {
        let answer = Answer { body: Bytes::from_static(b"{}"), signature: Some("00".into()) };
        let (_, nonce) = Request { path: PATH, asked: "uid-1" }.sign(&keys(1), "g-0").unwrap().unwrap();
        let error = verify(&other(false), &keys(1), Some(&nonce), &answer).unwrap_err();
        assert_eq!(error.to_string(), "its answer is not signed with the pool's key");
    }

    /// An invalid report is not used; the others are.
    #[tokio::test]
    async fn one_invalid_report_does_not_affect_the_others() {
        let good = start_agent(serde_json::to_string(&report(1, "uid-1")).unwrap(), Some(keys(1))).await;
        let agent = TestAgent::new("bad-report", "http://127.0.0.1:1", None, PoolObjects::default()).await;
        drop(agent);
        let invalid = OtherAgent { ordinal: 2, uid: "uid-2".into(), ..other(true) };
        let answers = ask(&[other(true), invalid], good, &keys(1), "g-0").await;
        assert_eq!(answers.reports.keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(answers.rejected.keys().copied().collect::<Vec<_>>(), [2]);
    }
}
