//! The API server as pods reach it: at the address of its Service, inside the cluster's network.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::enter::Network;

/// A listener within a network. It stays there, whoever has it.
pub(crate) fn listen(network: &Network, address: &str) -> Result<TcpListener> {
    let listener = network.within(|| {
        let listener = std::net::TcpListener::bind(address).with_context(|| format!("listening on {address}"))?;
        listener.set_nonblocking(true).with_context(|| format!("listening on {address}"))?;
        Ok(listener)
    })?;
    TcpListener::from_std(listener).with_context(|| format!("listening on {address}"))
}

/// A socket for datagrams within a network.
pub(crate) fn receive(network: &Network, address: &str) -> Result<UdpSocket> {
    let socket = network.within(|| {
        let socket = std::net::UdpSocket::bind(address).with_context(|| format!("listening on {address}"))?;
        socket.set_nonblocking(true).with_context(|| format!("listening on {address}"))?;
        Ok(socket)
    })?;
    UdpSocket::from_std(socket).with_context(|| format!("listening on {address}"))
}

/// Passes on every connection to an address of the host, for as long as it is polled.
pub(crate) async fn forward(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut inner, _)) = accepted else { continue };
                connections.spawn(async move {
                    if let Ok(mut outer) = TcpStream::connect(to).await {
                        // How a connection ends is for its two ends to know.
                        let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
