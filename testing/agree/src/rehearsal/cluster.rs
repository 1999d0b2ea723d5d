//! The cluster of a rehearsal, set up on a real control plane with stand-in nodes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use serde_json::{Value, json};
use stead_model::Kind;
use stead_sim::{SimObject, SimType, Simulation};
use stead_testbed::{ClusterSpec, ControlPlane, DriverSpec, NodeSpec};
use stead_whatif::Rehearsal;

/// The nodes and drivers, as the simulated cluster has them at the beginning.
pub(super) fn spec(rehearsal: &Rehearsal, start: &Simulation) -> ClusterSpec {
    let store = start.store();
    let nodes = store.all::<Node>().map(|node| {
        let capacity = node.status.iter().flat_map(|status| status.capacity.iter().flatten());
        let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        NodeSpec {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            capacity: capacity.map(|(name, amount)| (name.clone(), amount.0.clone())).collect(),
            address: addresses.find(|address| address.type_ == "InternalIP").map(|address| address.address.clone()),
        }
    });
    let mut drivers: BTreeMap<String, DriverSpec> = BTreeMap::new();
    for node in store.all::<CSINode>() {
        for driver in &node.spec.drivers {
            let attach = store.get::<CSIDriver>("", &driver.name).and_then(|known| known.spec.attach_required);
            let topology = driver.topology_keys.iter().flatten().next().cloned();
            let name = driver.name.clone();
            let spec = DriverSpec { name: name.clone(), topology, attach: attach.unwrap_or(true), disk: false };
            drivers.insert(name, spec);
        }
    }
    let general = rehearsal.workloads.iter().rfind(|timing| timing.of.is_none());
    let delays = &start.settings().workload;
    let seconds = |chosen: Option<stead_whatif::HumanDuration>, default: jiff::SignedDuration| {
        chosen.map_or(default, |duration| duration.0).as_secs_f64()
    };
    ClusterSpec {
        nodes: nodes.collect(),
        drivers: drivers.into_values().collect(),
        start_seconds: seconds(general.and_then(|timing| timing.start), delays.start),
        ready_seconds: seconds(general.and_then(|timing| timing.ready), delays.ready),
        stop_seconds: seconds(general.and_then(|timing| timing.stop), delays.stop),
        job_seconds: delays.job.as_secs_f64(),
        heartbeat_seconds: 10.0,
        ..ClusterSpec::default()
    }
}

/// Creates what the cluster has besides nodes and drivers: definitions of other kinds, namespaces, and its objects.
pub(super) async fn set_up(plane: &ControlPlane, rehearsal: &Rehearsal, start: &Simulation) -> Result<()> {
    let given = rehearsal.steps.iter().flat_map(|step| &step.objects);
    let definitions: BTreeMap<String, Value> = given.clone().filter_map(definition).collect();
    create(plane, definitions.into_values().collect()).await.context("definitions of kinds")?;
    let mut objects = Vec::new();
    for (_, object) in start.store().iter() {
        let is_made_by_nodes = Node::of(object).is_some()
            || CSINode::of(object).is_some()
            || CSIDriver::of(object).is_some()
            || object.key().kind.name() == "Lease";
        if !is_made_by_nodes && !is_of_every_cluster(object) {
            objects.push(new(object));
        }
    }
    let own =
        given.filter(|object| object["kind"] == "Namespace").filter_map(|object| object["metadata"]["name"].as_str());
    let mut namespaces: BTreeSet<String> =
        objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str().map(str::to_owned)).collect();
    namespaces.insert(rehearsal.namespace().to_owned());
    for name in own {
        namespaces.remove(name);
    }
    for name in namespaces.iter().filter(|name| *name != "default") {
        plane.kubectl(&["create", "namespace", name]).await?.ok()?;
    }
    for name in &namespaces {
        // Pods can be created only when there is a service account.
        let args = ["wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=60s"];
        plane.kubectl(&args).await?.ok()?;
    }
    let (volumes, others): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "PersistentVolume");
    create(plane, volumes).await.context("volumes")?;
    create(plane, others).await.context("objects of the cluster")?;
    for node in start.store().all::<Node>() {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        let patch = json!({
            "metadata": { "annotations": node.metadata.annotations },
            "spec": { "taints": spec.taints, "unschedulable": spec.unschedulable },
        });
        plane.kubectl(&["patch", "node", name, "--type=merge", "-p", &patch.to_string()]).await?.ok()?;
    }
    plane
        .kubectl(&["config", "set-context", "--current", "--namespace", rehearsal.namespace()])
        .await?
        .ok()
        .map(drop)
        .context("the namespace of commands")
}

async fn create(plane: &ControlPlane, objects: Vec<Value>) -> Result<()> {
    if objects.is_empty() {
        return Ok(());
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    plane.kubectl_with(&["create", "-f", "-"], &list.to_string()).await?.ok().map(drop)
}

/// What a new cluster has anyway.
fn is_of_every_cluster(object: &SimObject) -> bool {
    let key = object.key();
    match key.kind.name() {
        "Namespace" => true,
        "ServiceAccount" => &*key.name == "default",
        "PriorityClass" => key.name.starts_with("system-"),
        "ConfigMap" => &*key.name == "kube-root-ca.crt",
        _ => false,
    }
}

/// The object without what an API server adds.
fn new(object: &SimObject) -> Value {
    let mut object = object.to_json();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, value| {
            let is_given = ["name", "namespace", "labels", "annotations", "finalizers"].contains(&name.as_str());
            is_given && !value.is_null()
        });
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// A definition for an object of a kind that Kubernetes does not have, with its name.
fn definition(object: &Value) -> Option<(String, Value)> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (group, version) = version.split_once('/')?;
    // Groups of Kubernetes have no dot, or end with k8s.io.
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return None;
    }
    let singular = kind.to_lowercase();
    let plural = Kind::named(kind).map_or_else(|| plural_of(&singular), |known| known.plural.to_owned());
    let name = format!("{plural}.{group}");
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": name },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": schema }],
        },
    });
    Some((name, definition))
}

fn plural_of(singular: &str) -> String {
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}
