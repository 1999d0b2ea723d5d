//! What is said of pods that do not wait for a node, or that wait for something else.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_explain::outage::Clock;
use stead_explain::{Explanation, PodState, explain};
use stead_model::{ObjectKey, Objects, placement_kinds};

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    })
}

/// A pod `p` in `default` with these parts.
fn pod(metadata: Value, spec: Value, status: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Pending"},
    });
    for (part, values) in [("metadata", metadata), ("spec", spec), ("status", status)] {
        for (field, value) in values.as_object().expect("an object") {
            pod[part][field] = value.clone();
        }
    }
    pod
}

fn explained(objects: Vec<Value>, kinds: &[&str]) -> Explanation {
    let kinds: BTreeSet<String> = kinds.iter().map(ToString::to_string).collect();
    let key = ObjectKey::new("Pod", "default", "p");
    explain(&Objects::from_items(objects), &key, &kinds, &Clock::at(jiff::Timestamp::UNIX_EPOCH))
        .expect("the pod is there")
}

#[test]
fn a_short_true_answer_for_what_does_not_wait() {
    let gate = json!({"schedulingGates": [{"name": "example.com/quota"}]});
    let managed = json!([{"manager": "quota-controller", "fieldsV1": {"f:spec": {"f:schedulingGates": {}}}}]);
    let none = json!({});
    let table = [
        (
            pod(none.clone(), json!({"nodeName": "n"}), json!({"phase": "Running"})),
            PodState::Placed,
            "Running on node n",
        ),
        (
            pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({"nodeName": "n"}), none.clone()),
            PodState::Terminating,
            "Terminating on node n",
        ),
        (pod(none.clone(), none.clone(), json!({"phase": "Succeeded"})), PodState::Finished, "it has ended: Succeeded"),
        (
            pod(none.clone(), gate.clone(), none.clone()),
            PodState::Gated,
            "the scheduling gate example.com/quota is removed",
        ),
        (
            pod(json!({"managedFields": managed}), gate, none.clone()),
            PodState::Gated,
            "which is quota-controller by the pod's managed fields",
        ),
        (pod(none.clone(), json!({"schedulerName": "mine"}), none.clone()), PodState::Unknown, "the scheduler mine"),
        (
            pod(none.clone(), json!({"resourceClaims": [{"name": "gpu"}]}), none.clone()),
            PodState::Unknown,
            "not modelled",
        ),
        (pod(none.clone(), none.clone(), none), PodState::Schedulable, "1 of 1 nodes can run it now, best n"),
    ];
    for (pod, state, says) in table {
        let e = explained(vec![node("n"), pod], &["Node", "Pod"]);
        assert_eq!(e.state, state, "{}", e.summary);
        assert!(e.summary.contains(says), "{:?} does not say {says:?}", e.summary);
        assert!(e.fixes.is_empty());
    }
}

#[test]
fn what_the_dump_lacks_is_said_where_it_matters() {
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let objects = vec![node("n"), pod(json!({}), claim, json!({}))];
    let without = explained(objects.clone(), &["Node", "Pod"]);
    assert!(without.notes.iter().any(|n| n.contains("pv, pvc, sc")), "{:?}", without.notes);
    let all: Vec<&str> = placement_kinds().map(|k| k.kind).collect();
    assert_eq!(explained(objects, &all).notes, Vec::<String>::new());
}

#[test]
fn a_pod_without_any_node_gets_one_offered() {
    let e = explained(vec![pod(json!({}), json!({"nodeSelector": {"disk": "ssd"}}), json!({}))], &["Node", "Pod"]);
    assert_eq!(e.state, PodState::Unschedulable);
    assert_eq!(e.message.as_deref(), Some("no nodes available to schedule pods"));
    assert_eq!(e.fixes.len(), 1, "{:?}", e.fixes);
    assert!(e.fixes[0].text.starts_with("add a node"), "{}", e.fixes[0].text);
}
