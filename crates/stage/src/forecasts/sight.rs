//! When which pod was Ready, as a watch tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
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

/// Begins and ends spells by how the pods are now.
fn note(spells: &mut Vec<Spell>, pods: &[Arc<Pod>], now: Timestamp) {
    let ready: BTreeMap<String, &Arc<Pod>> =
        pods.iter().filter(|pod| is_ready(pod)).map(|pod| (pod.uid().unwrap_or_default(), pod)).collect();
    for spell in spells.iter_mut().filter(|spell| spell.until.is_none() && !ready.contains_key(&spell.uid)) {
        spell.until = Some(now);
    }
    let going_on: BTreeSet<String> =
        spells.iter().filter(|spell| spell.until.is_none()).map(|spell| spell.uid.clone()).collect();
    let new = ready.into_iter().filter(|(uid, _)| !going_on.contains(uid));
    spells.extend(new.map(|(uid, pod)| Spell {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        uid,
        node: node_of(pod).to_owned(),
        from: now,
        until: None,
    }));
}

/// Whether a pod is Ready and not about to go.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
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
        let pod = |uid: &str, ready: &str| -> Arc<Pod> {
            let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": uid }, "spec": { "nodeName": "a", "containers": [] },
                              "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        let mut spells = Vec::new();
        note(&mut spells, &[pod("1", "False")], at(1));
        note(&mut spells, &[pod("1", "True")], at(2));
        note(&mut spells, &[pod("1", "True")], at(3));
        note(&mut spells, &[pod("1", "False")], at(4));
        note(&mut spells, &[pod("2", "True")], at(5));
        note(&mut spells, &[], at(6));
        let seen: Vec<_> = spells.iter().map(|s| (s.uid.as_str(), s.from, s.until)).collect();
        assert_eq!(seen, [("1", at(2), Some(at(4))), ("2", at(5), Some(at(6)))]);
    }
}
