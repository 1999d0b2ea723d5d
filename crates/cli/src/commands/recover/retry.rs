//! Retries of requests that fail for a temporary reason.

use std::time::{Duration, Instant};

use stead_client::Error;

/// The time between two attempts.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long a request is retried before anything was started.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes a request to a server that has answered before, until it succeeds or fails for good.
pub(super) async fn with_retries<T>(mut request: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        match request().await {
            Err(error) if is_temporary(&error) && begun.elapsed() < RETRY_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

/// Whether a request that failed with this error may succeed later.
pub(super) fn is_temporary(error: &anyhow::Error) -> bool {
    let temporary = |error: &Error| match error {
        // The server takes a moment until it uses a definition that was just applied.
        Error::Api(status) if status.code == 400 => status.message.contains("strict decoding error"),
        Error::Api(status) => matches!(status.code, 409 | 410 | 429) || status.code >= 500,
        _ => true,
    };
    error.chain().any(|cause| cause.downcast_ref::<Error>().is_some_and(temporary))
}
