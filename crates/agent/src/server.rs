//! The agent's HTTP server, with a limit on everything that a client can use up.

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

/// Limits on what clients may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Open connections in total.
    pub(crate) connections: usize,
    /// Open connections per address: no client can block the kubelet's probes.
    pub(crate) per_address: usize,
    /// Time to send the headers of a request.
    pub(crate) headers: Duration,
    /// Time limit of a connection.
    pub(crate) connection: Duration,
}

impl Limits {
    pub(crate) const DEFAULT: Limits = Limits {
        connections: 256,
        per_address: 32,
        headers: Duration::from_secs(5),
        connection: Duration::from_secs(30),
    };
}

/// The maximum size of a request's headers.
const MAX_HEADERS: usize = 16 << 10;

/// The delay after accepting a connection failed, for example for lack of file descriptors.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Serves the pages, for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, pages: Router, limits: Limits) {
    let pages = pages.layer(middleware::from_fn(reject_body));
    let open = OpenConnections::default();
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("accepting a connection: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let Some(guard) = open.admit(client.ip(), limits) else {
            debug!("too many connections: {client} is refused");
            continue;
        };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(MAX_HEADERS);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages.clone()));
        tokio::spawn(async move {
            match tokio::time::timeout(limits.connection, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!("{client}: {error}"),
                Err(_) => debug!("{client}: its connection is closed after {} s", limits.connection.as_secs()),
            }
            drop(guard);
        });
    }
}

/// Rejects requests with a body before the body is read: no page needs one.
async fn reject_body(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if length || headers.contains_key(header::TRANSFER_ENCODING) {
        return (StatusCode::PAYLOAD_TOO_LARGE, [(header::CONNECTION, "close")], "no body is accepted\n")
            .into_response();
    }
    next.run(request).await
}

/// The number of open connections, by address.
#[derive(Debug, Clone, Default)]
struct OpenConnections(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

impl OpenConnections {
    fn admit(&self, client: IpAddr, limits: Limits) -> Option<ConnectionGuard> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = open.get(&client).copied().unwrap_or(0);
        if open.values().sum::<usize>() >= limits.connections || of_client >= limits.per_address {
            return None;
        }
        open.insert(client, of_client + 1);
        Some(ConnectionGuard { open: self.clone(), client })
    }
}

/// One open connection.
struct ConnectionGuard {
    open: OpenConnections,
    client: IpAddr,
}

impl Drop for ConnectionGuard {
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

    /// Starts a server with these limits and returns its address.
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

    /// Reads until the server closes the connection.
    async fn read_to_end(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut text)).await;
        // A connection that is reset is closed too.
        let _ = read.expect("the server closes the connection");
        text
    }

    async fn ask(mut stream: TcpStream, request: &str) -> String {
        // The server may have closed it already.
        let _ = stream.write_all(request.as_bytes()).await;
        read_to_end(stream).await
    }

    const GET: &str = "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn one_client_cannot_use_up_all_connections() {
        let limits = Limits { connections: 3, per_address: 2, headers: Duration::from_secs(600), ..Limits::DEFAULT };
        let to = server(Limits { connection: Duration::from_secs(600), ..limits }).await;
        let idle = [connect(to, "127.0.0.2").await, connect(to, "127.0.0.2").await];
        assert_eq!(ask(connect(to, "127.0.0.2").await, GET).await, "", "the third of one address");
        assert!(ask(connect(to, "127.0.0.3").await, GET).await.ends_with("ok\n"), "another address");
        let last = connect(to, "127.0.0.4").await;
        assert_eq!(ask(connect(to, "127.0.0.5").await, GET).await, "", "the fourth of all");
        drop((idle, last));
        // Connections are counted until the server has noticed that they are closed.
        while !ask(connect(to, "127.0.0.2").await, GET).await.ends_with("ok\n") {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_connection_without_headers_is_closed() {
        let to = server(Limits { headers: Duration::from_millis(50), ..Limits::DEFAULT }).await;
        let mut slow = connect(to, "127.0.0.1").await;
        slow.write_all(b"GET /livez HTTP/1.1\r\nx-slow: ").await.unwrap();
        assert!(!read_to_end(slow).await.contains("ok"));
    }

    #[tokio::test]
    async fn a_connection_is_closed_after_its_time_limit() {
        let to = server(Limits { connection: Duration::from_millis(50), ..Limits::DEFAULT }).await;
        assert_eq!(read_to_end(connect(to, "127.0.0.1").await).await, "");
    }

    #[tokio::test]
    async fn bodies_and_long_headers_are_refused() {
        let to = server(Limits::DEFAULT).await;
        let long = format!("GET /livez HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(2 * MAX_HEADERS));
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
