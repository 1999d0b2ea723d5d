//! The kind of a name that is typed: `po`, `pods`, `Pod`, `statefulsets.apps`.

use stead_model::{KINDS, Kind};

/// The short names of `kubectl api-resources`.
const SHORT_NAMES: [(&str, &str); 22] = [
    ("cj", "CronJob"),
    ("cm", "ConfigMap"),
    ("crd", "CustomResourceDefinition"),
    ("deploy", "Deployment"),
    ("ds", "DaemonSet"),
    ("ev", "Event"),
    ("netpol", "NetworkPolicy"),
    ("no", "Node"),
    ("ns", "Namespace"),
    ("oscp", "OpenStackControlPlane"),
    ("pc", "PriorityClass"),
    ("pdb", "PodDisruptionBudget"),
    ("po", "Pod"),
    ("pv", "PersistentVolume"),
    ("pvc", "PersistentVolumeClaim"),
    ("quota", "ResourceQuota"),
    ("rc", "ReplicationController"),
    ("rs", "ReplicaSet"),
    ("sa", "ServiceAccount"),
    ("sc", "StorageClass"),
    ("sts", "StatefulSet"),
    ("svc", "Service"),
];

/// The kind of a resource name as kubectl reads it: plural, singular, kind or short name, in any case, with an optional
/// group (`statefulsets.apps`, `statefulsets.v1.apps`).
pub fn kind_named(text: &str) -> Option<&'static Kind> {
    let lower = text.to_lowercase();
    let (name, group) = lower.split_once('.').map_or((lower.as_str(), None), |(name, group)| (name, Some(group)));
    // A version before the group: v1.apps.
    let group = group.map(|group| match group.split_once('.') {
        Some((version, rest)) if is_version(version) => rest,
        None if is_version(group) => "",
        _ => group,
    });
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == name).map(|(_, kind)| *kind);
    KINDS.iter().find(|kind| {
        let named = kind.plural == name || kind.kind.to_lowercase() == name || short == Some(kind.kind);
        named && group.is_none_or(|group| kind.group() == group)
    })
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_kubectl_does() {
        for (text, kind) in [
            ("po", Some("Pod")),
            ("pods", Some("Pod")),
            ("Pod", Some("Pod")),
            ("pods.v1", Some("Pod")),
            ("statefulsets.apps", Some("StatefulSet")),
            ("statefulset.v1.apps", Some("StatefulSet")),
            ("statefulsets.batch", None),
            ("oscp", Some("OpenStackControlPlane")),
            ("podz", None),
        ] {
            assert_eq!(kind_named(text).map(|kind| kind.kind), kind, "{text}");
        }
        for (_, kind) in SHORT_NAMES {
            assert!(Kind::named(kind).is_some(), "{kind}");
        }
    }
}
