//! The agents of the other pods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use stead_pool::Report;
use tokio::net::TcpStream;
use tracing::debug;

/// How long an agent may take to answer. It asks its glusterd first.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long it may take to reach one.
const REACH: Duration = Duration::from_secs(2);

/// The longest answer that is read.
const LONGEST: usize = 4 << 20;

/// Whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// Its ordinal.
    pub(crate) ordinal: u32,
    /// The pod's uid, if it is known: an address may be somebody else's by now.
    pub(crate) uid: Option<String>,
    /// Its address, or its name.
    pub(crate) host: String,
}

/// What those say who answer, by ordinal.
pub(crate) async fn ask(neighbours: &[Neighbour], port: u16) -> BTreeMap<u32, Report> {
    let answers = join_all(neighbours.iter().map(|neighbour| async move {
        match tokio::time::timeout(PATIENCE, report(neighbour, port)).await {
            Ok(Ok(report)) => Some((neighbour.ordinal, report)),
            Ok(Err(error)) => {
                debug!("pod {} at {}: {error:#}", neighbour.ordinal, neighbour.host);
                None
            }
            Err(_) => {
                debug!("pod {} at {}: no answer within {} s", neighbour.ordinal, neighbour.host, PATIENCE.as_secs());
                None
            }
        }
    }))
    .await;
    answers.into_iter().flatten().collect()
}

async fn report(neighbour: &Neighbour, port: u16) -> Result<Report> {
    let body = get(&neighbour.host, port, "/state?fresh=true").await?;
    let report = Report::from_json(&body).context("its report is rejected")?;
    let expected = neighbour.uid.as_ref().is_none_or(|uid| *uid == report.pod) && report.ordinal == neighbour.ordinal;
    ensure!(expected, "another one answers: pod {} with uid {:?}", report.ordinal, report.pod);
    Ok(report)
}

async fn get(host: &str, port: u16, path: &str) -> Result<Bytes> {
    let stream = tokio::time::timeout(REACH, connect(host, port)).await.context("it cannot be reached")??;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request =
        hyper::Request::get(path).header("host", host).header("connection", "close").body(Empty::<Bytes>::new())?;
    // It ends with the sender; what went wrong with it, the sender says as well.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "it answered {}", answer.status());
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    Ok(body.map_err(|e| anyhow::anyhow!("reading its answer: {e}"))?.to_bytes())
}

async fn connect(host: &str, port: u16) -> Result<TcpStream> {
    // An address needs no names asked.
    match host.parse() {
        Ok(address) => Ok(TcpStream::connect(SocketAddr::new(address, port)).await?),
        Err(_) => Ok(TcpStream::connect((host, port)).await?),
    }
}
