//! The port of the kubelets, where the API server gets logs and runs commands for `kubectl logs` and `exec`.
//!
//! Each node has one on loopback, with the API server's own certificate, which the API server does not verify. The
//! streams of a command are those of the WebSocket protocol `v5.channel.k8s.io`, which Kubernetes 1.36 uses for nodes
//! that declare the feature.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::json;
use stead_testbed::World;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use crate::host::Host;
use crate::run::Run;

/// The streams of a command, as the protocol numbers them.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// What comes before the number of a stream that is closed.
const CLOSED: u8 = 255;

/// The longest request that is read.
const LIMIT: usize = 64 * 1024;

/// With the certificate and key in this folder.
pub(crate) fn acceptor(certificates: &Path) -> Result<TlsAcceptor> {
    let file = certificates.join("apiserver.crt");
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&file).with_context(|| format!("reading {}", file.display()))?.collect();
    let chain = chain.with_context(|| format!("reading {}", file.display()))?;
    let key = PrivateKeyDer::from_pem_file(certificates.join("apiserver.key")).context("the API server's key")?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("TLS")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the API server's certificate")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Whose port it is.
#[derive(Clone)]
pub(crate) struct Kubelet {
    pub(crate) node: String,
    pub(crate) host: Arc<Host>,
    pub(crate) world: Arc<World>,
}

impl Kubelet {
    fn is_heard(&self) -> bool {
        self.world.is_awake(&self.node) && self.host.power(&self.node).is_ok_and(|power| power.borrow().on)
    }
}

/// Answers for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, kubelet: Kubelet) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (acceptor, kubelet) = (acceptor.clone(), kubelet.clone());
                connections.spawn(async move {
                    // Whoever asked sees that the connection ends.
                    let _ = answer(stream, acceptor, &kubelet).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, kubelet: &Kubelet) -> Result<()> {
    let mut stream = acceptor.accept(stream).await.context("TLS")?;
    let request = Request::read(&mut stream).await?;
    // A node that is silent or cut off answers nothing.
    ensure!(kubelet.is_heard(), "the node is not heard of");
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let (what, namespace, pod, container) = match parts[..] {
        ["runningpods"] => return running_pods(stream, kubelet).await,
        [what, namespace, pod, container] | [what, namespace, pod, _, container] => (what, namespace, pod, container),
        _ => return refuse(stream, "404 Not Found", "there is no such path").await,
    };
    let Some(run) = kubelet.host.run_on(&kubelet.node, namespace, pod) else {
        return refuse(stream, "404 Not Found", "pod does not exist").await;
    };
    match what {
        "containerLogs" => logs(stream, &request, &run, container).await,
        "exec" => exec(stream, &request, &run, container).await,
        _ => refuse(stream, "404 Not Found", "this is not done here").await,
    }
}

/// The pods of which something really runs, as the kubelet's debugging handler lists them.
async fn running_pods(stream: TlsStream<TcpStream>, kubelet: &Kubelet) -> Result<()> {
    let item = |run: &Arc<Run>| {
        let containers = run.running_containers().into_iter().map(|name| json!({ "name": name, "resources": {} }));
        json!({
            "metadata": { "name": run.name, "namespace": run.namespace, "uid": run.uid },
            "spec": { "containers": containers.collect::<Vec<_>>() }, "status": {},
        })
    };
    let items: Vec<_> = kubelet.host.running_on(&kubelet.node).iter().map(item).collect();
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    say(stream, "200 OK", "application/json", &list.to_string()).await
}

async fn refuse(stream: TlsStream<TcpStream>, status: &str, why: &str) -> Result<()> {
    say(stream, status, "text/plain", why).await
}

async fn say(mut stream: TlsStream<TcpStream>, status: &str, kind: &str, text: &str) -> Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", text.len());
    let all = format!("{head}Connection: close\r\n\r\n{text}");
    stream.write_all(all.as_bytes()).await.context("answering")?;
    stream.shutdown().await.context("answering")
}

async fn logs(stream: TlsStream<TcpStream>, request: &Request, run: &Run, container: &str) -> Result<()> {
    let path = run.host.places.log(&run.namespace, &run.name, container);
    let text = String::from_utf8_lossy(&tokio::fs::read(path).await.unwrap_or_default()).into_owned();
    let lines = request.query("tailLines").and_then(|n| n.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let skipped = text.lines().count().saturating_sub(lines);
    let text: String = text.split_inclusive('\n').skip(skipped).collect();
    say(stream, "200 OK", "text/plain", &text).await
}

async fn exec(mut stream: TlsStream<TcpStream>, request: &Request, run: &Run, container: &str) -> Result<()> {
    let Some(running) = run.running(container) else {
        return refuse(stream, "404 Not Found", "the container does not run").await;
    };
    let Some(key) = request.header("sec-websocket-key") else {
        return refuse(stream, "400 Bad Request", "commands are run by WebSocket alone").await;
    };
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    stream.write_all(head.as_bytes()).await.context("answering")?;
    let (mut to, mut from) = WebSocketStream::from_raw_socket(stream, Role::Server, None).await.split();
    let words: Vec<String> = request.queries("command").collect();
    let mut child = running.spawn(&words).await?;
    let input =
        if request.query("input").is_some() || request.query("stdin").is_some() { child.stdin.take() } else { None };
    drop(child.stdin.take());
    let (said, mut saying) = mpsc::channel::<Vec<u8>>(16);
    let mut readers = JoinSet::new();
    if let Some(out) = child.stdout.take() {
        readers.spawn(pass(out, STDOUT, said.clone()));
    }
    if let Some(err) = child.stderr.take() {
        readers.spawn(pass(err, STDERR, said.clone()));
    }
    drop(said);
    let mut input = input;
    loop {
        tokio::select! {
            frame = saying.recv() => match frame {
                Some(frame) => to.send(Message::binary(frame)).await.context("passing on what a command says")?,
                // Both have ended.
                None => break,
            },
            message = from.next() => match message {
                Some(Ok(message)) => take(&mut input, &message.into_data()).await,
                // Whoever asked is gone, and the command goes with the child.
                _ => bail!("the connection ended"),
            },
        }
    }
    let status = child.wait().await.context("waiting for a command")?;
    let status = match status.code() {
        Some(0) => json!({ "metadata": {}, "status": "Success" }),
        code => {
            let code = code.unwrap_or(137);
            json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            })
        }
    };
    let frame = [&[STATUS], status.to_string().as_bytes()].concat();
    to.send(Message::binary(frame)).await.context("saying how a command ended")?;
    // Clients take any other code, or none, for a connection that broke.
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    to.send(Message::Close(Some(close))).await.context("closing")?;
    // The other side closes too; a stream that is dropped before that may lose what was said last.
    while let Some(Ok(_)) = from.next().await {}
    Ok(())
}

/// Passes on what a stream of a command says.
async fn pass(mut stream: impl AsyncRead + Unpin, channel: u8, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = [0; 8192];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 || to.send([&[channel], &buffer[..length]].concat()).await.is_err() {
            return;
        }
    }
}

/// Takes a frame that came for a command.
async fn take(input: &mut Option<ChildStdin>, frame: &[u8]) {
    match frame {
        [STDIN, data @ ..] => {
            if let Some(stream) = input
                && stream.write_all(data).await.is_err()
            {
                *input = None;
            }
        }
        [CLOSED, STDIN, ..] => *input = None,
        // The size of a terminal, which is none here.
        _ => {}
    }
}

/// What was asked for.
struct Request {
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Request {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Request> {
        let mut head = Vec::new();
        // Byte by byte: what comes after the head belongs to somebody else.
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < LIMIT, "the request is too long");
            head.push(stream.read_u8().await.context("reading a request")?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).context("a request without a path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pair = |text: &str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (decoded(key), decoded(value))
        };
        let headers = lines.filter_map(|line| line.split_once(':'));
        Ok(Request {
            path: path.to_owned(),
            query: query.split('&').filter(|text| !text.is_empty()).map(pair).collect(),
            headers: headers.map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_owned())).collect(),
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn query(&self, name: &str) -> Option<String> {
        self.queries(name).next()
    }

    fn queries(&self, name: &str) -> impl Iterator<Item = String> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.clone())
    }
}

/// A word of a query, as forms encode it.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_read() {
        let text = "GET /exec/ns/p/c?command=sh&command=-c&command=a%20%26+b%2&input=1 HTTP/1.1\r\nSec-WebSocket-Key: k\r\n\r\nrest";
        let mut stream = text.as_bytes();
        let request = Request::read(&mut stream).await.unwrap();
        assert_eq!((request.path.as_str(), request.header("sec-websocket-key")), ("/exec/ns/p/c", Some("k")));
        assert_eq!(request.queries("command").collect::<Vec<_>>(), ["sh", "-c", "a & b%2"]);
        assert_eq!((request.query("input").as_deref(), stream), (Some("1"), "rest".as_bytes()));
    }
}
