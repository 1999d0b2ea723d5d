//! The API server's connection to pods and kubelets: an HTTP CONNECT proxy, as konnectivity is in a real cluster.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::enter::Network;
use crate::forward;

/// So long may what is asked for be.
const LONGEST: u64 = 8192;

/// Brings everybody who asks to where they want, for as long as it is polled.
pub(crate) async fn serve(listener: UnixListener, network: Network, kubelets: Vec<SocketAddr>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (network, kubelets) = (network.clone(), kubelets.clone());
                connections.spawn(async move {
                    // How a connection ends is for its two ends to know.
                    let _ = bring(stream, &network, &kubelets).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn bring(stream: UnixStream, network: &Network, kubelets: &[SocketAddr]) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let address = asked(&mut stream).await?;
    // The kubelets listen on the host, a port each; pods have addresses inside the cluster only.
    let reached = if kubelets.contains(&address) {
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))
            .await
            .with_context(|| format!("connecting to {address}"))
    } else {
        forward::connect(network, address).await
    };
    let mut there = match reached {
        Ok(there) => there,
        Err(error) => {
            let answer = format!("HTTP/1.1 502 Bad Gateway\r\nX-Error: {error:#}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.context("answering")?;
            return Err(error);
        }
    };
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.context("answering")?;
    tokio::io::copy_bidirectional(&mut stream, &mut there).await.context("passing on")?;
    Ok(())
}

/// Reads a request, and says where to.
async fn asked(stream: &mut BufReader<UnixStream>) -> Result<SocketAddr> {
    let mut lines = stream.take(LONGEST);
    let mut request = String::new();
    lines.read_line(&mut request).await.context("reading a request")?;
    loop {
        let mut header = String::new();
        let read = lines.read_line(&mut header).await.context("reading a header")?;
        ensure!(read > 0, "a request that has no end");
        if header.trim().is_empty() {
            break;
        }
    }
    let mut words = request.split_whitespace();
    ensure!(words.next() == Some("CONNECT"), "no CONNECT: {}", request.trim());
    let address = words.next().unwrap_or_default();
    address.parse().with_context(|| format!("where to: {address}"))
}
