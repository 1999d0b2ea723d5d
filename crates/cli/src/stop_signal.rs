//! The signals that end a long-running command.

use std::pin::Pin;

use tokio::signal::unix::{SignalKind, signal};

/// Completes on SIGTERM or SIGINT. From this call on the signals do not end the process by themselves.
pub(crate) fn stop_signal() -> std::io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(Box::pin(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    }))
}
