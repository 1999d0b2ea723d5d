//! The agents' permissions and the reason for each: the table from which their Role is built.

use serde_json::{Value, json};

use super::manifest;
use super::values::Pool;
use crate::manifest::Manifest;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The verbs to watch one object, which Kubernetes treats as a list of one.
const READ: &[&str] = &["get", "list", "watch"];

/// A permission for resources in the pool's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRight {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resources.
    pub resources: &'static [&'static str],
    /// The allowed verbs.
    pub verbs: &'static [&'static str],
    /// The only allowed object; none for all.
    pub name: Option<String>,
    /// Why an agent needs it.
    pub why: &'static str,
}

/// Returns the permissions of a pool's agents. A right to create cannot be restricted to a name.
pub fn rights(pool: &Pool) -> Vec<AgentRight> {
    let right = |group, resources, verbs, name: Option<&str>, why| AgentRight {
        group,
        resources,
        verbs,
        name: name.map(str::to_owned),
        why,
    };
    let record = stead_pool::config_map::name(&pool.name);
    let key = stead_pool::key_secret::name(&pool.name);
    let mut all = vec![
        right("apps", &["statefulsets"], READ, Some(&pool.name), "the wanted number of peers"),
        right("", &["pods"], &["list", "watch"], None, "which peers have a pod, and where"),
        right("", &["configmaps"], &["create"], None, "the record"),
        right("", &["configmaps"], &["get", "list", "watch", "update"], Some(&record), "the record"),
        right("", &["secrets"], &["get", "list", "watch", "update"], Some(&key), "the key that the agents sign with"),
        right("coordination.k8s.io", &["leases"], &["create"], None, "leader election"),
        right("coordination.k8s.io", &["leases"], &["get", "update"], Some(&record), "leader election"),
        right("", &["events"], &["create"], None, "events about actions and their reasons"),
    ];
    if pool.openshift {
        let constraints = &["securitycontextconstraints"];
        all.push(right(
            "security.openshift.io",
            constraints,
            &["use"],
            Some("privileged"),
            "privileged pods on OpenShift",
        ));
    }
    all
}

/// Builds the agents' ServiceAccount, Role and RoleBinding.
pub(super) fn objects(pool: &Pool) -> Vec<Manifest> {
    let rules: Vec<Value> = rights(pool).iter().map(rule).collect();
    let version = format!("{RBAC}/v1");
    let binding = json!({
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": pool.name},
        "subjects": [{"kind": "ServiceAccount", "name": pool.name, "namespace": pool.namespace}],
    });
    vec![
        manifest(pool, "serviceaccounts", "v1", "ServiceAccount", json!({"automountServiceAccountToken": false})),
        manifest(pool, "roles", &version, "Role", json!({"rules": rules})),
        manifest(pool, "rolebindings", &version, "RoleBinding", binding),
    ]
}

fn rule(right: &AgentRight) -> Value {
    let mut rule = json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
    if let Some(name) = &right.name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}
