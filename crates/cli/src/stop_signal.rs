//! The signals that end a long-running command.

use std::pin::Pin;

/// A future that completes when the command has to end.
type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Completes on SIGTERM or SIGINT. From this call on the signals do not end the process by themselves.
#[cfg(unix)]
pub(crate) fn stop_signal() -> std::io::Result<Stop> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(Box::pin(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    }))
}

/// Completes on Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn stop_signal() -> std::io::Result<Stop> {
    Ok(Box::pin(async {
        // Without a handler there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
    }))
}
