//! When which pod was Ready, according to its own conditions.

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

/// A time in which a pod was Ready and not about to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spell {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) from: Timestamp,
    pub(super) until: Option<Timestamp>,
}

/// All pods, and when each was Ready.
pub(super) struct Sight {
    pods: Store<Pod>,
    spells: Arc<Mutex<Vec<Spell>>>,
    /// Aborted when it is dropped.
    _tasks: JoinSet<()>,
}

impl Sight {
    pub(super) fn new(client: Client) -> Sight {
        let (mut tasks, changed) = (JoinSet::new(), watch::Sender::new(()));
        let pods: Store<Pod> = observe(Api::all(client), &changed, &mut tasks);
        let spells = Arc::new(Mutex::new(Vec::new()));
        let (store, kept, mut news) = (pods.clone(), spells.clone(), changed.subscribe());
        tasks.spawn(async move {
            while news.changed().await.is_ok() {
                note(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &store.state(), Timestamp::now());
            }
        });
        Sight { pods, spells, _tasks: tasks }
    }

    /// The pods of a namespace as they were last seen.
    pub(super) fn pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.state();
        pods.retain(|pod| pod.namespace().as_deref() == Some(namespace));
        pods.sort_by_key(|pod| pod.name_any());
        pods
    }

    /// When the pods of a namespace were Ready.
    pub(super) fn spells(&self, namespace: &str) -> Vec<Spell> {
        let spells = self.spells.lock().unwrap_or_else(PoisonError::into_inner);
        spells.iter().filter(|spell| spell.namespace == namespace).cloned().collect()
    }
}

/// Begins and ends spells by how the pods are now. A spell begins when the pod says so, which is down to the second: half of
/// one is lost as a rule.
fn note(spells: &mut Vec<Spell>, pods: &[Arc<Pod>], now: Timestamp) {
    let ready = pods.iter().filter_map(|pod| Some((pod.uid().unwrap_or_default(), (pod, ready_since(pod)?))));
    let ready: BTreeMap<String, (&Arc<Pod>, Timestamp)> = ready.collect();
    for spell in spells.iter_mut().filter(|spell| spell.until.is_none() && !ready.contains_key(&spell.uid)) {
        spell.until = Some(now);
    }
    let going_on: BTreeSet<String> =
        spells.iter().filter(|spell| spell.until.is_none()).map(|spell| spell.uid.clone()).collect();
    for (uid, (pod, since)) in ready.into_iter().filter(|(uid, _)| !going_on.contains(uid)) {
        let said = now.min(since + SignedDuration::from_millis(500));
        // A kubelet that is back may repeat what it said before it was silent.
        let stale = spells.iter().any(|spell| spell.uid == uid && spell.until > Some(said));
        spells.push(Spell {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            uid,
            node: node_of(pod).to_owned(),
            from: if stale { now } else { said },
            until: None,
        });
    }
}

/// Since when a pod is Ready, if it is, and not about to go.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True");
    let ready = ready.filter(|_| pod.metadata.deletion_timestamp.is_none())?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a pod is Ready and not about to go.
pub(super) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// The node of a pod, or nothing.
pub(super) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spells_begin_and_end() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let pod = |uid: &str, ready: &str, since: i64| -> Arc<Pod> {
            let ready = json!({ "type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string() });
            let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": uid },
                              "spec": { "nodeName": "a", "containers": [] }, "status": { "conditions": [ready] } });
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        let mut spells = Vec::new();
        note(&mut spells, &[pod("1", "False", 1)], at(1));
        note(&mut spells, &[pod("1", "True", 2)], at(2));
        note(&mut spells, &[pod("1", "True", 2)], at(3));
        note(&mut spells, &[pod("1", "False", 4)], at(4));
        // Seen a while after it was so.
        note(&mut spells, &[pod("2", "True", 5)], at(9));
        note(&mut spells, &[], at(10));
        note(&mut spells, &[pod("2", "True", 5)], at(12));
        let seen: Vec<_> = spells.iter().map(|s| (s.uid.as_str(), s.from, s.until)).collect();
        let half = SignedDuration::from_millis(500);
        assert_eq!(seen, [("1", at(2), Some(at(4))), ("2", at(5) + half, Some(at(10))), ("2", at(12), None)]);
    }
}
