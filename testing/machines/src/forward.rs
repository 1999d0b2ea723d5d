//! Connects the cluster's network with the host: sockets inside it, and a forwarder to the API server.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::enter::Network;

/// Listens inside a network.
pub(crate) fn listen(network: &Network, address: &str) -> Result<TcpListener> {
    let listener = network.within(|| {
        let listener = std::net::TcpListener::bind(address).with_context(|| format!("listening on {address}"))?;
        listener.set_nonblocking(true).with_context(|| format!("listening on {address}"))?;
        Ok(listener)
    })?;
    TcpListener::from_std(listener).with_context(|| format!("listening on {address}"))
}

/// Binds a UDP socket inside a network.
pub(crate) fn bind_udp(network: &Network, address: &str) -> Result<UdpSocket> {
    let socket = network.within(|| {
        let socket = std::net::UdpSocket::bind(address).with_context(|| format!("listening on {address}"))?;
        socket.set_nonblocking(true).with_context(|| format!("listening on {address}"))?;
        Ok(socket)
    })?;
    UdpSocket::from_std(socket).with_context(|| format!("listening on {address}"))
}

/// Connects from inside a network.
pub(crate) async fn connect(network: &Network, address: SocketAddr) -> Result<TcpStream> {
    let network = network.clone();
    let connect = move || {
        network.within(|| {
            let time = Duration::from_secs(5);
            let stream = std::net::TcpStream::connect_timeout(&address, time)
                .with_context(|| format!("connecting to {address}"))?;
            stream.set_nonblocking(true).with_context(|| format!("connecting to {address}"))?;
            Ok(stream)
        })
    };
    let stream = tokio::task::spawn_blocking(connect).await.context("the thread that connects")??;
    TcpStream::from_std(stream).with_context(|| format!("connecting to {address}"))
}

/// Forwards every connection to an address of the host, for as long as it is polled.
pub(crate) async fn forward(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut inner, _)) = accepted else { continue };
                connections.spawn(async move {
                    if let Ok(mut outer) = TcpStream::connect(to).await {
                        // Both ends see the error: their connections are closed.
                        let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
