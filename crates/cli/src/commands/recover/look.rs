//! What a recovery looks at.

use std::collections::BTreeSet;

use anyhow::{anyhow, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_client::ApiRequest;
use stead_live::Resource;
use stead_model::Objects;
use stead_recovery::NodeRecovery;

use super::Desk;
use super::carry_out::is_denied;

/// Where the records are.
pub(crate) const RECORDS: &str = "/apis/stead.dev/v1alpha1/noderecoveries";

/// What was read.
pub(super) struct Seen {
    pub(super) objects: Objects,
    /// When the node itself was.
    pub(super) at: Timestamp,
}

/// The whole cluster, as a plan needs it, and more that is known already.
pub(super) async fn whole(desk: &Desk<'_>, node: &str, more: Vec<Value>) -> anyhow::Result<Seen> {
    let live = stead_live::read(&desk.client, &stead_live::placement(), &|_, _| {}).await?;
    // A plan that does not know all of it would be a guess about what is safe.
    if let Some(warning) = live.warnings.first() {
        return Err(anyhow!("{warning}; a recovery needs to know"));
    }
    let mut items = live.items;
    items.extend(more);
    last(desk, node, items).await
}

/// What a recovery that is under way needs: the nodes, and what is or was on the one in question.
pub(super) async fn part(desk: &Desk<'_>, node: &str, record: &NodeRecovery) -> anyhow::Result<Seen> {
    let plan = &record.spec.plan;
    let shielded = plan.left_alone.iter().filter_map(|l| l.shield.as_ref()).map(|s| s.namespace.as_str());
    let namespaces: BTreeSet<&str> = plan.pods.iter().map(|p| p.namespace.as_str()).chain(shielded).collect();
    let wanted = ["Node", "PersistentVolume", "VolumeAttachment", "CSIDriver"];
    let inside = ["Pod", "PersistentVolumeClaim", "StatefulSet", "ReplicaSet", "ReplicationController"];
    let mut resources: Vec<Resource> =
        stead_live::placement().into_iter().filter(|r| wanted.contains(&r.kind)).collect();
    let mut makers: Vec<Resource> = Vec::new();
    for namespace in namespaces {
        let above =
            stead_live::OWNERS.into_iter().map(Resource::from).filter(|r| ["Deployment", "Job"].contains(&r.kind));
        makers.extend(above.map(|r| r.within(namespace)));
        let some = stead_live::placement().into_iter().filter(|r| inside.contains(&r.kind));
        resources.extend(some.map(|r| r.within(namespace)));
    }
    let live = stead_live::read(&desk.client, &resources, &|_, _| {}).await?;
    if let Some(warning) = live.warnings.first() {
        return Err(anyhow!("{warning}; a recovery needs to know"));
    }
    let mut items = live.items;
    // Who may not read these is told of the ReplicaSets' pods alone.
    items.extend(stead_live::read(&desk.client, &makers, &|_, _| {}).await?.items);
    let here = desk.server.list(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await?;
    items.extend(named(here, "v1", "Pod"));
    last(desk, node, items).await
}

/// The Node and its Lease come last: a pod that was seen is then of the life that the Node has, or of one before it. The
/// records are read before them and after them, until both are the same: a mark that is younger than the record that was
/// read would look like one that a former recovery has left behind.
async fn last(desk: &Desk<'_>, node: &str, mut items: Vec<Value>) -> anyhow::Result<Seen> {
    items.retain(|item| item["kind"] != "Node" || item["metadata"]["name"] != node);
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
    let ours = |records: &[Value]| -> Vec<Value> {
        records.iter().filter(|r| r["spec"]["node"]["name"] == node).cloned().collect()
    };
    let mut records = desk.server.list(RECORDS).await?;
    let (at, read) = loop {
        let at = desk.now();
        let read = [desk.server.get(&lease).await?, desk.server.get(&format!("/api/v1/nodes/{node}")).await?];
        let before = ours(&records);
        records = desk.server.list(RECORDS).await?;
        if ours(&records) == before {
            break (at, read);
        }
    };
    items.extend(named(records, "stead.dev/v1alpha1", "NodeRecovery"));
    let leases = other_leases(desk, node, &items).await?;
    items.extend(leases);
    items.extend(read.into_iter().flatten());
    Ok(Seen { objects: Objects::from_items(items), at })
}

/// The Leases of the other nodes, where most nodes are not Ready: each of these then needs its own proof that it is off,
/// and its Lease says whether there was a sign of life since. Without the right to list them there is no such proof.
async fn other_leases(desk: &Desk<'_>, node: &str, items: &[Value]) -> anyhow::Result<Vec<Value>> {
    let ready = |node: &Value| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let others: Vec<&Value> =
        items.iter().filter(|item| item["kind"] == "Node" && item["metadata"]["name"] != node).collect();
    let lost = others.iter().filter(|node| !ready(node)).count();
    // The node in question counts too.
    if lost == 0 || (lost + 1) * 2 <= others.len() + 1 {
        return Ok(Vec::new());
    }
    let all = desk.server.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await;
    let all = all.or_else(|error| if is_denied(&error) { Ok(Vec::new()) } else { Err(error) })?;
    let leases = named(all, "coordination.k8s.io/v1", "Lease");
    Ok(leases.filter(|lease| lease["metadata"]["name"] != node).collect())
}

/// The uids of the pods that the node's kubelet really runs, by its own word.
pub(super) async fn running(desk: &Desk<'_>, node: &str) -> anyhow::Result<BTreeSet<String>> {
    let path = format!("/api/v1/nodes/{node}/proxy/runningpods/");
    let answer = desk.server.send(ApiRequest::get(&path)).await?;
    // Whoever answers something else has not said that it runs nothing.
    ensure!(answer["kind"] == "PodList", "{path}: the answer is not a PodList");
    let pods = answer["items"].as_array().into_iter().flatten();
    Ok(pods.filter_map(|p| p["metadata"]["uid"].as_str().map(str::to_owned)).collect())
}

/// Objects of a list, which do not say what they are.
pub(super) fn named(items: Vec<Value>, version: &'static str, kind: &'static str) -> impl Iterator<Item = Value> {
    items.into_iter().map(move |mut item| {
        item["apiVersion"] = version.into();
        item["kind"] = kind.into();
        item
    })
}
