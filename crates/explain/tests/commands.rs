//! What is offered can be typed: paths lead where they should, in the object that people change.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_explain::outage::Clock;
use stead_explain::{Explanation, explain};
use stead_model::{ObjectKey, Objects};

fn node(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a"}}, "spec": spec,
        "status": {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "10"}},
    })
}

fn pod(name: &str, owner: Option<(&str, &str)>, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": "x"}}, "spec": spec,
        "status": {"phase": "Pending"},
    });
    if let Some((kind, name)) = owner {
        pod["metadata"]["ownerReferences"] = json!([{"kind": kind, "name": name, "controller": true}]);
    }
    pod
}

fn set(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "db", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "serviceName": "db", "template": {
            "metadata": {"labels": {"app": "x"}}, "spec": spec,
        }},
    })
}

fn explained(objects: Vec<Value>) -> Explanation {
    let kinds: BTreeSet<String> = BTreeSet::new();
    explain(
        &Objects::from_items(objects),
        &ObjectKey::new("Pod", "ns", "p"),
        &kinds,
        &Clock::at(jiff::Timestamp::UNIX_EPOCH),
    )
    .expect("the pod is there")
}

fn commands(e: &Explanation, text: &str) -> Vec<String> {
    let fix = e.fixes.iter().find(|f| f.text.contains(text));
    let commands = &fix.unwrap_or_else(|| panic!("no {text:?} in {:#?}", e.fixes)).commands;
    commands.iter().map(ToString::to_string).collect()
}

/// Admission gave the pod tolerations that the template does not have.
#[test]
fn a_toleration_goes_to_the_end_of_the_templates_own_list() {
    let taint = json!({"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]});
    let added = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
    let own = json!({"key": "mine", "operator": "Exists"});
    let containers = json!([{"name": "c", "image": "i"}]);
    for (in_template, want) in [
        (json!({"containers": containers}), r#""path":"/spec/template/spec/tolerations","value":[{"#),
        (
            json!({"containers": containers, "tolerations": [own]}),
            r#""path":"/spec/template/spec/tolerations/-","value":{"#,
        ),
    ] {
        let mut spec = in_template.clone();
        spec["tolerations"] = json!([own, added]);
        let e = explained(vec![
            node("n", taint.clone()),
            pod("p", Some(("ReplicaSet", "db")), spec),
            set("ReplicaSet", in_template),
        ]);
        let lines = commands(&e, "let the pod tolerate");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("patch replicaset db") && lines[0].contains(want), "{lines:?}");
        assert!(!lines[0].contains("not-ready"), "{lines:?}");
    }
}

/// A sidecar was put before the container that asks for too much.
#[test]
fn a_container_is_found_by_its_name() {
    let own = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}});
    let e = explained(vec![
        node("n", json!({})),
        pod("p", Some(("ReplicaSet", "db")), json!({"containers": [{"name": "proxy", "image": "i"}, own]})),
        set("ReplicaSet", json!({"containers": [own]})),
    ]);
    let lines = commands(&e, "request less");
    assert!(lines[0].contains(r#""path":"/spec/template/spec/containers/0/resources/requests/cpu""#), "{lines:?}");
    // Whose container it is nobody knows where the template does not have it.
    let e = explained(vec![
        node("n", json!({})),
        pod("p", Some(("ReplicaSet", "db")), json!({"containers": [own]})),
        set("ReplicaSet", json!({"containers": [{"name": "other", "image": "i"}]})),
    ]);
    let lines = commands(&e, "request less");
    assert!(lines[0].starts_with("# change ReplicaSet db, which creates the pod"), "{lines:?}");
}

#[test]
fn a_topologys_constraint_is_patched_where_it_stands() {
    let rule = |key: &str| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        })
    };
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [rule("rack")],
    });
    for list in ["topologySpreadConstraints", "topologySpreadConstraint"] {
        let topology = json!({
            "apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
            "metadata": {"name": "t", "namespace": "ns"}, "spec": {list: [rule("zone"), rule("rack")]},
        });
        for (kind, policy, restarts) in
            [("StatefulSet", "OrderedReady", true), ("StatefulSet", "Parallel", false), ("ReplicaSet", "", false)]
        {
            let mut owner = set(kind, spec.clone());
            owner["spec"]["podManagementPolicy"] = json!(policy);
            let e = explained(vec![
                node("n", json!({})),
                pod("p", Some((kind, "db")), spec.clone()),
                owner,
                topology.clone(),
            ]);
            let lines = commands(&e, "ScheduleAnyway");
            let path = format!(r#""path":"/spec/{list}/1/whenUnsatisfiable""#);
            assert!(lines[0].starts_with("kubectl -n ns patch topology t"), "{lines:?}");
            assert!(lines[0].contains(&path), "{lines:?}");
            assert_eq!(lines.len() == 2, restarts, "{lines:?}");
        }
    }
}

#[test]
fn what_leaves_is_told_where_it_goes_or_that_it_is_gone() {
    let wants = |name: &str, node: &str, owner: Option<(&str, &str)>| {
        let requests = json!({"requests": {"cpu": "1"}});
        let mut p = pod(name, owner, json!({"containers": [{"name": "c", "image": "i", "resources": requests}]}));
        if !node.is_empty() {
            p["spec"]["nodeName"] = json!(node);
        }
        p
    };
    let owner = Some(("ReplicaSet", "db"));
    for (other, says) in [(None, "will not be recreated (no controller)"), (owner, "no node could run ns/q then")] {
        let e = explained(vec![node("n", json!({})), wants("q", "n", other), wants("p", "", owner)]);
        let fix = e.fixes.iter().find(|f| f.text.contains("ns/q")).expect("it leaves");
        assert!(fix.text.contains(says), "{}", fix.text);
    }
    // Where the scheduler does it, there is nothing to type.
    let mut important = wants("p", "", owner);
    important["spec"]["priority"] = json!(10);
    let e = explained(vec![node("n", json!({})), wants("q", "n", owner), important]);
    let wait: Vec<_> = e.fixes.iter().filter(|f| f.text.starts_with("wait: ")).collect();
    assert!(wait.len() == 1 && wait[0].commands.is_empty(), "{:?}", e.fixes);
}

/// The first pod of a series meets its own affinity: what keeps it away is another's anti-affinity.
#[test]
fn affinity_is_explained_by_the_reason() {
    let term = |app: &str| json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}]);
    let required = |field: &str, app: &str| {
        json!({
            "containers": [{"name": "c", "image": "i"}],
            "affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}},
        })
    };
    let mut other = pod("q", None, required("podAntiAffinity", "x"));
    other["spec"]["nodeName"] = json!("n");
    other["metadata"]["labels"] = json!({"app": "y"});
    let e = explained(vec![node("n", json!({})), other, pod("p", None, required("podAffinity", "x"))]);
    let lines: Vec<&str> = e.reasons.iter().flat_map(|r| &r.because).map(|b| b.text.as_str()).collect();
    assert_eq!(lines, ["the anti-affinity of pod ns/q excludes pods with app=x by zone"]);
    assert!(e.fixes.iter().any(|f| f.text.contains("anti-affinity of ns/q")), "{:?}", e.fixes);
}

fn lines_of<'a>(e: &'a Explanation, reason: &str) -> Vec<&'a str> {
    let of_reason = e.reasons.iter().filter(|r| r.reason.contains(reason));
    of_reason.flat_map(|r| &r.because).map(|b| b.text.as_str()).collect()
}

/// One node, two reasons, a claim behind each.
#[test]
fn each_claim_is_named_under_its_own_reason() {
    let claim = |name: &str, volume: Option<&str>| {
        let phase = if volume.is_some() { "Bound" } else { "Pending" };
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": "ns", "uid": name,
                "annotations": volume.map(|_| bound).unwrap_or_else(|| json!({})),
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "static", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": phase},
        })
    };
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["m"]}]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static",
            "claimRef": {"namespace": "ns", "name": "old", "uid": "old"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
        "status": {"phase": "Bound"},
    });
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "static"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let mount = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": [mount("old"), mount("new")]});
    let e = explained(vec![
        node("n", json!({})),
        claim("old", Some("pv")),
        claim("new", None),
        volume,
        class,
        pod("p", None, spec),
    ]);
    let away = lines_of(&e, "PersistentVolume's node affinity");
    assert!(away.len() == 1 && away[0].starts_with("claim old is bound"), "{:#?}", e.reasons);
    let unbound = lines_of(&e, "didn't find available");
    assert!(unbound.len() == 1 && unbound[0].starts_with("claim new of 1Gi"), "{:#?}", e.reasons);
}

/// What the scheduler forbids by itself goes by itself; what people forbade stays until they remove it.
#[test]
fn a_taint_of_kubernetes_and_one_of_ours() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let both = json!({"taints": [taint("node.kubernetes.io/not-ready"), taint("dedicated")]});
    let e = explained(vec![node("n", both), pod("p", None, json!({"containers": [{"name": "c", "image": "i"}]}))]);
    let lines = commands(
        &e,
        "bring node n back: Kubernetes then removes its taint node.kubernetes.io/not-ready:NoSchedule; and remove the taint dedicated:NoSchedule",
    );
    assert_eq!(lines[0], "kubectl taint node n dedicated:NoSchedule-");
    let by_hand = json!({"taints": [taint("node.kubernetes.io/out-of-service")]});
    let e = explained(vec![node("n", by_hand), pod("p", None, json!({"containers": [{"name": "c", "image": "i"}]}))]);
    let lines = commands(&e, "remove the taint");
    assert_eq!(lines, ["kubectl taint node n node.kubernetes.io/out-of-service:NoSchedule-"]);
}

/// Dropping the selector is enough for one node: what drops more for another is not offered.
#[test]
fn no_step_that_is_not_needed() {
    let names = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "nodeSelector": {"rack": "r"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": names}}},
    });
    let e = explained(vec![node("m", json!({})), node("n", json!({})), pod("p", None, spec)]);
    let drops: Vec<&str> = e.fixes.iter().map(|f| f.text.as_str()).filter(|t| t.starts_with("remove ")).collect();
    assert_eq!(drops, ["remove nodeSelector rack=r from the pod"]);
    let held: Vec<&str> = lines_of(&e, "didn't match Pod's node affinity/selector");
    assert!(!held.iter().any(|l| l.starts_with("required node affinity")), "that one holds: {held:?}");
}
