//! The pods of a Glance.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_stage::Stage;

/// The namespace of the report.
pub(crate) const NAMESPACE: &str = "openstack";

/// Maximum time to wait for a change.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

/// A pod of Glance.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its node, if it is scheduled.
    pub(crate) node: Option<String>,
    pub(crate) ready: bool,
    pub(crate) deleting: bool,
    /// The scheduler's message, if it cannot be scheduled.
    pub(crate) unschedulable: Option<String>,
    pub(crate) spec: Value,
}

impl Pod {
    fn of(pod: &Value) -> Pod {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let conditions = || pod["status"]["conditions"].as_array().into_iter().flatten();
        let refused = conditions().find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
        Pod {
            name: text("/metadata/name").unwrap_or_default(),
            uid: text("/metadata/uid").unwrap_or_default(),
            node: text("/spec/nodeName"),
            ready: conditions().any(|c| c["type"] == "Ready" && c["status"] == "True"),
            deleting: text("/metadata/deletionTimestamp").is_some(),
            unschedulable: refused.and_then(|c| c["message"].as_str()).map(str::to_owned),
            spec: pod["spec"].clone(),
        }
    }

    pub(crate) fn node(&self) -> Result<&str> {
        self.node.as_deref().with_context(|| format!("pod {} has no node", self.name))
    }

    pub(crate) fn has_claim(&self) -> bool {
        self.spec["volumes"].as_array().into_iter().flatten().any(|v| !v["persistentVolumeClaim"].is_null())
    }
}

/// Returns Glance's API pods whose names start with the prefix.
pub(crate) async fn glance(stage: &Stage, prefix: &str) -> Result<Vec<Pod>> {
    let pods = stage.list(NAMESPACE, "pods", "component=glance-api").await?;
    Ok(pods.iter().map(Pod::of).filter(|pod| pod.name.starts_with(prefix)).collect())
}

/// Returns a pod by name; none if it does not exist.
pub(crate) async fn one(stage: &Stage, name: &str) -> Result<Option<Pod>> {
    Ok(stage.get(NAMESPACE, &format!("pod/{name}")).await?.as_ref().map(Pod::of))
}

/// Waits until there are `count` Glance pods, all ready, and every StatefulSet is rolled out.
pub(crate) async fn wait_until_settled(stage: &Stage, count: usize) -> Result<Vec<Pod>> {
    let what = format!("{count} Glance pods ready");
    let ready = stage
        .wait_until(&what, TIMEOUT, || async {
            let pods = glance(stage, "").await?;
            let all = pods.len() == count && pods.iter().all(|pod| pod.ready && !pod.deleting);
            Ok(all && rolled_out(stage).await?)
        })
        .await;
    if let Err(error) = ready {
        // Add the state of the objects to the error.
        let state = stage.kubectl(&["get", "-n", NAMESPACE, "pods,pvc,statefulsets,jobs,events", "-o", "wide"]).await?;
        return Err(error.context(state));
    }
    glance(stage, "").await
}

/// Whether every GlanceAPI and StatefulSet is ready with its current spec.
async fn rolled_out(stage: &Stage) -> Result<bool> {
    let apis = stage.list(NAMESPACE, "glanceapis", "service=glance").await?;
    let sets = stage.list(NAMESPACE, "statefulsets", "service=glance").await?;
    let current = |set: &Value| {
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && set["status"]["updateRevision"] == set["status"]["currentRevision"]
    };
    Ok(sets.len() == apis.len() && sets.iter().all(current) && apis.iter().all(is_ready))
}

/// Whether an object's `Ready` condition is true for its current spec.
pub(crate) fn is_ready(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && condition(object, "Ready").is_some_and(|c| c["status"] == "True")
}

/// Returns a condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Returns the zone of a node in the report.
pub(crate) fn zone(node: &str) -> Result<char> {
    Ok(match node {
        "master-0" | "worker-0" | "worker-3" => 'A',
        "master-1" | "worker-1" => 'B',
        "master-2" | "worker-2" => 'C',
        _ => anyhow::bail!("the report has no node {node}"),
    })
}

/// Counts the pods in each zone.
pub(crate) fn by_zone<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Result<BTreeMap<char, usize>> {
    let mut zones = BTreeMap::new();
    for pod in pods {
        *zones.entry(zone(pod.node()?)?).or_default() += 1;
    }
    Ok(zones)
}

/// Fails if a pod of the three edge APIs is not in the zone of its name.
pub(crate) fn check_edge_zones(pods: &[Pod]) -> Result<()> {
    for (prefix, letter) in [("glance-azone-", 'A'), ("glance-bzone-", 'B'), ("glance-czone-", 'C')] {
        let found = by_zone(pods.iter().filter(|pod| pod.name.starts_with(prefix)))?;
        ensure!(found == BTreeMap::from([(letter, 3)]), "the pods of {prefix}… are in {found:?}");
    }
    Ok(())
}
