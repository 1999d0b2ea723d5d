//! The command and environment of a container, as the kubelet computes them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use crate::images::Image;
use crate::objects::Objects;

/// Variables that every container has, such as the address of the API server.
const DEFAULT_VARIABLES: [(&str, &str); 4] = [
    ("KUBERNETES_SERVICE_HOST", crate::network::API_ADDRESS),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
];

/// Where a pod runs, and its addresses.
#[derive(Debug, Clone)]
pub(crate) struct PodLocation {
    pub(crate) pod_address: String,
    pub(crate) node: String,
    pub(crate) node_address: String,
}

/// The environment of a container.
pub(crate) async fn environment(
    pod: &Pod,
    container: &Container,
    image: &Image,
    location: &PodLocation,
    objects: &Objects,
) -> Result<BTreeMap<String, String>> {
    let mut env: BTreeMap<String, String> = DEFAULT_VARIABLES.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let hostname = pod.spec.as_ref().and_then(|s| s.hostname.clone()).unwrap_or_else(|| pod.name_any());
    env.insert("HOSTNAME".to_owned(), hostname);
    env.extend(image.env.iter().cloned());
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let values = if let Some(map) = &source.config_map_ref {
            objects.config_map(&map.name, map.optional.unwrap_or(false)).await?
        } else if let Some(secret) = &source.secret_ref {
            objects.secret(&secret.name, secret.optional.unwrap_or(false)).await?
        } else {
            continue;
        };
        for (key, value) in values {
            env.insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
        }
    }
    for var in container.env.iter().flatten() {
        if let Some(value) = value(pod, var, &env, location, objects).await? {
            env.insert(var.name.clone(), value);
        }
    }
    Ok(env)
}

async fn value(
    pod: &Pod,
    var: &EnvVar,
    env: &BTreeMap<String, String>,
    location: &PodLocation,
    objects: &Objects,
) -> Result<Option<String>> {
    let Some(from) = &var.value_from else {
        return Ok(Some(expand(var.value.as_deref().unwrap_or_default(), env)));
    };
    let of_map = |values: BTreeMap<String, Vec<u8>>, key: &str, optional: bool, of: String| match values.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional => Ok(None),
        None => bail!("couldn't find key {key} in {of}"),
    };
    if let Some(field) = &from.field_ref {
        let value = field_value(pod, field, location).with_context(|| format!("env {}", var.name))?;
        Ok(Some(value))
    } else if let Some(r) = &from.config_map_key_ref {
        let optional = r.optional.unwrap_or(false);
        of_map(objects.config_map(&r.name, optional).await?, &r.key, optional, format!("ConfigMap {}", r.name))
    } else if let Some(r) = &from.secret_key_ref {
        let optional = r.optional.unwrap_or(false);
        of_map(objects.secret(&r.name, optional).await?, &r.key, optional, format!("Secret {}", r.name))
    } else {
        bail!("env {}: this source of a value is not supported", var.name)
    }
}

/// Returns the value of a downward API field.
pub(crate) fn field_value(pod: &Pod, field: &ObjectFieldSelector, location: &PodLocation) -> Result<String> {
    let key = |path: &str, prefix: &str| {
        path.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("']")).map(str::to_owned)
    };
    let lines = |map: &BTreeMap<String, String>| -> String {
        map.iter().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
    };
    Ok(match field.field_path.as_str() {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => lines(pod.labels()),
        "metadata.annotations" => lines(pod.annotations()),
        "spec.nodeName" => location.node.clone(),
        "spec.serviceAccountName" => pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" | "status.podIPs" => location.pod_address.clone(),
        "status.hostIP" | "status.hostIPs" => location.node_address.clone(),
        path => {
            if let Some(name) = key(path, "metadata.labels['") {
                pod.labels().get(&name).cloned().unwrap_or_default()
            } else if let Some(name) = key(path, "metadata.annotations['") {
                pod.annotations().get(&name).cloned().unwrap_or_default()
            } else {
                bail!("fieldPath {path} is not supported")
            }
        }
    })
}

/// Returns the command line of a container. `command` and `args` override the image's, as Kubernetes documents.
pub(crate) fn command_line(container: &Container, image: &Image, env: &BTreeMap<String, String>) -> Vec<String> {
    let expanded = |list: &Option<Vec<String>>| -> Option<Vec<String>> {
        let list = list.as_ref().filter(|list| !list.is_empty())?;
        Some(list.iter().map(|text| expand(text, env)).collect())
    };
    match (expanded(&container.command), expanded(&container.args)) {
        (Some(command), args) => [command, args.unwrap_or_default()].concat(),
        (None, Some(args)) => [image.entrypoint.clone(), args].concat(),
        (None, None) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    }
}

/// Expands `$(NAME)` like Kubernetes: `$$` is a dollar sign, and an unknown name is left as it is.
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_expanded() {
        let env: BTreeMap<_, _> = [("A".to_owned(), "1".to_owned())].into();
        for (text, expected) in [
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A and $", "$A and $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    #[test]
    fn command_line_combines_container_and_image() {
        let image = Image::default().entrypoint(["e"]).cmd(["c"]);
        for (container, expected) in [
            (json!({ "name": "a" }), "e c"),
            (json!({ "name": "a", "args": ["x"] }), "e x"),
            (json!({ "name": "a", "command": ["k"] }), "k"),
            (json!({ "name": "a", "command": ["k"], "args": ["$(V)"] }), "k v"),
        ] {
            let container: Container = serde_json::from_value(container).unwrap();
            let env = [("V".to_owned(), "v".to_owned())].into();
            assert_eq!(command_line(&container, &image, &env).join(" "), expected);
        }
    }
}
