//! What whoever calls must be allowed to do, asked before anything is written.

use serde_json::json;

use crate::output::Hinted;
use crate::server::Server;

/// The rights that a recovery uses: verb, group, resource, namespace.
const USED: [(&str, &str, &str, &str); 7] = [
    ("get", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("get", "coordination.k8s.io", "leases", "kube-node-lease"),
    ("patch", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("create", "stead.dev", "noderecoveries", ""),
    ("update", "stead.dev", "noderecoveries", ""),
];

/// An error that names what is missing, if anything is.
pub(super) async fn check(server: &Server, node: &str, define: bool) -> anyhow::Result<()> {
    let definition = ("create", "apiextensions.k8s.io", "customresourcedefinitions", "");
    let mut missing = Vec::new();
    for (verb, group, resource, namespace) in USED.into_iter().chain(define.then_some(definition)) {
        let attributes = json!({ "verb": verb, "group": group, "resource": resource, "namespace": namespace });
        if !server.allows(&attributes).await? {
            let dot = if group.is_empty() { "" } else { "." };
            missing.push(format!("{verb} {resource}{dot}{group}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Hinted {
        message: format!("node {node}: you may not: {}; nothing was written", missing.join(", ")),
        hint: "docs/RECOVER.md has a role with what a recovery needs".to_owned(),
    }
    .into())
}
