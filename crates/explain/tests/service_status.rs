//! The services that use a Topology, as a monitor sees them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_explain::outage::Clock;
use stead_explain::topology::service_status;
use stead_model::{Objects, placement_kinds};

fn object(api_version: &str, kind: &str, name: &str, owner: Option<(&str, &str, &str)>) -> Value {
    let owners: Vec<Value> = owner
        .iter()
        .map(|(version, kind, name)| {
            json!({ "apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true })
        })
        .collect();
    json!({ "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": "openstack", "ownerReferences": owners } })
}

fn pod(name: &str, owner: (&str, &str, &str), node: Option<&str>) -> Value {
    let mut pod = object("v1", "Pod", name, Some(owner));
    pod["spec"] = json!({ "nodeName": node, "containers": [] });
    pod["status"] = match node {
        Some(_) => json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] }),
        None => json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/2 nodes are available", "lastTransitionTime": "2026-01-01T00:00:00Z" }] }),
    };
    pod
}

fn node(name: &str, zone: Option<&str>) -> Value {
    let labels = zone.map_or(json!({}), |zone| json!({ "topology.kubernetes.io/zone": zone }));
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } })
}

fn topology(name: &str, key: &str, finalizers: &[&str]) -> Value {
    json!({ "apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
        "metadata": { "name": name, "namespace": "openstack", "finalizers": finalizers },
        "spec": { "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "service": "cinder" } } }] } })
}

#[test]
fn pods_are_counted_by_service_zone_and_cause() {
    let cinder = ("cinder.openstack.org/v1beta1", "CinderVolume", "cinder-volume-lvm");
    let items = vec![
        node("a", Some("zoneA")),
        node("b", Some("zoneB")),
        node("c", None),
        topology(
            "zones",
            "topology.kubernetes.io/zone",
            &[
                "openstack.org/cindervolume-cinder-volume-lvm",
                "openstack.org/keystoneapi-keystone",
                "foregroundDeletion",
            ],
        ),
        topology("racks", "rack", &["openstack.org/placementapi-placement"]),
        object("apps/v1", "StatefulSet", "cinder-volume-lvm", Some(cinder)),
        pod("cinder-volume-lvm-0", ("apps/v1", "StatefulSet", "cinder-volume-lvm"), Some("a")),
        pod("cinder-volume-lvm-1", ("apps/v1", "StatefulSet", "cinder-volume-lvm"), Some("c")),
        pod("cinder-volume-lvm-2", ("apps/v1", "StatefulSet", "cinder-volume-lvm"), None),
        object("apps/v1", "ReplicaSet", "keystone-5d9c", Some(("apps/v1", "Deployment", "keystone"))),
        pod("keystone-5d9c-x", ("apps/v1", "ReplicaSet", "keystone-5d9c"), Some("b")),
        pod("other-0", ("apps/v1", "StatefulSet", "other"), Some("b")),
    ];
    let objects = Objects::from_items(items);
    let kinds: BTreeSet<String> = placement_kinds().map(|kind| kind.kind.to_owned()).collect();
    let clock = Clock::at("2026-01-01T01:00:00Z".parse().expect("a time"));
    let found: Vec<String> = service_status(&objects, &kinds, &clock)
        .iter()
        .map(|s| format!("{} {} {} {:?} {:?}", s.service, s.topology, s.satisfiable, s.pods_by_zone, s.stuck_pods))
        .collect();
    assert_eq!(
        found,
        [
            "cindervolume openstack/cinder-volume-lvm zones true {\"none\": 1, \"zoneA\": 1} {Unschedulable: 1}",
            "keystoneapi openstack/keystone zones true {\"zoneB\": 1} {}",
            "placementapi openstack/placement racks false {} {}",
        ]
    );
}
