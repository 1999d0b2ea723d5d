//! A Glance with a Topology on three nodes in three zones.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use stead_loops::LoopSettings;
use stead_model::Kind;
use stead_sim::{
    Choices, Happening, MachineSpec, ObjectKind, Operator, Settings, SimKey, SimObject, Simulation, Write,
};
use stead_whatif::SteadOperator;

/// The namespace of everything.
const NAMESPACE: &str = "openstack";

fn operator() -> SteadOperator {
    SteadOperator::new(LoopSettings {
        replace_default_anti_affinity: false,
        glance_image: "registry.test/glance-api:1".into(),
        cluster_domain: "cluster.local".into(),
    })
}

/// The cluster with what Glance needs, and an operator; none of Glance's objects yet.
fn cluster(seed: u64, operator: Box<dyn Operator>) -> Simulation {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut simulation = Simulation::new(start, Settings::default(), Choices::seeded(seed));
    for (name, zone) in [("a", "zone-a"), ("b", "zone-b"), ("c", "zone-c")] {
        let machine = MachineSpec::named(name).with_label("topology.kubernetes.io/zone", zone);
        simulation.add_machine(machine.with_driver("disks.test", &[])).unwrap();
    }
    simulation.add_operator(operator);
    let service = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "ports": [{ "port": 80 }] } })
    };
    let default_class = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    for object in [
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "disks.test" },
            "spec": { "attachRequired": true } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "disks.test",
            "metadata": { "name": "disks", "annotations": default_class } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "osp-secret", "namespace": NAMESPACE },
            "data": { "GlancePassword": "MTIzNDU2Nzg=", "GlanceDatabasePassword": "MTIzNDU2Nzg=" } }),
        service("openstack"),
        service("keystone-internal"),
        service("memcached"),
    ] {
        create(&mut simulation, &object);
    }
    simulation
}

fn create(simulation: &mut Simulation, object: &Value) {
    simulation.request(Write::Create(SimObject::from_json(object).unwrap())).unwrap();
}

/// Creates the Topology and the Glance.
fn create_glance(simulation: &mut Simulation, replicas: usize) {
    let constraint = json!({ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "service": "glance" } } });
    create(
        simulation,
        &json!({ "apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
        "metadata": { "name": "spread", "namespace": NAMESPACE },
        "spec": { "topologySpreadConstraints": [constraint] } }),
    );
    create(
        simulation,
        &json!({ "apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance",
        "metadata": { "name": "glance", "namespace": NAMESPACE },
        "spec": { "databaseInstance": "openstack", "secret": "osp-secret", "topologyRef": { "name": "spread" },
            "storage": { "storageRequest": "10G" },
            "glanceAPIs": { "default": { "type": "single", "replicas": replicas } } } }),
    );
}

fn kind(name: &str) -> ObjectKind {
    ObjectKind::of(Kind::named(name).unwrap())
}

/// The zones of the Ready pods of Glance's API, by pod.
fn ready_pods(simulation: &Simulation) -> BTreeMap<String, String> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let of_api = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "StatefulSet");
    let pods = simulation.store().all_in::<Pod>(NAMESPACE).filter(|pod| of_api(pod) && is_ready(pod));
    let name_and_node = |pod: &Pod| (pod.metadata.name.clone().unwrap(), pod.spec.clone().unwrap().node_name.unwrap());
    pods.map(|pod| name_and_node(pod)).collect()
}

/// The status of a condition of Glance, and its message.
fn ready(simulation: &Simulation) -> (String, String) {
    let key = SimKey::new(kind("Glance"), NAMESPACE, "glance");
    let glance = simulation.store().object(&key).map(SimObject::to_json).unwrap_or_default();
    let conditions = glance["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

#[test]
fn a_glance_becomes_ready_and_its_pods_are_spread_by_its_topology() {
    let mut simulation = cluster(1, Box::new(operator()));
    create_glance(&mut simulation, 3);
    simulation.run_for(SignedDuration::from_mins(3)).unwrap();
    assert_eq!(ready(&simulation).0, "True", "{:?}", ready(&simulation));
    let pods = ready_pods(&simulation);
    let mut nodes: Vec<&String> = pods.values().collect();
    nodes.sort();
    assert_eq!(nodes, ["a", "b", "c"], "{pods:?}");
}

#[test]
fn an_operator_with_nothing_to_do_writes_nothing() {
    let mut simulation = cluster(2, Box::new(operator()));
    create_glance(&mut simulation, 2);
    simulation.run_for(SignedDuration::from_mins(3)).unwrap();
    simulation.follow();
    let before = simulation.steps();
    simulation.run_for(SignedDuration::from_mins(30)).unwrap();
    let ours = ["Glance", "GlanceAPI", "Topology", "StatefulSet", "Service", "Secret", "CronJob"];
    let changed: Vec<String> = simulation
        .take_journal()
        .into_iter()
        .filter_map(|(_, happening)| match happening {
            Happening::Changed(change) if ours.contains(&change.key.kind.name()) => Some(change.key.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(changed, [""; 0]);
    assert!(simulation.steps() - before < 1_000, "{} steps", simulation.steps() - before);
}
