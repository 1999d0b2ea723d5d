//! What a recovery reads.

use std::collections::BTreeSet;

use anyhow::{anyhow, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use stead_client::ApiRequest;
use stead_live::Resource;
use stead_model::{NODE_LEASES, NodeHealth, ObjectKey, Objects, Readiness};
use stead_recovery::{API_VERSION, KIND, NodeRecovery, is_record_of};

use super::Call;
use super::carry_out::is_denied;
use crate::scheduler;

/// The path of the records.
pub(crate) const RECORDS: &str = "/apis/stead.dev/v1alpha1/noderecoveries";

/// A cluster that was read.
pub(super) struct ReadCluster {
    pub(super) objects: Objects,
    /// When the node itself was read.
    pub(super) at: Timestamp,
}

/// The whole cluster, as a plan needs it, and further objects.
pub(super) async fn whole(call: &Call<'_>, node: &str, more: Vec<Value>) -> anyhow::Result<ReadCluster> {
    let mut items = read_all(call, &stead_live::placement()).await?;
    items.extend(more);
    add_node(call, node, items).await
}

/// What a recovery needs after the taint: the nodes, and what is or was on the node.
pub(super) async fn part(call: &Call<'_>, node: &str, record: &NodeRecovery) -> anyhow::Result<ReadCluster> {
    let plan = &record.spec.plan;
    let kept = plan.left_alone.iter().filter_map(|left| left.added_tolerations.as_ref());
    let kept = kept.map(|added| added.namespace.as_str());
    let namespaces: BTreeSet<&str> = plan.pods.iter().map(|pod| pod.namespace.as_str()).chain(kept).collect();
    let wanted = ["Node", "PersistentVolume", "VolumeAttachment", "CSIDriver"];
    let inside = ["Pod", "PersistentVolumeClaim", "StatefulSet", "ReplicaSet", "ReplicationController"];
    let mut resources: Vec<Resource> =
        stead_live::placement().into_iter().filter(|r| wanted.contains(&r.kind)).collect();
    let mut owners: Vec<Resource> = Vec::new();
    for namespace in namespaces {
        let above =
            stead_live::OWNERS.into_iter().map(Resource::from).filter(|r| ["Deployment", "Job"].contains(&r.kind));
        owners.extend(above.map(|r| r.within(namespace)));
        let some = stead_live::placement().into_iter().filter(|r| inside.contains(&r.kind));
        resources.extend(some.map(|r| r.within(namespace)));
    }
    let mut items = read_all(call, &resources).await?;
    // Without permission to read these, only pods of ReplicaSets are followed.
    items.extend(stead_live::read(&call.client, &owners, &|_, _| {}).await?.items);
    let here = call.server.list(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await?;
    items.extend(named(here, "v1", "Pod"));
    add_node(call, node, items).await
}

/// Reads all of these, or fails: a plan that does not know everything would be a guess.
async fn read_all(call: &Call<'_>, resources: &[Resource]) -> anyhow::Result<Vec<Value>> {
    let live = stead_live::read(&call.client, resources, &|_, _| {}).await?;
    match live.warnings.first() {
        None => Ok(live.items),
        Some(warning) => Err(anyhow!("{warning}; a recovery needs it")),
    }
}

/// Reads the Node and its Lease last: every pod that was read then belongs to the boot that the Node reports, or to an
/// earlier one. The records are read before and after that, until both are the same: an annotation that is newer than the
/// record that was read would look as if an earlier recovery had left it behind.
async fn add_node(call: &Call<'_>, node: &str, items: Vec<Value>) -> anyhow::Result<ReadCluster> {
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases/{node}");
    let of_node = |records: &[Value]| -> Vec<Value> {
        records.iter().filter(|record| is_record_of(record, node)).cloned().collect()
    };
    let mut records = call.server.list(RECORDS).await?;
    let (at, read) = loop {
        let at = call.now();
        let read = [call.server.get(&lease).await?, call.server.get(&format!("/api/v1/nodes/{node}")).await?];
        let before = of_node(&records);
        records = call.server.list(RECORDS).await?;
        if of_node(&records) == before {
            break (at, read);
        }
    };
    let mut objects = Objects::from_items(items.into_iter().chain(named(records, API_VERSION, KIND)));
    objects.set_version(call.version);
    scheduler::set(&mut objects, call.scheduler_config.clone())?;
    objects.remove(&ObjectKey::node(node));
    let leases = other_leases(call, node, &objects).await?;
    for item in leases.into_iter().chain(read.into_iter().flatten()) {
        if let Some(key) = ObjectKey::of(&item) {
            objects.insert(key, item);
        }
    }
    Ok(ReadCluster { objects, at })
}

/// The Leases of the other nodes, if most nodes are not Ready: each of these then needs its own evidence that it is off, and
/// its Lease shows whether there was a sign of life since. Without permission to list them there is no such evidence.
async fn other_leases(call: &Call<'_>, node: &str, others: &Objects) -> anyhow::Result<Vec<Value>> {
    let nodes = others.nodes().count();
    let lost = others.nodes().filter(|node| NodeHealth::new(*node, None).readiness != Readiness::Ready).count();
    // The node itself counts, too.
    if lost == 0 || (lost + 1) * 2 <= nodes + 1 {
        return Ok(Vec::new());
    }
    let all = call.server.list(&format!("/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases")).await;
    let all = all.or_else(|error| if is_denied(&error) { Ok(Vec::new()) } else { Err(error) })?;
    let own = ObjectKey::namespaced("Lease", NODE_LEASES, node);
    let leases = named(all, "coordination.k8s.io/v1", "Lease");
    Ok(leases.filter(|lease| ObjectKey::of(lease).is_some_and(|key| key != own)).collect())
}

/// The answer of a kubelet about the pods that it runs.
#[derive(Deserialize)]
struct RunningPods {
    kind: String,
    #[serde(default)]
    items: Option<Vec<RunningPod>>,
}

/// All that is needed of a pod: to read a whole one here would compile its parser a second time.
#[derive(Deserialize)]
struct RunningPod {
    metadata: RunningPodMetadata,
}

#[derive(Deserialize)]
struct RunningPodMetadata {
    uid: Option<String>,
}

/// The UIDs of the pods that the node's kubelet runs, as it reports itself.
pub(super) async fn running(call: &Call<'_>, node: &str) -> anyhow::Result<BTreeSet<String>> {
    let path = format!("/api/v1/nodes/{node}/proxy/runningpods/");
    let answer = call.server.send(ApiRequest::get(&path)).await?;
    // Any other answer does not mean that nothing runs.
    let answer: RunningPods = stead_model::parse(format!("{path}: not a PodList"), &answer)?;
    ensure!(answer.kind == "PodList", "{path}: the answer is not a PodList");
    Ok(answer.items.into_iter().flatten().filter_map(|pod| pod.metadata.uid).collect())
}

/// Objects of a list, which do not have their kind.
pub(super) fn named(items: Vec<Value>, version: &'static str, kind: &'static str) -> impl Iterator<Item = Value> {
    items.into_iter().map(move |mut item| {
        item["apiVersion"] = version.into();
        item["kind"] = kind.into();
        item
    })
}
