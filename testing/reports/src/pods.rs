//! The state of the pods of a Glance.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_stage::Stage;

/// The namespace that the report works in.
pub(crate) const SPACE: &str = "openstack";

/// So long may anything take that is on its way.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A pod of Glance.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The node that it was given, if any.
    pub(crate) node: Option<String>,
    pub(crate) ready: bool,
    pub(crate) deleting: bool,
    /// Why the scheduler has no node for it.
    pub(crate) unschedulable: Option<String>,
    /// Its spec.
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
        self.node.as_deref().with_context(|| format!("pod {} is on no node", self.name))
    }

    pub(crate) fn has_claim(&self) -> bool {
        self.spec["volumes"].as_array().into_iter().flatten().any(|v| !v["persistentVolumeClaim"].is_null())
    }
}

/// Glance's API pods whose names begin so, by name.
pub(crate) async fn glance(stage: &Stage, prefix: &str) -> Result<Vec<Pod>> {
    let pods = stage.list(SPACE, "pods", "component=glance-api").await?;
    Ok(pods.iter().map(Pod::of).filter(|pod| pod.name.starts_with(prefix)).collect())
}

/// A pod by its name; none where it is gone.
pub(crate) async fn one(stage: &Stage, name: &str) -> Result<Option<Pod>> {
    Ok(stage.get(SPACE, &format!("pod/{name}")).await?.as_ref().map(Pod::of))
}

/// Waits until there are so many Glance pods and all of them are ready, and every StatefulSet has had its way.
pub(crate) async fn settled(stage: &Stage, count: usize) -> Result<Vec<Pod>> {
    let what = format!("{count} Glance pods ready");
    let ready = stage
        .until(&what, PATIENCE, || async {
            let pods = glance(stage, "").await?;
            let all = pods.len() == count && pods.iter().all(|pod| pod.ready && !pod.deleting);
            Ok(all && rolled_out(stage).await?)
        })
        .await;
    if let Err(error) = ready {
        // Who is not, and what is said of it.
        let seen = stage.kubectl(&["get", "-n", SPACE, "pods,pvc,statefulsets,jobs,events", "-o", "wide"]).await?;
        return Err(error.context(seen));
    }
    glance(stage, "").await
}

/// Whether every GlanceAPI says that it is ready, of what it was last told.
async fn rolled_out(stage: &Stage) -> Result<bool> {
    let apis = stage.list(SPACE, "glanceapis", "service=glance").await?;
    let sets = stage.list(SPACE, "statefulsets", "service=glance").await?;
    let current = |set: &Value| {
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && set["status"]["updateRevision"] == set["status"]["currentRevision"]
    };
    Ok(sets.len() == apis.len() && sets.iter().all(current) && apis.iter().all(is_ready))
}

/// Whether an object's `Ready` is true, of what it was last told.
pub(crate) fn is_ready(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && condition(object, "Ready").is_some_and(|c| c["status"] == "True")
}

/// A condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// The zone that the report means a node to be in.
pub(crate) fn zone(node: &str) -> Result<char> {
    Ok(match node {
        "master-0" | "worker-0" | "worker-3" => 'A',
        "master-1" | "worker-1" => 'B',
        "master-2" | "worker-2" => 'C',
        _ => anyhow::bail!("the report knows no node {node}"),
    })
}

/// How many of these pods are in each zone.
pub(crate) fn by_zone<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Result<BTreeMap<char, usize>> {
    let mut zones = BTreeMap::new();
    for pod in pods {
        *zones.entry(zone(pod.node()?)?).or_default() += 1;
    }
    Ok(zones)
}

/// That every pod of the three edge APIs is in the zone of its name.
pub(crate) fn edges_in_their_zones(pods: &[Pod]) -> Result<()> {
    for (prefix, letter) in [("glance-azone-", 'A'), ("glance-bzone-", 'B'), ("glance-czone-", 'C')] {
        let found = by_zone(pods.iter().filter(|pod| pod.name.starts_with(prefix)))?;
        ensure!(found == BTreeMap::from([(letter, 3)]), "the pods of {prefix}… are in {found:?}");
    }
    Ok(())
}
