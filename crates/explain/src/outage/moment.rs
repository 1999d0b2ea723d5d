//! Which moment objects tell of, where nobody says it.

use jiff::Timestamp;

use stead_model::times::near;
use stead_model::{ObjectKey, Objects};

/// Fields that say when something happened. Others, such as a deletionTimestamp, may lie ahead.
const PAST: [&str; 11] = [
    "creationTimestamp",
    "eventTime",
    "finishedAt",
    "lastHeartbeatTime",
    "lastObservedTime",
    "lastTimestamp",
    "lastTransitionTime",
    "renewTime",
    "startedAt",
    "time",
    "timeAdded",
];

/// The newest time in the objects: a dump was made then, or a moment later.
pub fn newest(objects: &Objects) -> Option<Timestamp> {
    let kinds = ["Node", "Lease", "Event", "Pod", "VolumeAttachment"];
    let (mut newest, mut newest_text) = (None, String::new());
    for object in kinds.into_iter().flat_map(|kind| objects.of_kind(kind)) {
        object.each_time(|field, text| {
            // A large cluster has many times, and few that are newer than all before.
            if is_ordered(text, &newest_text) && text <= newest_text.as_str() {
                return;
            }
            if PAST.contains(&field)
                && let Some(time) = time(text)
                && newest.is_none_or(|newest| newest < time)
            {
                newest = Some(time);
                newest_text.replace_range(.., text);
            }
        });
    }
    newest
}

/// Whether of two times the later one is the greater text: both are written as `2026-01-01T00:00:00Z`.
fn is_ordered(one: &str, other: &str) -> bool {
    let is_plain = |text: &str| text.len() == 20 && text.as_bytes()[4] == b'-' && text.as_bytes()[10] == b'T';
    is_plain(one) && is_plain(other)
}

/// A time as Kubernetes writes it; none if it is too far away to be one.
fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok().and_then(near)
}

/// Since when the controllers run, as their lease has it.
pub fn controllers_since(objects: &Objects) -> Option<Timestamp> {
    let lease = objects.raw(&ObjectKey::new("Lease", "kube-system", "kube-controller-manager"))?;
    time(lease["spec"]["acquireTime"].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_lies_ahead_is_no_moment_of_the_dump() {
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "p", "namespace": "n",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:09:00Z" } });
        let lease = json!({ "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": { "name": "a", "namespace": "kube-node-lease" },
            "spec": { "renewTime": "2026-01-01T00:05:00.250000Z" } });
        let objects = Objects::from_items([pod, lease]);
        assert_eq!(newest(&objects), "2026-01-01T00:05:00.25Z".parse().ok());
        assert_eq!(newest(&Objects::default()), None);
    }
}
