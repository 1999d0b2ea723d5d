//! The pods and claims of a StatefulSet (`pkg/controller/statefulset` in Kubernetes).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The name of the set and the ordinal in the name of a pod (`getParentNameAndOrdinal`).
pub fn parent_name_and_ordinal(pod: &str) -> Option<(&str, u32)> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    let digits = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    Some((parent, ordinal.parse().ok().filter(|_| digits)?))
}

/// How many pods a set wants.
pub fn replicas(set: &StatefulSet) -> u32 {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u32::try_from(replicas).unwrap_or_default()
}

/// The ordinal of the first pod (`getStartOrdinal`).
pub fn start_ordinal(set: &StatefulSet) -> u32 {
    let start = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()?.start);
    start.and_then(|start| u32::try_from(start).ok()).unwrap_or_default()
}

/// Whether a set wants a pod of this name (`podInOrdinalRange`). A name without an ordinal is not judged.
pub fn pod_in_ordinal_range(set: &StatefulSet, pod: &str) -> bool {
    let start = start_ordinal(set);
    let in_range = |ordinal: u32| ordinal >= start && ordinal - start < replicas(set);
    parent_name_and_ordinal(pod).is_none_or(|(_, ordinal)| in_range(ordinal))
}

/// Whether a pod is created only when all pods before it are ready (`allowsBurst` is false).
pub fn is_ordered(set: &StatefulSet) -> bool {
    set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel")
}

/// The name of a pod (`getPodName`).
pub fn pod_name(set: &str, ordinal: u32) -> String {
    format!("{set}-{ordinal}")
}

/// The name of the claim that a pod gets from a claim template (`getPersistentVolumeClaimName`).
pub fn claim_name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// The claim templates of a set.
pub fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

/// The claim template that a set creates a claim of this name from for a pod.
pub fn template_of_claim<'a>(set: &'a StatefulSet, pod: &str, claim: &str) -> Option<&'a PersistentVolumeClaim> {
    let named = |template: &&PersistentVolumeClaim| {
        template.metadata.name.as_deref().is_some_and(|name| claim_name(name, pod) == claim)
    };
    claim_templates(set).iter().find(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(spec: serde_json::Value) -> StatefulSet {
        serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).expect("a StatefulSet")
    }

    #[test]
    fn get_parent_name_and_ordinal() {
        for (pod, expected) in [
            ("web-0", Some(("web", 0))),
            ("my-web-12", Some(("my-web", 12))),
            ("web-007", Some(("web", 7))),
            ("web", None),
            ("web-", None),
            ("web-+1", None),
            ("web-x", None),
            ("web-99999999999", None),
        ] {
            assert_eq!(parent_name_and_ordinal(pod), expected, "{pod}");
        }
    }

    #[test]
    fn pod_in_ordinal_range_of_a_set() {
        let plain = set(json!({ "replicas": 2 }));
        let shifted = set(json!({ "replicas": 2, "ordinals": { "start": 5 } }));
        let default = set(json!({}));
        for (set, pod, expected) in [
            (&plain, "web-0", true),
            (&plain, "web-1", true),
            (&plain, "web-2", false),
            (&shifted, "web-4", false),
            (&shifted, "web-5", true),
            (&shifted, "web-6", true),
            (&shifted, "web-7", false),
            (&default, "web-0", true),
            (&default, "web-1", false),
            (&plain, "named-by-hand", true),
        ] {
            assert_eq!(pod_in_ordinal_range(set, pod), expected, "{pod}");
        }
        assert!(!pod_in_ordinal_range(&set(json!({ "replicas": 0 })), "web-0"));
    }

    #[test]
    fn get_persistent_volume_claim_name() {
        let set = set(json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] }));
        assert!(template_of_claim(&set, "web-0", "data-web-0").is_some());
        assert!(template_of_claim(&set, "web-0", "data-web-1").is_none());
        assert!(is_ordered(&set));
    }
}
