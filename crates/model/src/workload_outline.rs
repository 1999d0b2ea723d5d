//! The few fields of a workload that tell whether it has its pods.

use crate::json::{Json, JsonRef};

/// What a walk over all workloads of a large cluster looks at. It is read without the rest of the workload, most of which is
/// the template of its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadOutline {
    wanted: i64,
    ready: i64,
    available: i64,
    updated: i64,
    is_paused: bool,
    is_stalled: bool,
    controller: Option<OwnerName>,
    /// Its owner, where it has only one.
    only_owner: Option<OwnerName>,
}

/// Kind and name.
type OwnerName = (Box<str>, Box<str>);

impl WorkloadOutline {
    /// Missing counts in a status are zero, as in the API.
    pub(crate) fn of(kind: &str, workload: JsonRef<'_>) -> WorkloadOutline {
        let [metadata, spec, status] = ["metadata", "spec", "status"].map(|part| workload.field(part));
        let count = |part: Option<JsonRef<'_>>, field: &str| part.and_then(|part| part.field(field)).and_then(number);
        let (wanted, ready) = match kind == "DaemonSet" {
            true => (count(status, "desiredNumberScheduled").unwrap_or_default(), "numberReady"),
            false => (count(spec, "replicas").unwrap_or(1), "readyReplicas"),
        };
        let conditions = status.and_then(|status| status.field("conditions")).into_iter().flat_map(JsonRef::items);
        let owners = metadata.and_then(|metadata| metadata.field("ownerReferences"));
        let owners = || owners.into_iter().flat_map(JsonRef::items);
        WorkloadOutline {
            wanted,
            ready: count(status, ready).unwrap_or_default(),
            available: count(status, "availableReplicas").unwrap_or_default(),
            updated: count(status, "updatedReplicas").unwrap_or_default(),
            is_paused: spec.and_then(|spec| spec.field("paused")).is_some_and(JsonRef::is_true),
            is_stalled: conditions.into_iter().any(is_stalled),
            controller: owners().find(is_controller).and_then(owner_name),
            only_owner: owners().next().filter(|_| owners().nth(1).is_none()).and_then(owner_name),
        }
    }

    /// Fields, by depth and name, that are large and that the outline does not look at.
    pub(crate) fn does_not_need(depth: usize, name: &str) -> bool {
        depth == 1 && matches!(name, "template" | "volumeClaimTemplates" | "annotations" | "labels" | "managedFields")
    }

    /// Whether as many of its pods are ready as it should have.
    pub fn is_ready(&self) -> bool {
        self.ready >= self.wanted
    }

    /// Whether as many of its pods are available and up to date as it should have, and its rollout makes progress: for a
    /// Deployment.
    pub fn is_rolled_out(&self) -> bool {
        let is_current = self.is_paused || self.updated >= self.wanted;
        self.available >= self.wanted && (self.wanted == 0 || is_current && !self.is_stalled)
    }

    /// The kind and the name of its controller.
    pub fn controller(&self) -> Option<(&str, &str)> {
        self.controller.as_ref().map(|(kind, name)| (&**kind, &**name))
    }

    /// The kind and the name of its controller, or of its only owner.
    pub fn controller_or_only_owner(&self) -> Option<(&str, &str)> {
        self.controller.as_ref().or(self.only_owner.as_ref()).map(|(kind, name)| (&**kind, &**name))
    }
}

fn number(value: JsonRef<'_>) -> Option<i64> {
    match value.read() {
        Json::Unsigned(number) => number.try_into().ok(),
        Json::Signed(number) => Some(number),
        _ => None,
    }
}

fn is_stalled(condition: JsonRef<'_>) -> bool {
    let is = |field: &str, value: &str| condition.field(field).and_then(JsonRef::text) == Some(value);
    is("type", "Progressing") && is("status", "False")
}

fn is_controller(owner: &JsonRef<'_>) -> bool {
    owner.field("controller").is_some_and(JsonRef::is_true)
}

fn owner_name(owner: JsonRef<'_>) -> Option<OwnerName> {
    let text = |field: &str| owner.field(field).and_then(JsonRef::text).map(Box::from);
    Some((text("kind")?, text("name")?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn which_workloads_have_their_pods() {
        let stalled = json!([{ "type": "Progressing", "status": "False" }]);
        for (kind, spec, status, is_ready, is_rolled_out) in [
            ("StatefulSet", json!({}), json!({}), false, false),
            ("StatefulSet", json!({ "replicas": 0 }), json!({}), true, true),
            ("StatefulSet", json!({ "replicas": 2 }), json!({ "readyReplicas": 2 }), true, false),
            ("DaemonSet", json!({}), json!({ "desiredNumberScheduled": 3, "numberReady": 2 }), false, false),
            ("DaemonSet", json!({}), json!({ "desiredNumberScheduled": 3, "numberReady": 3 }), true, false),
            ("Deployment", json!({}), json!({ "availableReplicas": 1, "updatedReplicas": 1 }), false, true),
            ("Deployment", json!({}), json!({ "availableReplicas": 1 }), false, false),
            ("Deployment", json!({ "paused": true }), json!({ "availableReplicas": 1 }), false, true),
            (
                "Deployment",
                json!({}),
                json!({ "availableReplicas": 1, "updatedReplicas": 1, "conditions": stalled }),
                false,
                false,
            ),
            ("Deployment", json!({ "replicas": 0 }), json!({ "conditions": stalled }), true, true),
        ] {
            let workload = json!({ "spec": spec, "status": status });
            let outline = WorkloadOutline::of(kind, JsonRef::Value(&workload));
            assert_eq!(outline.is_ready(), is_ready, "{kind} {workload}");
            assert_eq!(outline.is_rolled_out(), is_rolled_out, "{kind} {workload}");
        }
    }

    #[test]
    fn only_a_controller_controls() {
        let owner = |controller: Value| json!({ "kind": "Deployment", "name": "web", "controller": controller });
        let of = |owners: Value| {
            let workload = json!({ "metadata": { "ownerReferences": owners } });
            let outline = WorkloadOutline::of("ReplicaSet", JsonRef::Value(&workload));
            (outline.controller().is_some(), outline.controller_or_only_owner().is_some())
        };
        let [yes, no] = [true, false].map(|controls| owner(json!(controls)));
        assert_eq!(of(json!([no, yes])), (true, true));
        assert_eq!(of(json!([no])), (false, true));
        assert_eq!(of(json!([no, no])), (false, false));
        assert_eq!(of(json!(null)), (false, false));
    }
}
