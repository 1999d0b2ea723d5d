//! The permissions that a recovery needs, checked before anything is written.

use crate::output::Hinted;
use crate::server::Server;

/// The permissions that a recovery uses: verb, group, resource, namespace.
const USED: [(&str, &str, &str, Option<&str>); 7] = [
    ("get", "", "nodes", None),
    ("patch", "", "nodes", None),
    ("get", "coordination.k8s.io", "leases", Some("kube-node-lease")),
    ("patch", "", "pods", None),
    ("delete", "", "pods", None),
    ("create", "stead.dev", "noderecoveries", None),
    ("update", "stead.dev", "noderecoveries", None),
];

/// An error that names the missing permissions.
pub(super) async fn check(server: &Server, node: &str, define: bool) -> anyhow::Result<()> {
    // Applying an object that does not exist needs both.
    let definition = ["create", "patch"].map(|verb| (verb, "apiextensions.k8s.io", "customresourcedefinitions", None));
    let definition = definition.into_iter().filter(|_| define);
    let mut missing = Vec::new();
    for (verb, group, resource, namespace) in USED.into_iter().chain(definition) {
        missing.extend(server.lacks(verb, group, resource, namespace).await?);
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Hinted {
        message: format!("node {node}: missing permissions: {}; nothing was written", missing.join(", ")),
        hint: "docs/RECOVER-REFERENCE.md lists the permissions that a recovery needs".to_owned(),
    }
    .into())
}
