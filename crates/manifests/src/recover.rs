//! What users need to run `stead recover`: the CRD of its records, and ClusterRoles to bind to users who recover nodes.

use serde_json::{Value, json};

use crate::definitions::recovery;
use crate::manifest::{Manifest, Part};

/// The ClusterRole for users who recover nodes.
pub const RECOVER_ROLE: &str = "stead-recover";

/// The ClusterRole that lets `stead recover` query a kubelet for its pods.
pub const RETURN_ROLE: &str = "stead-recover-return";

/// A warning about what else `get nodes/proxy` allows.
const PROXY_WARNING: &str = "WARNING: get nodes/proxy reaches the whole kubelet API. Whoever has it can run commands in every \
     pod on every node, and read their logs and environment. It is needed only to return a node to service that was not \
     restarted. Without it, restart the machine before you run stead recover again.";

/// Group, resources and verbs.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The read permissions for planning a recovery, as for `stead explain`.
const READ: &[Rule] = &[
    (
        "",
        &[
            "nodes",
            "pods",
            "namespaces",
            "persistentvolumes",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "services",
            "events",
        ],
        &["get", "list"],
    ),
    ("apps", &["statefulsets", "replicasets", "deployments", "daemonsets"], &["get", "list"]),
    ("batch", &["jobs"], &["get", "list"]),
    ("policy", &["poddisruptionbudgets"], &["get", "list"]),
    ("scheduling.k8s.io", &["priorityclasses"], &["get", "list"]),
    (
        "storage.k8s.io",
        &["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
        &["get", "list"],
    ),
    ("resource.k8s.io", &["deviceclasses"], &["get", "list"]),
    ("coordination.k8s.io", &["leases"], &["get", "list"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]),
];

/// The write permissions. The CRD is not included: an administrator applies it, together with this role.
const WRITE: &[Rule] = &[
    ("", &["nodes"], &["patch"]),
    ("", &["pods"], &["patch", "delete"]),
    ("stead.dev", &["noderecoveries"], &["get", "list", "create", "update"]),
];

/// Returns the CRD of NodeRecovery and the roles for `stead recover`. The roles are bound to nobody.
pub fn recover_manifests() -> Vec<Manifest> {
    let rules = |rules: &[&[Rule]]| -> Vec<Value> {
        let all = rules.iter().copied().flatten();
        all.map(|(group, resources, verbs)| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs }))
            .collect()
    };
    let role = |name: &str, text: &str, rules: Vec<Value>| {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": name, "annotations": { "description": text } },
            "rules": rules,
        });
        Manifest::new(Part::Definitions, "clusterroles", object)
    };
    let proxy: &[Rule] = &[("", &["nodes/proxy"], &["get"])];
    vec![
        recovery(),
        role(RECOVER_ROLE, "Lets people run stead recover.", rules(&[READ, WRITE])),
        role(RETURN_ROLE, PROXY_WARNING, rules(&[proxy])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_role_with_the_warning_reaches_kubelets() {
        for manifest in recover_manifests().iter().filter(|manifest| manifest.kind() == "ClusterRole") {
            let text = manifest.object["metadata"]["annotations"]["description"].as_str().expect("a description");
            let reaches = manifest.object["rules"].to_string().contains("nodes/proxy");
            assert_eq!(reaches, manifest.name() == RETURN_ROLE, "{}", manifest.name());
            assert_eq!(text.contains("WARNING") && text.contains("run commands in every pod"), reaches, "{text}");
        }
    }

    #[test]
    fn no_role_may_read_secrets_or_write_more_than_a_recovery_does() {
        let rules = recover_manifests();
        let rules = rules.iter().flat_map(|m| m.object["rules"].as_array().cloned().unwrap_or_default());
        for rule in rules {
            let text = rule.to_string();
            assert!(!text.contains("secrets") && !text.contains('*'), "{text}");
        }
    }
}
