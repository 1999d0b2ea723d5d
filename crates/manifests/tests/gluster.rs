//! The objects of a Gluster pool, checked without a cluster.

use expect_test::{ExpectFile, expect_file};
use serde_json::{Value, json};
use stead_manifests::gluster::{
    Network, Pool, PoolStorageClass, Privilege, Probe, Source, Spread, check, is_of, pool, rights,
};

/// The objects as `stead gluster manifests` prints them.
fn yaml(of: &Pool) -> String {
    pool(of).iter().map(|m| format!("---\n{}", serde_saphyr::to_string(&m.object).expect("YAML"))).collect()
}

/// The default values, with an image.
fn values() -> Pool {
    Pool { image: "registry.example/gluster:11.1".to_owned(), ..Pool::default() }
}

fn golden(of: &Pool, file: ExpectFile) {
    assert_eq!(check(of).map(|_| ()), Ok(()));
    file.assert_eq(&yaml(of));
}

fn texts(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A Topology for this pool.
fn topology() -> Value {
    json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "gluster"}}},
    ]})
}

#[test]
fn default_values() {
    golden(&values(), expect_file!["golden/gluster.yaml"]);
}

#[test]
fn all_values_set() {
    let all = Pool {
        name: "pool".to_owned(),
        namespace: "storage".to_owned(),
        create_namespace: true,
        service: "peers".to_owned(),
        replicas: 5,
        image: "registry.example/gluster:11".to_owned(),
        stead_image: "registry.example/stead:1".to_owned(),
        storage_class: Some("bricks".to_owned()),
        state_storage_class: Some("fast".to_owned()),
        new_class: Some(PoolStorageClass {
            provisioner: "ebs.csi.aws.com".to_owned(),
            parameters: texts(&[("type", "gp3")]),
        }),
        brick_size: "500Gi".to_owned(),
        state_size: "2Gi".to_owned(),
        state_claim: "state".to_owned(),
        brick_claim: "disks".to_owned(),
        brick_path: "/bricks".to_owned(),
        spread: Spread::Topology(topology()),
        node_selector: texts(&[("disk", "ssd")]),
        network: Network::Pod,
        privilege: Privilege::Capabilities,
        openshift: true,
        policy: true,
        startup: Probe { delay: 1, period: 3, timeout: 2, failures: 100 },
        liveness: Probe { delay: 120, period: 30, timeout: 9, failures: 3 },
        readiness: Probe { delay: 0, period: 7, timeout: 4, failures: 1 },
        grace_seconds: 300,
        requests: texts(&[("cpu", "1"), ("memory", "1Gi")]),
        limits: texts(&[("memory", "4Gi")]),
        cluster_domain: "k8s.example".to_owned(),
        agent_port: 9090,
        allow_clients: vec![Source::Addresses("10.0.0.0/8".to_owned()), Source::Namespace("apps".to_owned())],
        allow_agents: vec![Source::Addresses("192.0.2.0/24".to_owned())],
    };
    golden(&all, expect_file!["golden/gluster-all.yaml"]);
}

/// As in the field report.
#[test]
fn on_the_nodes_network() {
    let host = Pool { network: Network::Host, policy: false, ..values() };
    golden(&host, expect_file!["golden/gluster-host-network.yaml"]);
}

/// The affinity of a Topology is kept, and the anti-affinity for the node's network is added.
#[test]
fn affinity_of_a_topology_on_the_nodes_network() {
    let affinity = json!({"nodeAffinity": {}, "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack", "labelSelector": {}}],
    }});
    let topology = Spread::Topology(json!({"affinity": affinity}));
    let of = |network| {
        let mut all = pool(&Pool { network, spread: topology.clone(), ..values() });
        all.pop().expect("the StatefulSet is the last").object["spec"]["template"]["spec"]["affinity"].take()
    };
    assert_eq!(of(Network::Pod), affinity);
    let required = &of(Network::Host)["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required[0]["topologyKey"], "rack");
    assert_eq!(required[1]["topologyKey"], "kubernetes.io/hostname");
}

#[test]
fn objects_are_ordered_by_dependency_and_labelled() {
    let pool_values = Pool { create_namespace: true, ..values() };
    let all = pool(&pool_values);
    let kinds: Vec<&str> = all.iter().map(|m| m.kind()).collect();
    assert_eq!(kinds.first(), Some(&"Namespace"));
    assert_eq!(kinds.last(), Some(&"StatefulSet"));
    for manifest in all.iter().filter(|m| m.kind() != "Namespace") {
        assert!(is_of(&manifest.object, "glusterfs"), "{manifest}");
        assert!(!is_of(&manifest.object, "another"), "{manifest}");
    }
}

#[test]
fn every_right_has_bounds_and_a_reason() {
    for right in rights(&Pool { openshift: true, ..values() }) {
        assert!(!right.why.is_empty(), "{right:?}");
        let words = right.resources.iter().chain(right.verbs).chain([&right.group]);
        assert!(words.clone().all(|word| !word.contains('*')), "{right:?}");
        let creates_or_reads = right.verbs.iter().all(|v| ["create", "get", "list", "watch"].contains(v));
        assert!(right.name.is_some() || creates_or_reads, "a right to change must be limited to one object: {right:?}");
    }
}

#[test]
fn errors_name_the_invalid_value() {
    let long = "n".repeat(53);
    let with = |change: &dyn Fn(&mut Pool)| {
        let mut of = values();
        change(&mut of);
        check(&of)
    };
    let topology = |spec: Value| with(&|p: &mut Pool| p.spread = Spread::Topology(spec.clone()));
    for (result, flag, text) in [
        (with(&|p| p.replicas = 0), "replicas", "0 is no pool"),
        (with(&|p| p.replicas = 1001), "replicas", "1001 is more than 1000"),
        (with(&|p| p.name = "Gluster".to_owned()), "name", "lowercase RFC 1123 label"),
        (with(&|p| p.name = "a.b".to_owned()), "name", "must not contain dots"),
        (with(&|p| p.name = String::new()), "name", "lowercase RFC 1123 label"),
        (with(&|p| p.name = long.clone()), "name", "at most 52"),
        (with(&|p| p.service = "1a".to_owned()), "service", "begins with a digit"),
        (with(&|p| p.namespace = "a_b".to_owned()), "namespace", "lowercase RFC 1123 label"),
        (with(&|p| p.cluster_domain = "x..y".to_owned()), "cluster-domain", "lowercase RFC 1123 subdomain"),
        (with(&|p| p.cluster_domain = ["d"; 90].join(".")), "cluster-domain", "room for a host of"),
        (with(&|p| p.brick_size = "10Gx".to_owned()), "brick-size", "10Gx cannot be read"),
        (with(&|p| p.brick_size = "Gi".to_owned()), "brick-size", "is not a quantity"),
        (with(&|p| p.brick_size = "-1Gi".to_owned()), "brick-size", "is not a quantity"),
        (with(&|p| p.state_size = "0".to_owned()), "state-size", "must be greater than zero"),
        (with(&|p| p.state_claim = "stead".to_owned()), "state-claim", "is the name of the volume"),
        (with(&|p| p.brick_claim = "glusterd".to_owned()), "brick-claim", "is the name of the other claim"),
        (with(&|p| p.brick_path = "/var/lib/glusterd/".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (with(&|p| p.brick_path = "bricks".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (with(&|p| p.brick_path = "/".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (with(&|p| p.brick_path = "/.".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (with(&|p| p.brick_path = "/var/lib".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (
            with(&|p| p.brick_path = "/var//lib/./glusterd".to_owned()),
            "brick-path",
            "cannot be the directory for bricks",
        ),
        (
            with(&|p| p.brick_path = "/var/lib/glusterd/bricks".to_owned()),
            "brick-path",
            "cannot be the directory for bricks",
        ),
        (
            with(&|p| p.brick_path = "/data/../var/lib/glusterd".to_owned()),
            "brick-path",
            "cannot be the directory for bricks",
        ),
        (with(&|p| p.brick_path = "/opt/stead/bricks".to_owned()), "brick-path", "cannot be the directory for bricks"),
        (with(&|p| p.limits = texts(&[("memory", "much")])), "limits", "memory=\"much\" is not a quantity"),
        (with(&|p| p.storage_class = Some("Bricks".to_owned())), "storage-class", "RFC 1123 subdomain"),
        (
            with(&|p| p.new_class = Some(PoolStorageClass { provisioner: "x".to_owned(), parameters: texts(&[]) })),
            "storage-class",
            "needs a name",
        ),
        (with(&|p| p.node_selector = texts(&[("a b", "c")])), "node-selector", "\"a b\""),
        (with(&|p| p.spread = Spread::Label("/zone".to_owned())), "spread-by", "prefix part must be non-empty"),
        (with(&|p| p.liveness.period = 0), "liveness", "period=0 is not between 1"),
        (with(&|p| p.grace_seconds = 59), "grace-seconds", "59 is not between 60"),
        (with(&|p| p.agent_port = 24007), "agent-port", "24007 is not between"),
        (with(&|p| p.image = String::new()), "image", "name an image that contains glusterd and gluster"),
        (with(&|p| p.image = "a b".to_owned()), "image", "is not the name of an image"),
        (
            with(&|p| p.allow_clients = vec![Source::Addresses("10.0.0.0/33".to_owned())]),
            "allow-clients",
            "is not one of",
        ),
        (with(&|p| p.allow_agents = vec![Source::Addresses("10.0.0.1".to_owned())]), "allow-agents", "is not one of"),
        (with(&|p| p.allow_agents = vec![Source::Namespace("A".to_owned())]), "allow-agents", "RFC 1123 label"),
        (topology(json!({})), "topology", "it has neither"),
        (topology(json!({"topologySpreadConstraints": "zone"})), "topology", "is not a list of constraints"),
    ] {
        let fault = result.expect_err(text);
        assert_eq!(fault.flag, flag, "{fault:?}");
        assert!(fault.text.contains(text), "{fault:?}");
    }
}

#[test]
fn even_numbers_of_peers_cause_a_warning() {
    for (replicas, warnings) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        let checked = check(&Pool { replicas, ..values() }).expect("valid values");
        assert_eq!(checked.warnings.len(), warnings, "{replicas}: {:?}", checked.warnings);
    }
}

#[test]
fn images_without_a_fixed_version_cause_a_warning() {
    for (image, pinned) in [
        ("registry.example/gluster:11.1", true),
        ("registry.example:5000/gluster@sha256:0123", true),
        ("registry.example:5000/gluster", false),
        ("gluster", false),
        ("gluster:latest", false),
    ] {
        let checked = check(&Pool { image: image.to_owned(), ..values() }).expect("valid values");
        assert_eq!(checked.warnings.is_empty(), pinned, "{image}: {:?}", checked.warnings);
    }
}

/// The record and the key exist before the policy and the pods that refer to them, and are empty.
#[test]
fn the_record_and_the_key_are_installed_empty_before_the_policy() {
    let all = pool(&values());
    let at = |kind: &str| all.iter().position(|m| m.kind() == kind).expect("the object exists");
    assert!(at("ConfigMap") < at("ValidatingAdmissionPolicy") && at("Secret") < at("StatefulSet"));
    assert_eq!((all[at("ConfigMap")].name(), all[at("Secret")].name()), ("glusterfs-pool", "glusterfs-pool-key"));
    assert!(["ConfigMap", "Secret"].iter().all(|kind| all[at(kind)].object.get("data").is_none()));
    let binding = &all[at("ValidatingAdmissionPolicyBinding")].object;
    assert_eq!(binding["spec"]["paramRef"]["parameterNotFoundAction"], "Deny");
    assert_eq!(binding["spec"]["paramRef"]["name"], "glusterfs-pool");
}

#[test]
fn only_the_pools_pods_can_reach_the_agents() {
    let ingress = |of: &Pool| {
        let policy = pool(of).into_iter().find(|m| m.kind() == "NetworkPolicy");
        policy.map(|policy| policy.object["spec"]["ingress"].clone())
    };
    let reaches = |rule: &Value, port: &Value| match rule["ports"].as_array() {
        Some(ports) => ports.iter().any(|p| p["port"] == *port),
        None => true,
    };
    let rules = ingress(&values()).expect("there is a NetworkPolicy");
    let rules = rules.as_array().expect("rules");
    let agents: Vec<&Value> = rules.iter().filter(|rule| reaches(rule, &json!("agent"))).collect();
    assert_eq!(agents.len(), 1, "{rules:?}");
    let own = json!(stead_pool::config_map::labels("glusterfs"));
    assert_eq!(agents[0]["from"], json!([{"podSelector": {"matchLabels": own}}]));
    let clients = rules.iter().find(|rule| rule["ports"].is_array() && reaches(rule, &json!(24007)));
    assert_eq!(clients.and_then(|rule| rule.get("from")), None, "clients may connect from everywhere");
    let closed = ingress(&Pool { allow_clients: Vec::new(), ..values() }).expect("there is a NetworkPolicy");
    assert_eq!(closed.as_array().map(Vec::len), Some(1), "only the pool: {closed}");
    assert_eq!(ingress(&Pool { network: Network::Host, ..values() }), None);
}
