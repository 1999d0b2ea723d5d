//! The kubelet's HTTPS port, which the API server uses for `kubectl logs` and `kubectl exec`.
//!
//! Each node has one on loopback, with the API server's certificate, which the API server does not verify. Commands use
//! the WebSocket protocol `v5.channel.k8s.io`, which Kubernetes 1.36 uses for nodes that declare the feature.

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

/// The protocol's channel numbers.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Precedes the number of a channel that is closed.
const CLOSED: u8 = 255;

/// Maximum length of a request head.
const MAX_HEAD: usize = 64 * 1024;

/// Creates a TLS acceptor with the API server's certificate and key from this directory.
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

/// The kubelet of a node.
#[derive(Clone)]
pub(crate) struct Kubelet {
    pub(crate) node: String,
    pub(crate) host: Arc<Host>,
    pub(crate) world: Arc<World>,
}

impl Kubelet {
    fn is_reachable(&self) -> bool {
        self.world.is_reachable(&self.node) && self.host.power(&self.node).is_ok_and(|power| power.borrow().on)
    }
}

/// Answers requests for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, kubelet: Kubelet) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (acceptor, kubelet) = (acceptor.clone(), kubelet.clone());
                connections.spawn(async move {
                    // The client sees the error: its connection is closed.
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
    // A node that is suspended or cut off sends no response.
    ensure!(kubelet.is_reachable(), "the node is unreachable");
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let (what, namespace, pod, container) = match parts[..] {
        ["runningpods"] => return running_pods(stream, kubelet).await,
        [what, namespace, pod, container] | [what, namespace, pod, _, container] => (what, namespace, pod, container),
        _ => return respond_error(stream, "404 Not Found", "unknown path").await,
    };
    let Some(run) = kubelet.host.run_on(&kubelet.node, namespace, pod) else {
        return respond_error(stream, "404 Not Found", "pod does not exist").await;
    };
    match what {
        "containerLogs" => logs(stream, &request, &run, container).await,
        "exec" => exec(stream, &request, &run, container).await,
        _ => respond_error(stream, "404 Not Found", "not supported").await,
    }
}

/// Lists the pods with a running container, like the kubelet's debugging handler `/runningpods`.
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
    respond(stream, "200 OK", "application/json", &list.to_string()).await
}

async fn respond_error(stream: TlsStream<TcpStream>, status: &str, why: &str) -> Result<()> {
    respond(stream, status, "text/plain", why).await
}

async fn respond(mut stream: TlsStream<TcpStream>, status: &str, kind: &str, text: &str) -> Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", text.len());
    let all = format!("{head}Connection: close\r\n\r\n{text}");
    stream.write_all(all.as_bytes()).await.context("answering")?;
    stream.shutdown().await.context("answering")
}

async fn logs(stream: TlsStream<TcpStream>, request: &Request, run: &Run, container: &str) -> Result<()> {
    let path = run.host.directories.log(&run.namespace, &run.name, container);
    let text = String::from_utf8_lossy(&tokio::fs::read(path).await.unwrap_or_default()).into_owned();
    let lines = request.query("tailLines").and_then(|n| n.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let skipped = text.lines().count().saturating_sub(lines);
    let text: String = text.split_inclusive('\n').skip(skipped).collect();
    respond(stream, "200 OK", "text/plain", &text).await
}

async fn exec(mut stream: TlsStream<TcpStream>, request: &Request, run: &Run, container: &str) -> Result<()> {
    let Some(running) = run.running(container) else {
        return respond_error(stream, "404 Not Found", "the container is not running").await;
    };
    let Some(key) = request.header("sec-websocket-key") else {
        return respond_error(stream, "400 Bad Request", "exec needs a WebSocket").await;
    };
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    stream.write_all(head.as_bytes()).await.context("answering")?;
    let (mut to, mut from) = WebSocketStream::from_raw_socket(stream, Role::Server, None).await.split();
    let command: Vec<String> = request.queries("command").collect();
    let mut child = running.spawn(&command).await?;
    let input =
        if request.query("input").is_some() || request.query("stdin").is_some() { child.stdin.take() } else { None };
    drop(child.stdin.take());
    let (frames, mut receiver) = mpsc::channel::<Vec<u8>>(16);
    let mut readers = JoinSet::new();
    if let Some(out) = child.stdout.take() {
        readers.spawn(forward_output(out, STDOUT, frames.clone()));
    }
    if let Some(err) = child.stderr.take() {
        readers.spawn(forward_output(err, STDERR, frames.clone()));
    }
    drop(frames);
    let mut input = input;
    loop {
        tokio::select! {
            frame = receiver.recv() => match frame {
                Some(frame) => to.send(Message::binary(frame)).await.context("forwarding the output of a command")?,
                // Both streams are closed.
                None => break,
            },
            message = from.next() => match message {
                Some(Ok(message)) => handle_frame(&mut input, &message.into_data()).await,
                // The client is gone. Dropping the child kills the command.
                _ => bail!("the connection was closed"),
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
    to.send(Message::binary(frame)).await.context("sending the exit status of a command")?;
    // Clients treat any other code, or none, as a broken connection.
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    to.send(Message::Close(Some(close))).await.context("closing")?;
    // Wait for the client to close too: dropping the stream earlier may lose the last frames.
    while let Some(Ok(_)) = from.next().await {}
    Ok(())
}

/// Forwards a stream of a command as frames of a channel.
async fn forward_output(mut stream: impl AsyncRead + Unpin, channel: u8, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = [0; 8192];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 || to.send([&[channel], &buffer[..length]].concat()).await.is_err() {
            return;
        }
    }
}

/// Handles a frame from the client.
async fn handle_frame(input: &mut Option<ChildStdin>, frame: &[u8]) {
    match frame {
        [STDIN, data @ ..] => {
            if let Some(stream) = input
                && stream.write_all(data).await.is_err()
            {
                *input = None;
            }
        }
        [CLOSED, STDIN, ..] => *input = None,
        // Terminal size: there is no terminal.
        _ => {}
    }
}

/// The head of an HTTP request.
struct Request {
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Request {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Request> {
        let mut head = Vec::new();
        // Byte by byte: what follows the head is not read here.
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < MAX_HEAD, "the request is too long");
            head.push(stream.read_u8().await.context("reading a request")?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).context("a request without a path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pair = |text: &str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (decode(key), decode(value))
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

/// Decodes a form-encoded part of a query.
fn decode(text: &str) -> String {
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
    async fn request_head_is_parsed() {
        let text = "GET /exec/ns/p/c?command=sh&command=-c&command=a%20%26+b%2&input=1 HTTP/1.1\r\nSec-WebSocket-Key: k\r\n\r\nrest";
        let mut stream = text.as_bytes();
        let request = Request::read(&mut stream).await.unwrap();
        assert_eq!((request.path.as_str(), request.header("sec-websocket-key")), ("/exec/ns/p/c", Some("k")));
        assert_eq!(request.queries("command").collect::<Vec<_>>(), ["sh", "-c", "a & b%2"]);
        assert_eq!((request.query("input").as_deref(), stream), (Some("1"), "rest".as_bytes()));
    }
}
