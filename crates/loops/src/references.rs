//! The objects that a loop reads by name.

use stead_model::{ObjectKey, ObjectRef};

use crate::{glance, glance_api};

/// The Secrets that the loop of this object reads: those that its spec refers to, and those that the loop renders. None
/// for a malformed object, whose loop only reports that.
pub fn references(object: ObjectRef<'_>) -> Vec<ObjectKey> {
    let key = object.key();
    let names = match key.kind.as_str() {
        "Glance" => object.typed().map(glance::secrets),
        "GlanceAPI" => object.typed().map(glance_api::secrets),
        _ => return Vec::new(),
    };
    let names = names.unwrap_or_default().into_iter().filter(|name| !name.is_empty());
    let mut keys: Vec<ObjectKey> = names.map(|name| ObjectKey::namespaced("Secret", &key.namespace, &name)).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stead_model::Object;

    use super::*;

    #[test]
    fn only_secrets_that_a_spec_names_or_the_loop_renders_are_read() {
        let names = |kind: &str, spec: Value| -> Vec<String> {
            let key = ObjectKey::namespaced(kind, "n", "g");
            let object = Object::new(json!({"kind": kind, "metadata": {"name": "g", "namespace": "n"}, "spec": spec}));
            references(ObjectRef::new(&key, &object)).into_iter().map(|k| k.name).collect()
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
