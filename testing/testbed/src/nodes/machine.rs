//! A node: registration, heartbeats and status.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::world::World;
use crate::ClusterSpec;
use crate::spec::{NodeSpec, seconds};

/// The namespace of the kubelets' leases.
const LEASES: &str = "kube-node-lease";

/// Returns the current time in the API server's format.
pub(super) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Creates the CSIDrivers, Nodes and CSINodes.
pub(super) async fn register(client: &Client, spec: &ClusterSpec) -> Result<()> {
    for driver in &spec.drivers {
        let driver = json!({ "metadata": { "name": driver.name }, "spec": { "attachRequired": driver.attach } });
        ensure_exists::<CSIDriver>(client, driver).await?;
    }
    for node in &spec.nodes {
        register_node(client, node, spec).await?;
    }
    Ok(())
}

/// Creates the Node and CSINode, like a kubelet when it starts.
pub(super) async fn register_node(client: &Client, node: &NodeSpec, spec: &ClusterSpec) -> Result<()> {
    ensure_exists::<Node>(client, node_object(node, spec)).await?;
    let api: Api<Node> = Api::all(client.clone());
    let created = api.get(&node.name).await.with_context(|| format!("node {}", node.name))?;
    let drivers = csi_node(node, spec, &created);
    // A CSINode left from an earlier Node of the same name would be garbage-collected: it gets the new Node as owner,
    // or is created again if it was deleted meanwhile.
    let api: Api<CSINode> = Api::all(client.clone());
    loop {
        ensure_exists::<CSINode>(client, drivers.clone()).await?;
        match api.patch(&node.name, &PatchParams::default(), &Patch::Merge(&drivers)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            patched => return patched.map(drop).with_context(|| format!("the drivers of node {}", node.name)),
        }
    }
}

/// The owner reference that deletes an object with its Node.
fn owned_by(node: &Node) -> Value {
    json!([{ "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid() }])
}

fn node_object(node: &NodeSpec, spec: &ClusterSpec) -> Value {
    let mut labels = node.labels.clone();
    for (key, value) in
        [("kubernetes.io/hostname", node.name.as_str()), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")]
    {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    // Without this annotation the attach/detach controller ignores the node.
    let annotations = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    let index = spec.nodes.iter().position(|n| n.name == node.name).unwrap_or_default() + 1;
    let id = spec.cloud.as_ref().map(|cloud| format!("{cloud}:///{index:08x}-0000-4000-8000-000000000000"));
    json!({
        "metadata": { "name": node.name, "labels": labels, "annotations": annotations }, "spec": { "providerID": id },
    })
}

fn csi_node(node: &NodeSpec, spec: &ClusterSpec, owner: &Node) -> Value {
    let drivers: Vec<Value> = spec
        .drivers
        .iter()
        .map(|d| json!({ "name": d.name, "nodeID": node.name, "topologyKeys": d.topology.iter().collect::<Vec<_>>() }))
        .collect();
    json!({ "metadata": { "name": node.name, "ownerReferences": owned_by(owner) }, "spec": { "drivers": drivers } })
}

/// Creates an object if it does not exist.
async fn ensure_exists<K>(client: &Client, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let object: K = serde_json::from_value(object).context("invalid object")?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(e) => Err(e).with_context(|| format!("creating {} {}", K::kind(&()), object.name_any())),
    }
}

/// Renews the node's lease periodically. It does nothing else, so that nothing delays it.
pub(super) async fn renew_lease(client: Client, world: Arc<World>, name: String) {
    let leases: Api<Lease> = Api::namespaced(client, LEASES);
    let mut tick = tokio::time::interval(seconds(world.spec.heartbeat_seconds).max(Duration::from_millis(100)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        world.wait_until_reachable(&name).await;
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        // A kubelet renews its lease four times per lease duration.
        let duration = (4.0 * world.spec.heartbeat_seconds).ceil() as u32;
        let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": time });
        let patch = Patch::Merge(json!({ "spec": spec }));
        if let Err(kube::Error::Api(status)) = leases.patch(&name, &PatchParams::default(), &patch).await
            && status.code == 404
            // Like a kubelet: no lease without a Node.
            && let Some(node) = world.node(&name)
        {
            let meta = json!({ "name": name, "namespace": LEASES, "ownerReferences": owned_by(&node) });
            let lease = json!({ "metadata": meta, "spec": spec });
            if let Ok(lease) = serde_json::from_value(lease) {
                // A failure is retried in the next period.
                let _ = leases.create(&PostParams::default(), &lease).await;
            }
        }
    }
}

/// Writes the node's status whenever the API server has a different one.
pub(super) async fn report_status(world: Arc<World>, name: String) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut changed = world.changed();
    let Some(spec) = world.spec.nodes.iter().find(|node| node.name == name) else { return };
    loop {
        world.wait_until_reachable(&name).await;
        changed.mark_unchanged();
        let (in_use, known) = world.in_use.to_report(&name);
        let up_to_date = world.node(&name).is_some_and(|node| {
            known
                && is_ready(&node)
                && node.status.as_ref().and_then(|s| Some(&s.node_info.as_ref()?.boot_id))
                    == Some(&world.boot_id(&name))
                && node.status.as_ref().and_then(|s| s.volumes_in_use.as_deref()).unwrap_or_default() == in_use
        });
        if !up_to_date {
            let patch = Patch::Strategic(json!({ "status": status(&world, spec, &in_use) }));
            if nodes.patch_status(&name, &PatchParams::default(), &patch).await.is_ok() {
                world.set_reported_in_use(&name, in_use);
            }
            // Give the watch time to deliver the write before the next comparison.
            tokio::time::sleep(Duration::from_millis(100)).await;
        } else if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Whether a node is Ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn status(world: &World, node: &NodeSpec, in_use: &[String]) -> Value {
    let mut capacity = json!({ "cpu": "16", "memory": "64Gi", "pods": "110" });
    for (name, quantity) in &node.capacity {
        capacity[name] = json!(quantity);
    }
    let time = now();
    let mut status = json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            { "type": "InternalIP", "address": world.node_address(&node.name) },
            { "type": "Hostname", "address": node.name },
        ],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        }],
        "nodeInfo": {
            "kubeletVersion": world.spec.version, "architecture": "amd64", "operatingSystem": "linux",
            "containerRuntimeVersion": "stand-in://1", "bootID": world.boot_id(&node.name), "machineID": "", "systemUUID": "",
            "kernelVersion": "", "osImage": "", "kubeProxyVersion": "",
        },
        "volumesInUse": in_use,
    });
    if let Some(kubelet) = world.kubelets.get(&node.name) {
        status["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": kubelet.port() } });
        if let Some(addresses) = status["addresses"].as_array_mut().filter(|_| kubelet.ip().is_loopback()) {
            addresses.push(json!({ "type": "ExternalIP", "address": "127.0.0.1" }));
        }
        status["declaredFeatures"] = json!(["ExtendWebSocketsToKubelet"]);
    }
    status
}
