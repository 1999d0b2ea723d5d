//! The objects that a loop reads by name.

use serde_json::Value;
use stead_model::ObjectKey;

use crate::object::{namespace, text};
use crate::{glance, glance_api};

/// The Secrets that the loop of this object reads: those that its spec refers to, and those that the loop renders.
pub fn references(object: &Value) -> Vec<ObjectKey> {
    let names = match text(object, "/kind") {
        "Glance" => glance::secrets(object),
        "GlanceAPI" => glance_api::secrets(object),
        _ => Vec::new(),
    };
    let mut keys: Vec<ObjectKey> = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| ObjectKey::new("Secret", namespace(object), &name))
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_secrets_that_a_spec_names_or_the_loop_renders_are_read() {
        let names = |kind: &str, spec: Value| -> Vec<String> {
            let object = json!({"kind": kind, "metadata": {"name": "g", "namespace": "n"}, "spec": spec});
            references(&object).into_iter().map(|k| k.name).collect()
        };
        assert_eq!(
            names("Glance", json!({"secret": "osp-secret"})),
            ["g-config-data", "glance-db-secret", "glance-scripts", "osp-secret"]
        );
        let spec = json!({
            "secret": "osp-secret",
            "databaseAccount": "account",
            "customServiceConfigSecrets": ["custom", "osp-secret"],
            "tls": {"caBundleSecretName": "ca", "api": {"internal": {"secretName": "internal"}, "public": {}}},
        });
        assert_eq!(
            names("GlanceAPI", spec),
            ["account-db-secret", "ca", "custom", "g-config-data", "internal", "osp-secret"]
        );
        assert_eq!(names("Topology", json!({"secret": "osp-secret"})), Vec::<String>::new());
    }
}
