//! A server that cannot answer just now is asked again.

use std::time::{Duration, Instant};

use stead_client::Error;

/// How long to wait before a server that does not answer, or will not for now, is asked again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// So long, before anything was begun.
const LIMIT: Duration = Duration::from_secs(20);

/// Asks until there is an answer, of a server that has given one before.
pub(super) async fn patiently<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if passes(&error) && begun.elapsed() < LIMIT => tokio::time::sleep(AGAIN).await,
            answer => return answer,
        }
    }
}

/// Whether an error may be gone the next time.
pub(super) fn passes(error: &anyhow::Error) -> bool {
    let passes = |error: &Error| match error {
        // A definition that was just brought up to date takes a moment until the server goes by it.
        Error::Api(status) if status.code == 400 => status.message.contains("strict decoding error"),
        Error::Api(status) => matches!(status.code, 409 | 410 | 429) || status.code >= 500,
        _ => true,
    };
    error.chain().any(|cause| cause.downcast_ref::<Error>().is_some_and(passes))
}
