//! What was done in the recordings, and when.

use serde_json::{Value, json};

/// Something that was done at a time.
pub(crate) struct Act {
    /// Seconds since the beginning of the recording.
    pub(crate) at: f64,
    pub(crate) doing: Doing,
}

pub(crate) enum Doing {
    /// A command, and the objects that `-f -` reads.
    Run(String, Vec<Value>),
    /// A node's kubelet stops.
    Down(&'static str),
    /// It goes on.
    Up(&'static str),
    /// Nothing: the recording goes on to here.
    End,
}

fn run(at: f64, line: &str) -> Act {
    Act { at, doing: Doing::Run(line.to_owned(), Vec::new()) }
}

fn apply(at: f64, namespace: &str, objects: Vec<Value>) -> Act {
    Act { at, doing: Doing::Run(format!("kubectl -n {namespace} apply -f -"), objects) }
}

fn down(at: f64, node: &'static str) -> Act {
    Act { at, doing: Doing::Down(node) }
}

fn up(at: f64, node: &'static str) -> Act {
    Act { at, doing: Doing::Up(node) }
}

fn end(at: f64) -> Act {
    Act { at, doing: Doing::End }
}

fn class(name: &str, provisioner: &str, zone: Option<&str>) -> Value {
    let mut class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete" });
    if let Some(zone) = zone {
        class["allowedTopologies"] = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": [zone] }] }]);
    }
    class
}

fn cinder_class() -> Value {
    class("default-de-nbg6-1a", "cinder.csi.openstack.org", Some("zoneA"))
}

fn claim_spec(class: &str, size: &str) -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": { "requests": { "storage": size } } })
}

/// One Deployment with one volume: updates, a dead node, a dead zone.
pub(crate) fn cinder() -> Vec<Act> {
    let deployment = |image: &str| {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "test-cinder" },
            "spec": { "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": { "app": "test-cinder" } },
                "template": { "metadata": { "labels": { "app": "test-cinder" } }, "spec": {
                    "containers": [{ "name": "web", "image": image }],
                    "volumes": [{ "name": "database", "persistentVolumeClaim": { "claimName": "test-cinder-volume" } }] } } } })
    };
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "test-cinder-volume" },
        "spec": claim_spec("default-de-nbg6-1a", "3Gi") });
    let strategy = |at: f64, strategy: &str| {
        let patch = json!([{ "op": "replace", "path": "/spec/strategy", "value": { "type": strategy } }]);
        run(at, &format!("kubectl patch deploy test-cinder --type=json -p '{patch}'"))
    };
    vec![
        apply(14.3, "default", vec![cinder_class(), claim, deployment("oz123/cinder-test")]),
        apply(19.2, "default", vec![deployment("oz123/cinder-test:2")]),
        strategy(23.7, "RollingUpdate"),
        run(
            23.8,
            r#"kubectl patch deploy test-cinder -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"oz123/cinder-test:3"}]}}}}'"#,
        ),
        strategy(64.0, "Recreate"),
        run(74.3, "kubectl delete pod -l app=test-cinder --wait=false"),
        down(82.5, "master-0"),
        run(917.1, "kubectl delete pod test-cinder-7956c54757-qg8l7 --force --grace-period=0"),
        up(1281.8, "master-0"),
        down(1283.0, "worker-0"),
        run(1338.5, "kubectl taint node worker-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
        run(1345.2, "kubectl taint node worker-0 node.kubernetes.io/out-of-service-"),
        up(1345.3, "worker-0"),
        down(1361.0, "master-0"),
        down(1361.1, "worker-0"),
        down(1361.2, "worker-3"),
        up(1736.5, "master-0"),
        up(1736.6, "worker-0"),
        up(1736.7, "worker-3"),
        end(1754.6),
    ]
}

/// A StatefulSet with two volumes for each pod: scaling, a deleted pod, a deleted Node, a dark cluster.
pub(crate) fn gluster() -> Vec<Act> {
    let claim = |name: &str, size: &str| json!({ "metadata": { "name": name }, "spec": claim_spec("default-de-nbg6-1a", size) });
    let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "glusterfs" },
        "spec": { "serviceName": "glusterfs", "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "glusterfs" } },
            "template": { "metadata": { "labels": { "app": "glusterfs" } },
                "spec": { "containers": [{ "name": "glusterfs", "image": "gluster/gluster-centos" }] } },
            "volumeClaimTemplates": [claim("glusterd-state", "20Gi"), claim("glusterfs-data0", "80Gi")] } });
    let mut acts = vec![
        apply(12.4, "default", vec![cinder_class(), set]),
        run(16.9, "kubectl scale sts glusterfs --replicas=5"),
        run(21.3, "kubectl scale sts glusterfs --replicas=3"),
        run(23.5, "kubectl scale sts glusterfs --replicas=4"),
        run(26.8, "kubectl delete pod glusterfs-1 --wait=false"),
        down(31.0, "worker-3"),
        run(91.5, "kubectl delete node worker-3"),
    ];
    let all = ["master-0", "master-1", "master-2", "worker-0", "worker-1", "worker-2"];
    // The last heartbeats came one after the other.
    let last = [505.2, 505.2, 505.2, 505.2, 512.0, 508.0];
    acts.extend(all.into_iter().zip(last).map(|(node, at)| down(at, node)));
    acts.sort_by(|a, b| a.at.total_cmp(&b.at));
    acts.extend(all.map(|node| up(1105.5, node)));
    acts.push(end(1121.9));
    acts
}

/// Five StatefulSets over three zones: spread, lost labels, external storage, a suspended node.
pub(crate) fn glance() -> Vec<Act> {
    let anti = json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100,
        "podAffinityTerm": { "labelSelector": { "matchExpressions": [{ "key": "service", "operator": "In", "values": ["glance"] }] },
            "topologyKey": "kubernetes.io/hostname" } }] } });
    let spread = json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "service": "glance" } } }]);
    let zone = |zone: &str| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] }] } } })
    };
    let set = |name: &str, owner: &str, replicas: i64, affinity: &Value, spread: Option<&Value>, claims: bool| {
        let labels = json!({ "service": "glance", "component": "glance-api", "glanceAPI": owner, "owner": owner });
        let containers =
            ["glance-log", "glance-httpd", "glance-api"].map(|name| json!({ "name": name, "image": "glance" }));
        let mut pod = json!({ "containers": containers, "affinity": affinity });
        if let Some(spread) = spread {
            pod["topologySpreadConstraints"] = spread.clone();
        }
        let mut set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": name, "namespace": "openstack", "labels": labels },
            "spec": { "serviceName": name, "replicas": replicas, "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } } });
        if claims {
            set["spec"]["volumeClaimTemplates"] =
                json!([{ "metadata": { "name": "glance" }, "spec": claim_spec("lvms-local-storage", "11G") }]);
        }
        set
    };
    let split = |replicas: i64, spread: Option<&Value>, claims: bool| {
        ["external", "internal"].map(|kind| {
            set(
                &format!("glance-default-{kind}-api"),
                &format!("glance-default-{kind}"),
                replicas,
                &anti,
                spread,
                claims,
            )
        })
    };
    let edge = |letter: &str, claims: bool| {
        let name = format!("glance-{letter}zone-edge");
        set(&format!("{name}-api"), &name, 3, &zone(&format!("zone{}", letter.to_uppercase())), None, claims)
    };
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "openstack" } });
    let mut first = vec![namespace, class("lvms-local-storage", "topolvm.io", None)];
    first.extend(split(1, None, true));
    let all = |at: f64, objects: Vec<Value>| apply(at, "openstack", objects);
    vec![
        all(12.5, first),
        all(17.3, vec![edge("a", true)]),
        all(17.5, vec![edge("b", true)]),
        all(17.7, vec![edge("c", true)]),
        all(22.8, split(3, None, true).to_vec()),
        run(27.8, "kubectl label node worker-3 zone-"),
        all(27.9, split(3, Some(&spread), true).to_vec()),
        run(88.6, "kubectl label node worker-3 zone=zoneA --overwrite"),
        run(88.8, "kubectl -n openstack delete sts glance-default-external-api"),
        run(89.0, "kubectl -n openstack delete sts glance-default-internal-api"),
        all(91.2, split(3, Some(&spread), false).to_vec()),
        run(94.7, "kubectl -n openstack delete sts glance-azone-edge-api"),
        all(97.0, vec![edge("a", false)]),
        run(97.1, "kubectl -n openstack delete sts glance-bzone-edge-api"),
        all(99.4, vec![edge("b", false)]),
        run(99.5, "kubectl -n openstack delete sts glance-czone-edge-api"),
        all(101.8, vec![edge("c", false)]),
        down(105.5, "worker-0"),
        run(461.3, "kubectl -n openstack rollout restart sts glance-azone-edge-api"),
        run(521.6, "kubectl -n openstack delete pod glance-azone-edge-api-0 --force --grace-period=0"),
        up(541.7, "worker-0"),
        end(557.6),
    ]
}
