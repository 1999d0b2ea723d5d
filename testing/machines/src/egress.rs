//! The API server's connection to pods and kubelets: an HTTP CONNECT proxy, like konnectivity in a real cluster.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::enter::Network;
use crate::forward;

/// Maximum length of a request.
const MAX_REQUEST: u64 = 8192;

/// Accepts and forwards connections for as long as it is polled.
pub(crate) async fn serve(listener: UnixListener, network: Network, kubelets: Vec<SocketAddr>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (network, kubelets) = (network.clone(), kubelets.clone());
                connections.spawn(async move {
                    // Both ends see the error: their connections are closed.
                    let _ = proxy(stream, &network, &kubelets).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn proxy(stream: UnixStream, network: &Network, kubelets: &[SocketAddr]) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let address = read_target(&mut stream).await?;
    // The kubelets listen on ports of the host; pods have addresses inside the cluster's network only.
    let connected = if kubelets.contains(&address) {
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))
            .await
            .with_context(|| format!("connecting to {address}"))
    } else {
        forward::connect(network, address).await
    };
    let mut target = match connected {
        Ok(target) => target,
        Err(error) => {
            let answer = format!("HTTP/1.1 502 Bad Gateway\r\nX-Error: {error:#}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.context("answering")?;
            return Err(error);
        }
    };
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.context("answering")?;
    tokio::io::copy_bidirectional(&mut stream, &mut target).await.context("forwarding")?;
    Ok(())
}

/// Reads a request, and returns the address to connect to.
async fn read_target(stream: &mut BufReader<UnixStream>) -> Result<SocketAddr> {
    let mut lines = stream.take(MAX_REQUEST);
    let mut request = String::new();
    lines.read_line(&mut request).await.context("reading a request")?;
    loop {
        let mut header = String::new();
        let read = lines.read_line(&mut header).await.context("reading a header")?;
        ensure!(read > 0, "incomplete request");
        if header.trim().is_empty() {
            break;
        }
    }
    let mut parts = request.split_whitespace();
    ensure!(parts.next() == Some("CONNECT"), "not a CONNECT request: {}", request.trim());
    let address = parts.next().unwrap_or_default();
    address.parse().with_context(|| format!("invalid address {address}"))
}
