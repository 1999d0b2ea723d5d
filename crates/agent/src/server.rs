//! The agent's server: pages over HTTP, with a limit on everything that a client can use up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tracing::{debug, warn};

/// What clients may use up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections in all.
    pub(crate) connections: usize,
    /// Connections of one address: nobody keeps the kubelet's probes out.
    pub(crate) per_address: usize,
    /// Time to send the headers of a request.
    pub(crate) headers: Duration,
    /// Time for all that happens on a connection.
    pub(crate) connection: Duration,
}

impl Limits {
    pub(crate) const USUAL: Limits = Limits {
        connections: 256,
        per_address: 32,
        headers: Duration::from_secs(5),
        connection: Duration::from_secs(30),
    };
}

/// The longest headers that are read.
const LONGEST_HEADERS: usize = 16 << 10;

/// How soon to accept connections again after that failed, as where there are no file descriptors left.
const AGAIN: Duration = Duration::from_millis(200);

/// Serves pages for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, pages: Router, limits: Limits) {
    let pages = pages.layer(middleware::from_fn(without_body));
    let open = Open::default();
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("accepting a connection: {error}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let Some(place) = open.place(client.ip(), limits) else {
            debug!("too many connections: {client} is refused");
            continue;
        };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(LONGEST_HEADERS);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages.clone()));
        tokio::spawn(async move {
            match tokio::time::timeout(limits.connection, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!("{client}: {error}"),
                Err(_) => debug!("{client}: its connection is closed after {} s", limits.connection.as_secs()),
            }
            drop(place);
        });
    }
}

/// Nothing is sent to an agent: a request with a body is refused before the body is read.
async fn without_body(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if length || headers.contains_key(header::TRANSFER_ENCODING) {
        return (StatusCode::PAYLOAD_TOO_LARGE, [(header::CONNECTION, "close")], "no body is accepted\n")
            .into_response();
    }
    next.run(request).await
}

/// The connections that are open, by address.
#[derive(Debug, Clone, Default)]
struct Open(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

impl Open {
    fn place(&self, client: IpAddr, limits: Limits) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = open.get(&client).copied().unwrap_or(0);
        if open.values().sum::<usize>() >= limits.connections || of_client >= limits.per_address {
            return None;
        }
        open.insert(client, of_client + 1);
        Some(Place { open: self.clone(), client })
    }
}

/// One open connection.
struct Place {
    open: Open,
    client: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    /// A server with these limits, and its address.
    async fn server(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new().route("/livez", get(async || "ok\n")), limits));
        address
    }

    async fn connect(to: SocketAddr, from: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// What comes until the server closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut text)).await;
        // A connection that is reset is closed too.
        let _ = read.expect("the server closes the connection");
        text
    }

    async fn ask(mut stream: TcpStream, request: &str) -> String {
        // The server may have closed it already.
        let _ = stream.write_all(request.as_bytes()).await;
        rest(stream).await
    }

    const GET: &str = "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn one_client_cannot_use_up_all_connections() {
        let limits = Limits { connections: 3, per_address: 2, headers: Duration::from_secs(600), ..Limits::USUAL };
        let to = server(Limits { connection: Duration::from_secs(600), ..limits }).await;
        let idle = [connect(to, "127.0.0.2").await, connect(to, "127.0.0.2").await];
        assert_eq!(ask(connect(to, "127.0.0.2").await, GET).await, "", "the third of one address");
        assert!(ask(connect(to, "127.0.0.3").await, GET).await.ends_with("ok\n"), "another address");
        let last = connect(to, "127.0.0.4").await;
        assert_eq!(ask(connect(to, "127.0.0.5").await, GET).await, "", "the fourth of all");
        drop((idle, last));
        // Their places are free again as soon as the server has seen that they are gone.
        while !ask(connect(to, "127.0.0.2").await, GET).await.ends_with("ok\n") {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn headers_that_do_not_come_end_the_connection() {
        let to = server(Limits { headers: Duration::from_millis(50), ..Limits::USUAL }).await;
        let mut slow = connect(to, "127.0.0.1").await;
        slow.write_all(b"GET /livez HTTP/1.1\r\nx-slow: ").await.unwrap();
        assert!(!rest(slow).await.contains("ok"));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_ends_the_connection() {
        let to = server(Limits { connection: Duration::from_millis(50), ..Limits::USUAL }).await;
        assert_eq!(rest(connect(to, "127.0.0.1").await).await, "");
    }

    #[tokio::test]
    async fn bodies_and_long_headers_are_refused() {
        let to = server(Limits::USUAL).await;
        let long = format!("GET /livez HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(2 * LONGEST_HEADERS));
        for (request, status) in [
            (GET, "200"),
            ("GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\n", "413"),
            ("GET /livez HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n", "413"),
            ("GET /prestop HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "404"),
            (long.as_str(), "431"),
        ] {
            let answer = ask(connect(to, "127.0.0.1").await, request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:.60}");
        }
    }
}
