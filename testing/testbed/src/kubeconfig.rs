//! Kubeconfig files.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Writes a kubeconfig for one server and one token. It is JSON, which is valid YAML.
pub(crate) fn write(path: &Path, server: &str, authority: Option<&Path>, user: &str, token: &str) -> Result<()> {
    std::fs::write(path, format!("{:#}\n", content(server, authority, user, token)))
        .with_context(|| format!("writing {}", path.display()))
}

fn content(server: &str, authority: Option<&Path>, user: &str, token: &str) -> Value {
    let mut cluster = json!({ "server": server });
    if let Some(authority) = authority {
        cluster["certificate-authority"] = json!(authority);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "testbed", "cluster": cluster }],
        "users": [{ "name": user, "user": { "token": token } }],
        "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": user } }],
        "current-context": "testbed",
    })
}
