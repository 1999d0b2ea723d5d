//! Who uses a Topology, for services of every kind; the known defects of their operators; a whole control plane.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_explain::{control_plane, topology};
use stead_model::{ALL_OPENSTACK_KINDS, ObjectKey, Objects, Topology};

const NS: &str = "openstack";

fn group(kind: &str) -> &'static str {
    match kind {
        "OpenStackControlPlane" => "core.openstack.org/v1beta1",
        "Topology" => "topology.openstack.org/v1beta1",
        "RabbitmqCluster" => "rabbitmq.com/v1beta1",
        "StatefulSet" | "Deployment" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "Pod" | "Node" | "PersistentVolumeClaim" | "PersistentVolume" => "v1",
        _ => "service.openstack.org/v1beta1",
    }
}

/// An object; `owner` is `KIND/NAME`, or empty.
fn object(kind: &str, name: &str, owner: &str, spec: Value) -> Value {
    let owners = match owner.split_once('/') {
        Some((kind, name)) => {
            json!([{ "apiVersion": group(kind), "kind": kind, "name": name, "uid": "u", "controller": true }])
        }
        None => json!([]),
    };
    json!({ "apiVersion": group(kind), "kind": kind, "spec": spec,
        "metadata": { "name": name, "namespace": NS, "ownerReferences": owners } })
}

fn workload(kind: &str, name: &str, owner: &str, replicas: u64, labels: Value, pod: Value) -> Value {
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    object(
        kind,
        name,
        owner,
        json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template }),
    )
}

fn pod(name: &str, owner: &str, node: &str, labels: Value, spec: Value) -> Value {
    let mut pod = object("Pod", name, owner, spec);
    pod["metadata"]["labels"] = labels;
    if node.is_empty() {
        pod["status"] = json!({ "phase": "Pending" });
    } else {
        pod["spec"]["nodeName"] = node.into();
        pod["status"] = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    }
    pod
}

fn node(name: &str, zone: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "pods": "100", "cpu": "8" }, "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn rule() -> Value {
    json!({ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway" })
}

fn topology_object(finalizers: Value) -> Value {
    let mut topology = object("Topology", "spread", "", json!({ "topologySpreadConstraints": [rule()] }));
    topology["metadata"]["finalizers"] = finalizers;
    topology
}

fn to(name: &str) -> Value {
    json!({ "name": name })
}

/// A control plane with some of its services. RabbitMQ is as in the first releases, with a RabbitmqCluster between.
fn items() -> Vec<Value> {
    let mut rule = rule();
    rule["labelSelector"] = json!({ "matchLabels": { "service": "cinder" } });
    let volume = json!({ "topologySpreadConstraints": [rule] });
    let plane = json!({
        "topologyRef": to("spread"),
        "cinder": { "enabled": true, "template": { "cinderVolumes": { "lvm": { "topologyRef": to("pinned") } } } },
        "galera": { "enabled": true, "templates": { "openstack": {} } },
        "nova": { "enabled": true, "template": { "cellTemplates": { "cell1": { "topologyRef": to("pinned") } } } },
        "rabbitmq": { "enabled": true, "templates": { "rabbitmq": {} } },
        "heat": { "enabled": true },
    });
    let mut items = vec![
        node("a", "z1"),
        node("b", "z2"),
        topology_object(json!([
            "openstack.org/galera-openstack",
            "openstack.org/cindervolume-cinder-volume-old",
            "openstack.org/glance"
        ])),
        object("OpenStackControlPlane", "cp", "", plane),
        object(
            "Cinder",
            "cinder",
            "OpenStackControlPlane/cp",
            json!({ "topologyRef": to("spread"), "cinderVolumes": { "lvm": { "topologyRef": to("pinned") } } }),
        ),
        object("CinderAPI", "cinder-api", "Cinder/cinder", json!({ "topologyRef": to("spread") })),
        object("CinderBackup", "cinder-backup", "Cinder/cinder", json!({})),
        object("CinderVolume", "cinder-volume-lvm", "Cinder/cinder", json!({ "topologyRef": to("pinned") })),
        workload(
            "StatefulSet",
            "cinder-api",
            "CinderAPI/cinder-api",
            2,
            json!({ "service": "cinder" }),
            volume.clone(),
        ),
        pod("cinder-api-0", "StatefulSet/cinder-api", "a", json!({ "service": "cinder" }), volume),
        pod("cinder-api-1", "StatefulSet/cinder-api", "", json!({ "service": "cinder" }), json!({})),
        object("Galera", "openstack", "OpenStackControlPlane/cp", json!({ "topologyRef": to("spread") })),
        workload("StatefulSet", "openstack-galera", "Galera/openstack", 1, json!({ "app": "galera" }), json!({})),
        pod(
            "openstack-galera-0",
            "StatefulSet/openstack-galera",
            "b",
            json!({ "app": "galera" }),
            json!({ "volumes": [{ "name": "db", "persistentVolumeClaim": { "claimName": "mysql-db-openstack-galera-0" } }] }),
        ),
        object("PersistentVolumeClaim", "mysql-db-openstack-galera-0", "", json!({ "volumeName": "pv-1" })),
        object("RabbitMq", "rabbitmq", "OpenStackControlPlane/cp", json!({ "topologyRef": to("spread") })),
        object("RabbitmqCluster", "rabbitmq", "RabbitMq/rabbitmq", json!({ "topologyRef": to("spread") })),
        workload("StatefulSet", "rabbitmq-server", "RabbitmqCluster/rabbitmq", 1, json!({ "app": "r" }), json!({})),
        pod("rabbitmq-server-0", "StatefulSet/rabbitmq-server", "a", json!({ "app": "r" }), json!({})),
        object("Nova", "nova", "OpenStackControlPlane/cp", json!({ "topologyRef": to("spread") })),
        object("NovaCell", "nova-cell1", "Nova/nova", json!({ "topologyRef": to("pinned") })),
        object("NovaConductor", "nova-cell1-conductor", "NovaCell/nova-cell1", json!({ "topologyRef": to("pinned") })),
        // Not part of the control plane, with a Deployment.
        object("InstanceHa", "ha", "", json!({ "topologyRef": to("spread") })),
        workload(
            "Deployment",
            "ha",
            "InstanceHa/ha",
            1,
            json!({ "service": "ha" }),
            json!({ "topologySpreadConstraints": [rule_with("ha")] }),
        ),
        workload("ReplicaSet", "ha-5d", "Deployment/ha", 1, json!({ "service": "ha" }), json!({})),
        pod(
            "ha-5d-x",
            "ReplicaSet/ha-5d",
            "b",
            json!({ "service": "ha" }),
            json!({ "topologySpreadConstraints": [rule_with("ha")] }),
        ),
        // Of another project.
        json!({ "apiVersion": "example.org/v1", "kind": "Stranger", "metadata": { "name": "x", "namespace": NS }, "spec": { "topologyRef": to("spread") } }),
    ];
    items.push(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" }, "spec": { "nodeAffinity": {
        "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"] }] }] } } } }));
    items
}

fn rule_with(service: &str) -> Value {
    let mut rule = rule();
    rule["labelSelector"] = json!({ "matchLabels": { "service": service } });
    rule
}

/// The kinds of the items, and that all kinds of OpenStack were read.
fn kinds(items: &[Value]) -> BTreeSet<String> {
    let kinds = items.iter().filter_map(|item| item["kind"].as_str()).map(str::to_owned);
    kinds.chain([ALL_OPENSTACK_KINDS.to_owned(), "DaemonSet".into()]).collect()
}

fn check_topology(name: &str, items: Vec<Value>, expect: Expect) {
    let kinds = kinds(&items);
    let key = ObjectKey::new("Topology", NS, name);
    let explained = topology::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read");
    expect.assert_eq(&topology::render(&explained));
}

#[test]
fn users_of_every_kind_are_found() {
    check_topology(
        "spread",
        items(),
        expect![[r#"
            topology openstack/spread: used by 4 services with 5 pods: 4 ready

            Rules
              - pods are spread over the values of the node label topology.kubernetes.io/zone: none may have
                more than 1 pod more than the value with the fewest (maxSkew); a pod that would violate this is
                scheduled anyway (ScheduleAnyway); the pods of each consumer are counted separately (no
                labelSelector)

            Used by
              CinderAPI cinder-api, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef
                - cinder-api-1 was created before these rules and not replaced yet
                POD            NODE   ZONE   STATE
                cinder-api-0   a      z1     Ready
                cinder-api-1   -      -      Pending, but 2 of 2 nodes can run it now, best b: the scheduler has not tried again yet, or these objects are newer than its last attempt
              Galera openstack, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef
                - StatefulSet openstack-galera does not have these rules yet
                POD                  NODE   ZONE   STATE
                openstack-galera-0   b      z2     Ready
              InstanceHa ha, its own: InstanceHa ha, spec.topologyRef
                POD       NODE   ZONE   STATE
                ha-5d-x   b      z2     Ready
              RabbitMq rabbitmq, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef
                - StatefulSet rabbitmq-server does not have these rules yet
                POD                 NODE   ZONE   STATE
                rabbitmq-server-0   a      z1     Ready

            Known defects of the OpenStack operators
              - finalizer openstack.org/cindervolume-cinder-volume-old was left behind: CinderVolume
                cinder-volume-old does not exist; a known defect of its operator leaves such finalizers behind.
                The Topology cannot be deleted until somebody removes the finalizer (LeakedFinalizer)

            Pods per value of the spread label
              topology.kubernetes.io/zone, pods of CinderAPI cinder-api: z1 1, z2 0; the difference is 1, at
                most 1 is allowed
              topology.kubernetes.io/zone, pods of Galera openstack: z1 0, z2 1; the difference is 1, at most 1
                is allowed
              topology.kubernetes.io/zone, pods of InstanceHa ha: z1 0, z2 1; the difference is 1, at most 1 is
                allowed
              topology.kubernetes.io/zone, pods of RabbitMq rabbitmq: z1 1, z2 0; the difference is 1, at most 1
                is allowed
        "#]],
    );
    check_topology(
        "pinned",
        items(),
        expect![[r#"
            topology openstack/pinned: does not exist; everything that refers to it waits for it; namespace
              openstack has spread

            Used by
              CinderVolume cinder-volume-lvm, its own: OpenStackControlPlane cp,
                spec.cinder.template.cinderVolumes.lvm.topologyRef
                - CinderVolume cinder-volume-lvm has no workload yet
              NovaConductor nova-cell1-conductor, inherited from NovaCell: OpenStackControlPlane cp,
                spec.nova.template.cellTemplates.cell1.topologyRef
                - NovaConductor nova-cell1-conductor has no workload yet

            Other references
              NovaCell nova-cell1, spec.topologyRef
        "#]],
    );
}

#[test]
fn a_control_plane() {
    let items = items();
    let kinds = kinds(&items);
    let key = ObjectKey::new("OpenStackControlPlane", NS, "cp");
    let explained = control_plane::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read");
    expect![[r#"
        openstackcontrolplane openstack/cp: 4 of 6 services are not healthy: 3 of 4 pods are ready; 1 pod
          has no node; nothing has been created for heat

        cinder
          CinderAPI cinder-api: 1/2 ready; pods: z1 1; 1 without a node
            Topology spread, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef
          CinderBackup cinder-backup: 0/0 ready
            no Topology
            - it has no workload yet
          CinderVolume cinder-volume-lvm: 0/0 ready
            Topology pinned, its own: OpenStackControlPlane cp,
              spec.cinder.template.cinderVolumes.lvm.topologyRef
            - Topology pinned does not exist: namespace openstack has spread
            - it has no workload yet

        galera
          Galera openstack: 1/1 ready; pods: z2 1; volumes: z2 1
            Topology spread, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef

        heat
          enabled, nothing has been created for it

        nova
          NovaConductor nova-cell1-conductor: 0/0 ready
            Topology pinned, inherited from NovaCell: OpenStackControlPlane cp,
              spec.nova.template.cellTemplates.cell1.topologyRef
            - Topology pinned does not exist: namespace openstack has spread
            - it has no workload yet

        rabbitmq
          RabbitMq rabbitmq: 1/1 ready; pods: z1 1
            Topology spread, inherited from the control plane: OpenStackControlPlane cp, spec.topologyRef

        Known defects of the OpenStack operators
          - CinderBackup cinder-backup does not inherit the Topology of its Cinder: set topologyRef in
            cinderBackup or cinderBackups (NotInherited)
    "#]]
    .assert_eq(&control_plane::render(&explained.expect("it is there")));
}

#[test]
fn a_topology_that_does_not_exist_is_reported_once() {
    let mut user = object("CinderAPI", "api", "", json!({ "topologyRef": to("spread") }));
    user["status"] = json!({ "conditions": [{ "type": "TopologyReady", "status": "False", "message": "the reason" }] });
    check_topology(
        "spread",
        vec![user.clone()],
        expect![[r#"
            topology openstack/spread: does not exist; everything that refers to it waits for it; namespace
              openstack has no Topology

            Used by
              CinderAPI api, its own: CinderAPI api, spec.topologyRef
                - CinderAPI api has no workload yet

            note: no Topology, OpenStackControlPlane, StatefulSet, Pod were read: some consumers may be missing
        "#]],
    );
    check_topology(
        "spread",
        vec![user, topology_object(json!([]))],
        expect![[r#"
            topology openstack/spread: used by CinderAPI api

            Rules
              - pods are spread over the values of the node label topology.kubernetes.io/zone: none may have
                more than 1 pod more than the value with the fewest (maxSkew); a pod that would violate this is
                scheduled anyway (ScheduleAnyway); the pods of each consumer are counted separately (no
                labelSelector)

            Used by
              CinderAPI api, its own: CinderAPI api, spec.topologyRef
                - CinderAPI api cannot apply it (TopologyReady is False): the reason
                - CinderAPI api has no workload yet

            note: no OpenStackControlPlane, StatefulSet, Pod were read: some consumers may be missing
        "#]],
    );
}

#[test]
fn what_an_operator_still_applies_is_a_use() {
    let mut api = object("CinderAPI", "cinder-api", "", json!({}));
    api["status"] = json!({ "lastAppliedTopology": { "name": "spread", "namespace": NS } });
    let objects = Objects::from_items([api, object("Cinder", "cinder", "", json!({ "topologyRef": to("spread") }))]);
    let users = topology::users(&objects, &ObjectKey::new("Topology", NS, "spread"));
    let found: Vec<_> = users.iter().map(|user| (user.key.to_string(), user.wants, user.applied)).collect();
    assert_eq!(found, [("cinderapi openstack/cinder-api".to_owned(), false, true)]);
}

#[test]
fn a_topology_that_no_node_satisfies_names_its_users_and_their_pods() {
    let mut items = items();
    let at = items.iter().position(|item| item["kind"] == "Topology").expect("it is there");
    items[at]["spec"]["topologySpreadConstraints"][0] =
        json!({ "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule" });
    let found = topology::unsatisfiable(&Objects::from_items(items), None);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].users.len(), 4, "{:?}", found[0].users);
    assert_eq!(found[0].pods.iter().map(ToString::to_string).collect::<Vec<_>>(), ["pod openstack/cinder-api-1"]);
    assert!(topology::unsatisfiable(&Objects::from_items(self::items()), Some(NS)).is_empty());
}

#[test]
fn a_finalizer_is_left_behind_only_if_its_kind_was_read() {
    let read = |item: Value| serde_json::from_value::<Topology>(item).expect("a Topology");
    let topology = read(topology_object(json!([
        "openstack.org/manilashare-manila-share-nfs",
        "openstack.org/memcached-memcached",
        "openstack.org/transport-secret-protection"
    ])));
    let objects = Objects::from_items([object("Memcached", "memcached", "", json!({}))]);
    let states = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let holders = topology::holders(&objects, &topology, &kinds);
        holders.into_iter().map(|holder| (holder.kind, holder.state)).collect::<Vec<_>>()
    };
    use topology::HolderState::{Exists, Gone, NotRead};
    let memcached = ("Memcached".to_owned(), Exists);
    assert_eq!(states(&[]), [("ManilaShare".to_owned(), NotRead), memcached.clone()]);
    assert_eq!(states(&["ManilaShare"]), [("ManilaShare".to_owned(), Gone), memcached.clone()]);
    assert_eq!(states(&[ALL_OPENSTACK_KINDS]), [("ManilaShare".to_owned(), Gone), memcached]);
}

/// The defects that are reported for one object with pods: by `explain topology` where it follows one, otherwise by
/// `explain oscp`.
fn defects(mut user: Value, others: Vec<Value>, spec: Option<Value>) -> Vec<&'static str> {
    let owner = json!([{ "apiVersion": group("OpenStackControlPlane"), "kind": "OpenStackControlPlane", "name": "cp", "uid": "u", "controller": true }]);
    if user["metadata"]["ownerReferences"] == json!([]) {
        user["metadata"]["ownerReferences"] = owner;
    }
    let mut items = vec![node("a", "z1"), object("OpenStackControlPlane", "cp", "", json!({}))];
    if let Some(spec) = spec {
        user["spec"]["topologyRef"] = to("t");
        items.push(object("Topology", "t", "", spec));
    }
    items.push(user);
    items.extend(others);
    let kinds = kinds(&items);
    let key = ObjectKey::new("OpenStackControlPlane", NS, "cp");
    let explained = control_plane::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read");
    let explained = explained.expect("it is there");
    explained.upstream.iter().map(|finding| finding.defect.as_str()).collect()
}

#[test]
fn known_defects_are_named_where_they_apply() {
    let open = || Some(json!({ "topologySpreadConstraints": [rule()] }));
    let closed = || Some(json!({ "topologySpreadConstraints": [rule_with("x")] }));
    let affinity = || Some(json!({ "affinity": { "nodeAffinity": {} } }));
    let user = |kind: &str, name: &str, spec: Value| object(kind, name, "", spec);
    let none: [&str; 0] = [];
    for kind in ["WatcherApplier", "WatcherDecisionEngine"] {
        assert_eq!(defects(user(kind, "w", json!({})), vec![], open()), ["ForeignSelector"]);
        assert_eq!(defects(user(kind, "w", json!({})), vec![], closed()), none);
    }
    assert_eq!(defects(user("OVNController", "o", json!({})), vec![], open()), ["ForeignSelector", "SpreadIgnored"]);
    assert_eq!(defects(user("OVNController", "o", json!({})), vec![], affinity()), none);
    assert_eq!(defects(user("DesignateBackendbind9", "b", json!({})), vec![], affinity()), ["AffinityLost"]);
    assert_eq!(defects(user("DesignateBackendbind9", "b", json!({})), vec![], open()), none);
    let selector = json!({ "nodeSelector": { "a": "b" } });
    let amphora = |spec: Value| user("OctaviaAmphoraController", "octavia-worker", spec);
    assert_eq!(defects(amphora(selector.clone()), vec![], open()), ["NodeSelectorIgnored"]);
    assert_eq!(defects(amphora(selector), vec![], None), none);
    assert_eq!(defects(amphora(json!({})), vec![], open()), none);
    for kind in ["CinderBackup", "OctaviaAPI", "DNSMasq"] {
        let sibling = object(kind, "second", "", json!({}));
        assert_eq!(
            defects(user(kind, "first", json!({})), vec![sibling.clone()], open()),
            ["SharedSelector"],
            "{kind}"
        );
        assert_eq!(defects(user(kind, "first", json!({})), vec![], open()), none, "{kind}");
        assert_eq!(defects(user(kind, "first", json!({})), vec![sibling], closed()), none, "{kind}");
    }
    for kind in ["OctaviaAPI", "DesignateAPI", "DesignateUnbound", "NovaConductor", "NovaNoVNCProxy", "NovaCompute"] {
        assert_eq!(defects(user(kind, "x", json!({})), vec![], None), ["AntiAffinityDead"], "{kind}");
        assert_eq!(defects(user(kind, "x", json!({})), vec![], closed()), none, "{kind}");
    }
    for (kind, name, spec, expected) in [
        ("NovaMetadata", "nova-metadata", json!({}), false),
        ("NovaMetadata", "nova-cell1-metadata", json!({ "cellName": "cell1" }), true),
        ("Redis", "redis", json!({}), false),
        ("Redis", "other", json!({}), true),
        ("KeystoneAPI", "keystone", json!({}), false),
    ] {
        let expected: &[&str] = if expected { &["AntiAffinityDead"] } else { &[] };
        assert_eq!(defects(user(kind, name, spec), vec![], None), expected, "{kind} {name}");
    }
    // An operator that was corrected: the anti-affinity of the template matches the template's own labels.
    let anti = json!({ "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100,
        "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "service": "x" } } } }] } } });
    let corrected = workload("StatefulSet", "x", "NovaConductor/x", 1, json!({ "service": "x" }), anti);
    assert_eq!(defects(user("NovaConductor", "x", json!({})), vec![corrected], None), none);
    let cinder = |spec: Value| object("Cinder", "cinder", "OpenStackControlPlane/cp", spec);
    let backup = || object("CinderBackup", "cinder-backup", "Cinder/cinder", json!({}));
    assert_eq!(defects(backup(), vec![cinder(json!({ "topologyRef": to("t") }))], None), ["NotInherited"]);
    assert_eq!(defects(backup(), vec![cinder(json!({}))], None), none);
    assert_eq!(defects(user("KeystoneAPI", "k", json!({ "topologyRef": {} })), vec![], None), ["EmptyReference"]);
    let long = "v".repeat(60);
    let mut volume = user("CinderVolume", &long, json!({}));
    assert_eq!(defects(volume.clone(), vec![], closed()), none);
    volume["status"] = json!({ "conditions": [{ "type": "TopologyReady", "status": "False", "message": "m" }] });
    assert_eq!(defects(volume, vec![], closed()), ["FinalizerTooLong"]);
}
