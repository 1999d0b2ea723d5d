//! How late a busy machine is: a forecast is not blamed for that.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// So often it is looked.
const OFTEN: Duration = Duration::from_millis(100);

/// How late this program was woken, and the API server answered, at each moment.
pub(super) struct Lateness {
    seen: Arc<Mutex<Vec<(Timestamp, Duration)>>>,
    /// Aborted when it is dropped.
    _tasks: JoinSet<()>,
}

impl Lateness {
    pub(super) fn new(client: Client) -> Lateness {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, namespaces) = (seen.clone(), Api::<Namespace>::all(client));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (began, then) = (Instant::now(), Timestamp::now());
                sleep(OFTEN).await;
                // One that fails took its time, too.
                let _ = namespaces.get("default").await;
                let late = began.elapsed().saturating_sub(OFTEN);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push((then, late));
            }
        });
        Lateness { seen, _tasks: tasks }
    }

    /// The worst since a moment.
    pub(super) fn since(&self, since: Timestamp) -> Duration {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, late)| *late).max().unwrap_or_default()
    }
}
