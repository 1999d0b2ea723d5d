//! An HTTP server on loopback that answers each request as a test says.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A status code and a body; no answer at all for [`NEVER`].
pub(crate) type Answer = (u16, String);

/// The status code of an answer that never comes.
#[allow(dead_code, reason = "not every test that includes this file needs it")]
pub(crate) const NEVER: u16 = 0;

/// A server, and what it was asked for: method, path and query.
#[derive(Clone)]
pub(crate) struct StubServer {
    /// Its address.
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl StubServer {
    /// Starts a server that answers each request, such as `GET /api/v1/pods?limit=500`, with what `answer` returns.
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> StubServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = StubServer { url, asked: Arc::default() };
        let (asked, answer) = (server.asked.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (asked, answer) = (asked.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                        let mut part = [0; 4096];
                        match stream.read(&mut part).await {
                            Ok(read) if read > 0 => request.extend_from_slice(&part[..read]),
                            _ => return,
                        }
                    }
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let line = text.lines().next().and_then(|line| line.strip_suffix(" HTTP/1.1")).expect("HTTP/1.1");
                    let (code, body) = answer(line);
                    asked.lock().expect("no panic before").push(line.to_owned());
                    if code == NEVER {
                        return std::future::pending().await;
                    }
                    let length = body.len();
                    let head = format!("HTTP/1.1 {code} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                });
            }
        });
        server
    }

    /// What was asked for so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic before").clone()
    }
}

/// A page of a list; `next` is the continue token.
#[allow(dead_code, reason = "not every test that includes this file needs it")]
pub(crate) fn page(revision: &str, next: &str, names: &[&str]) -> Answer {
    let items: Vec<String> = names.iter().map(|name| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).collect();
    let items = items.join(",");
    (200, format!(r#"{{"metadata":{{"resourceVersion":"{revision}","continue":"{next}"}},"items":[{items}]}}"#))
}

/// A Kubernetes `Status`.
#[allow(dead_code, reason = "not every test that includes this file needs it")]
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Answer {
    let head = r#""kind":"Status","apiVersion":"v1","status":"Failure""#;
    (code, format!(r#"{{{head},"reason":"{reason}","message":"{message}","code":{code}}}"#))
}
