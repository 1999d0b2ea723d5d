//! More classes, counters and changes than the limits allow.

use k8s_openapi::api::core::v1::{Node as RawNode, Pod as RawPod};
use serde_json::json;
use stead_model::KubernetesVersion;
use stead_placement::{Cluster, Node, Pod, PodKey, evaluate};

/// A unique pod: its own label, a spread constraint for that label, and its own requests.
fn pod(i: usize) -> RawPod {
    let ids = [i, i / 2].map(|n| n.to_string());
    let selector = json!({"matchExpressions": [{"key": "id", "operator": "In", "values": ids}]});
    let constraint = |key: &str, when: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector});
    let requests = json!({"cpu": format!("{}m", 1 + i % 1100)});
    serde_json::from_value(json!({
        "metadata": {"name": format!("p{i}"), "namespace": "default", "labels": {"id": i.to_string()}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
            "topologySpreadConstraints": [constraint("zone", "DoNotSchedule"), constraint("host", "ScheduleAnyway")],
        },
    }))
    .expect("an object of the API")
}

#[test]
fn agrees_beyond_the_limits() {
    let mut cluster = Cluster::new();
    for i in 0..6 {
        let node: RawNode = serde_json::from_value(json!({
            "metadata": {"name": format!("n{i}"), "labels": {"host": i.to_string(), "zone": (i % 3).to_string()}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
        }))
        .expect("an object of the API");
        cluster.set_node(Node::compile(&node).expect("a valid node"));
    }
    for i in 0..9000 {
        let pod = Pod::compile(&pod(i), KubernetesVersion::NEWEST).expect("a valid pod");
        // Comparing some pods is enough: a wrong cache entry stays wrong. The reference path is slow.
        let reference = (i % 10 == 0).then(|| evaluate(&cluster, &pod).expect("nothing unmodelled"));
        let fast = cluster.place(&pod).expect("nothing unmodelled");
        if let Some(reference) = reference {
            assert!(fast.best().eq(&reference.best) && fast.fitting() == reference.scores.len(), "pod {i}");
        }
        let node = fast.choose(i as u64).cloned().expect("there is room");
        cluster.assume(&pod, &node).expect("the node is there");
        // Half of the added pods are removed at once, the others later.
        let leaving = if i % 2 == 0 { i / 2 } else { i };
        cluster.remove_pod(&PodKey::new("default", &format!("p{leaving}")));
        if i > 200 {
            cluster.remove_pod(&PodKey::new("default", &format!("p{}", i - 200)));
        }
    }
}
