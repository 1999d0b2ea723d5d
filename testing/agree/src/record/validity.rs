//! Whether a run says something: on a machine that is too busy, healthy nodes are late with their heartbeats.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::watch::Seen;

/// How late a timer of this process may be.
const MAX_LATENESS: Duration = Duration::from_millis(1500);

/// How late a heartbeat may be, in periods: a node counts as lost after eight of them, or five of the real ones.
const MAX_HEARTBEATS_MISSED: f64 = 3.5;

/// Measures how late timers of this process are.
pub(super) struct Punctuality {
    worst: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Punctuality {
    pub(super) fn start() -> Punctuality {
        let worst = Arc::new(AtomicU64::new(0));
        let shared = worst.clone();
        let period = Duration::from_millis(100);
        let task = tokio::spawn(async move {
            loop {
                let due = Instant::now() + period;
                sleep(period).await;
                let late = u64::try_from(due.elapsed().as_millis()).unwrap_or(u64::MAX);
                shared.fetch_max(late, Ordering::Relaxed);
            }
        });
        Punctuality { worst, task }
    }

    /// Why the run says nothing; none if the machine was not too busy.
    pub(super) fn problem(&self) -> Option<String> {
        let worst = Duration::from_millis(self.worst.load(Ordering::Relaxed));
        (worst > MAX_LATENESS)
            .then(|| format!("the machine is too busy: a timer was {:.1} s late", worst.as_secs_f64()))
    }
}

impl Drop for Punctuality {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// When each machine stopped to report, and when it was to report again.
pub(super) type Outages = BTreeMap<String, Vec<(Timestamp, Option<Timestamp>)>>;

/// Why the run says nothing: a node that was healthy did not renew its Lease in time; none if all did.
pub(super) fn late_heartbeat(seen: &[Seen], outages: &Outages, period: f64, end: Timestamp) -> Option<String> {
    let mut renewals: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for version in seen.iter().filter(|version| version.object["kind"] == "Lease") {
        let node = version.object["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(at) = time(&version.object["spec"]["renewTime"]).filter(|_| !version.removed) {
            renewals.entry(node).or_default().push(at);
        }
    }
    let most = period * MAX_HEARTBEATS_MISSED + 2.0;
    for (node, times) in renewals {
        let ends = times.iter().copied().skip(1).chain([end]);
        for (from, to) in times.iter().copied().zip(ends) {
            let excused =
                outages.get(node).into_iter().flatten().any(|(down, up)| *down <= to && up.is_none_or(|up| up >= from));
            let gap = to.duration_since(from).as_secs_f64();
            if gap > most && !excused {
                return Some(format!("{node} was healthy, but renewed its lease {gap:.1} s late"));
            }
        }
    }
    None
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
