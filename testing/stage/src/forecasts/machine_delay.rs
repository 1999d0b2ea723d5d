//! Measures the delays of a busy machine, which do not count as errors of a forecast.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The interval between measurements.
const INTERVAL: Duration = Duration::from_millis(100);

/// Records the delay of timers and of the API server's responses.
pub(super) struct MachineDelay {
    measured: Arc<Mutex<Vec<(Timestamp, Duration)>>>,
    /// Aborted when this value is dropped.
    _tasks: JoinSet<()>,
}

impl MachineDelay {
    pub(super) fn new(client: Client) -> MachineDelay {
        let measured = Arc::new(Mutex::new(Vec::new()));
        let (recorded, namespaces) = (measured.clone(), Api::<Namespace>::all(client));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (began, then) = (Instant::now(), Timestamp::now());
                sleep(INTERVAL).await;
                // A failed request counts as well.
                let _ = namespaces.get("default").await;
                let delay = began.elapsed().saturating_sub(INTERVAL);
                recorded.lock().unwrap_or_else(PoisonError::into_inner).push((then, delay));
            }
        });
        MachineDelay { measured, _tasks: tasks }
    }

    /// Returns the longest delay since a moment.
    pub(super) fn longest_since(&self, since: Timestamp) -> Duration {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, delay)| *delay).max().unwrap_or_default()
    }
}
