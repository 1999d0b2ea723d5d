//! Records when each pod was Ready, according to its conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use stead_testbed::observe;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A time in which a pod was Ready and not Terminating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadyInterval {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) from: Timestamp,
    pub(super) until: Option<Timestamp>,
}

/// Watches all pods, and records when each was Ready.
pub(super) struct ReadinessWatch {
    pods: Store<Pod>,
    intervals: Arc<Mutex<Vec<ReadyInterval>>>,
    /// Aborted when this value is dropped.
    _tasks: JoinSet<()>,
}

impl ReadinessWatch {
    pub(super) fn new(client: Client) -> ReadinessWatch {
        let (mut tasks, changed) = (JoinSet::new(), watch::Sender::new(()));
        let pods: Store<Pod> = observe(Api::all(client), &changed, &mut tasks);
        let intervals = Arc::new(Mutex::new(Vec::new()));
        let (store, recorded, mut changes) = (pods.clone(), intervals.clone(), changed.subscribe());
        tasks.spawn(async move {
            while changes.changed().await.is_ok() {
                record(&mut recorded.lock().unwrap_or_else(PoisonError::into_inner), &store.state(), Timestamp::now());
            }
        });
        ReadinessWatch { pods, intervals, _tasks: tasks }
    }

    /// Returns the pods of a namespace as last observed.
    pub(super) fn pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.state();
        pods.retain(|pod| pod.namespace().as_deref() == Some(namespace));
        pods.sort_by_key(|pod| pod.name_any());
        pods
    }

    /// Returns when the pods of a namespace were Ready.
    pub(super) fn intervals(&self, namespace: &str) -> Vec<ReadyInterval> {
        let intervals = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        intervals.iter().filter(|interval| interval.namespace == namespace).cloned().collect()
    }
}

/// Starts and ends intervals according to the current pods. An interval starts at the time in the condition; this has
/// only whole seconds, so the middle of the second is used.
fn record(intervals: &mut Vec<ReadyInterval>, pods: &[Arc<Pod>], now: Timestamp) {
    let ready = pods.iter().filter_map(|pod| Some((pod.uid().unwrap_or_default(), (pod, ready_since(pod)?))));
    let ready: BTreeMap<String, (&Arc<Pod>, Timestamp)> = ready.collect();
    for interval in
        intervals.iter_mut().filter(|interval| interval.until.is_none() && !ready.contains_key(&interval.uid))
    {
        interval.until = Some(now);
    }
    let open: BTreeSet<String> =
        intervals.iter().filter(|interval| interval.until.is_none()).map(|interval| interval.uid.clone()).collect();
    for (uid, (pod, since)) in ready.into_iter().filter(|(uid, _)| !open.contains(uid)) {
        let reported = now.min(since + SignedDuration::from_millis(500));
        // A kubelet that is back may report the old condition again.
        let stale = intervals.iter().any(|interval| interval.uid == uid && interval.until > Some(reported));
        intervals.push(ReadyInterval {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            uid,
            node: node_of(pod).to_owned(),
            from: if stale { now } else { reported },
            until: None,
        });
    }
}

/// Returns since when a pod is Ready; none if it is not Ready or Terminating.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True");
    let ready = ready.filter(|_| pod.metadata.deletion_timestamp.is_none())?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a pod is Ready and not Terminating.
pub(super) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Returns the node of a pod; empty if it has none.
pub(super) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn intervals_start_and_end() {
        let at = |second| Timestamp::from_second(second).expect("a valid time");
        let pod = |uid: &str, ready: &str, since: i64| -> Arc<Pod> {
            let ready = json!({ "type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string() });
            let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": uid },
                              "spec": { "nodeName": "a", "containers": [] }, "status": { "conditions": [ready] } });
            Arc::new(serde_json::from_value(pod).expect("a valid pod"))
        };
        let mut intervals = Vec::new();
        record(&mut intervals, &[pod("1", "False", 1)], at(1));
        record(&mut intervals, &[pod("1", "True", 2)], at(2));
        record(&mut intervals, &[pod("1", "True", 2)], at(3));
        record(&mut intervals, &[pod("1", "False", 4)], at(4));
        // Observed a while after the condition changed.
        record(&mut intervals, &[pod("2", "True", 5)], at(9));
        record(&mut intervals, &[], at(10));
        record(&mut intervals, &[pod("2", "True", 5)], at(12));
        let recorded: Vec<_> = intervals.iter().map(|s| (s.uid.as_str(), s.from, s.until)).collect();
        let half = SignedDuration::from_millis(500);
        assert_eq!(recorded, [("1", at(2), Some(at(4))), ("2", at(5) + half, Some(at(10))), ("2", at(12), None)]);
    }
}
