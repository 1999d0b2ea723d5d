//! Removes from an object what a dump must not have.

use serde_json::Value;

/// Annotations that have a copy of the whole object, with everything that was removed from it.
const COPIES: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "openshift.io/last-applied-configuration"];

/// Fields of OpenStack's resources that have configuration files, which may have passwords.
const CONFIGURATION: [&str; 4] =
    ["customServiceConfig", "defaultConfigOverwrite", "customConfig", "httpdCustomization"];

/// Flags of kube-controller-manager and kube-scheduler that decide when something happens.
const TIMING_FLAGS: [&str; 17] = [
    "attach-detach-reconcile-sync-period",
    "config",
    "disable-attach-detach-reconcile-sync",
    "disable-force-detach-on-timeout",
    "feature-gates",
    "large-cluster-size-threshold",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-retry-period",
    "node-eviction-rate",
    "node-monitor-grace-period",
    "node-monitor-period",
    "node-startup-grace-period",
    "pod-eviction-timeout",
    "secondary-node-eviction-rate",
    "terminated-pod-gc-threshold",
    "unhealthy-zone-threshold",
];

/// The programs whose timing flags are kept.
const TIMED_PROGRAMS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Removes values of environment variables, commands and arguments, the last applied configuration and configuration files,
/// at any depth: workloads and custom resources have templates of pods.
pub(crate) fn sanitize(object: &mut Value) {
    let is_timed = is_timed_static_pod(object);
    let kept = if is_timed { timing_flags(object) } else { Vec::new() };
    remove(object);
    for (container, field, values) in kept {
        if let Some(container) = object.pointer_mut(&format!("/spec/containers/{container}")) {
            container[field] = values.into();
        }
    }
}

fn remove(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove),
        Value::Object(fields) => {
            fields.retain(|name, value| !is_removed(name, value));
            if let Some(Value::Array(variables)) = fields.get_mut("env") {
                variables.iter_mut().filter_map(Value::as_object_mut).for_each(|variable| {
                    variable.remove("value");
                });
            }
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.retain(|name, _| !COPIES.contains(&name.as_str()));
            }
            // Managed fields have the names of fields, and no values.
            let parts = fields.iter_mut().filter(|(name, _)| *name != "managedFields");
            parts.for_each(|(_, value)| remove(value));
        }
        _ => {}
    }
}

fn is_removed(name: &str, value: &Value) -> bool {
    match name {
        "command" | "args" => value.is_array(),
        // A map of variables, as in some custom resources.
        "env" => value.is_object(),
        _ => CONFIGURATION.contains(&name),
    }
}

fn is_timed_static_pod(object: &Value) -> bool {
    let metadata = &object["metadata"];
    object["kind"] == "Pod"
        && metadata["annotations"].get("kubernetes.io/config.mirror").is_some()
        && metadata["namespace"].as_str().is_some_and(|n| n == "kube-system" || n.starts_with("openshift-kube-"))
}

/// The flags to keep: the container, the field and the new value.
fn timing_flags(object: &Value) -> Vec<(usize, &'static str, Vec<Value>)> {
    let mut kept = Vec::new();
    let containers = object["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, container) in containers.iter().enumerate() {
        if !container["name"].as_str().is_some_and(|name| TIMED_PROGRAMS.contains(&name)) {
            continue;
        }
        for field in ["command", "args"] {
            let texts = container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            // OpenShift starts the program in a shell: the flags are words of a script.
            let words = texts.flat_map(str::split_whitespace).filter(|word| is_kept(word));
            let words: Vec<Value> = words.map(Value::from).collect();
            if !words.is_empty() {
                kept.push((i, field, words));
            }
        }
    }
    kept
}

fn is_kept(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(flag) => TIMING_FLAGS.contains(&flag.split('=').next().unwrap_or_default()) && flag.contains('='),
        None => TIMED_PROGRAMS.contains(&word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_arguments_and_copies_are_removed() {
        let container = json!({
            "name": "c", "command": ["sh"], "args": ["--password=x"], "env": [{ "name": "A", "value": "secret" }],
            "livenessProbe": { "exec": { "command": ["check"] }, "periodSeconds": 3 },
        });
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": "s",
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b" },
                "managedFields": [{ "fieldsV1": { "f:command": {}, "f:args": [] } }],
            },
            "spec": { "template": { "spec": { "containers": [container] } } },
        });
        sanitize(&mut set);
        assert_eq!(
            set,
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {
                    "name": "s", "annotations": { "a": "b" },
                    "managedFields": [{ "fieldsV1": { "f:command": {}, "f:args": [] } }],
                },
                "spec": { "template": { "spec": { "containers": [{
                    "name": "c", "env": [{ "name": "A" }], "livenessProbe": { "exec": {}, "periodSeconds": 3 },
                }] } } },
            })
        );
    }

    #[test]
    fn timing_flags_of_the_control_plane_are_kept() {
        let pod = |namespace: &str, name: &str, field: &str, words: Value| {
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "p", "namespace": namespace, "annotations": { "kubernetes.io/config.mirror": "x" } },
                "spec": { "containers": [{ "name": name }] },
            });
            pod["spec"]["containers"][0][field] = words;
            sanitize(&mut pod);
            pod["spec"]["containers"][0][field].clone()
        };
        let words = json!(["kube-controller-manager", "--kubeconfig=/x", "--node-monitor-grace-period=20s"]);
        let kept = json!(["kube-controller-manager", "--node-monitor-grace-period=20s"]);
        assert_eq!(pod("kube-system", "kube-controller-manager", "command", words.clone()), kept);
        let script = json!(["exec kube-controller-manager --token=x --node-monitor-grace-period=20s"]);
        assert_eq!(pod("openshift-kube-controller-manager", "kube-controller-manager", "args", script), kept);
        assert_eq!(pod("kube-system", "etcd", "command", words.clone()), Value::Null);
        assert_eq!(pod("shop", "kube-controller-manager", "command", words), Value::Null);
    }
}
