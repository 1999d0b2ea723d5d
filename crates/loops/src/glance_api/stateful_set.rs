//! The StatefulSet of a GlanceAPI.

use serde_json::{Value, json};
use stead_semantics::Quantity;

use crate::glance_api::config::{Neighbours, password_environment};
use crate::ini;
use crate::kinds::hex;
use crate::layout::{ApiType, GLANCE_ID, PORT, SERVICE, api_name, labels, set_name};
use crate::object::{Texts, flag, items, name, number, owned, present, set, text, texts};
use crate::placement_rules::place;

/// What a StatefulSet is made of besides the GlanceAPI's own spec.
pub(crate) struct Parts<'a> {
    /// A digest of all that the containers are configured by.
    pub(crate) config: &'a str,
    pub(crate) neighbours: &'a Neighbours,
    /// The Topology that applies.
    pub(crate) topology: Option<&'a Value>,
    /// Whether any Topology takes the default anti-affinity away.
    pub(crate) replace: bool,
    /// The networks that the pods are attached to, as an annotation has them.
    pub(crate) networks: &'a str,
    /// The name that the pods share.
    pub(crate) domain: &'a str,
}

/// A digest of what a StatefulSet cannot change about itself: its stores and claims. Another digest, and the set is
/// made anew; the claims stay.
pub(crate) fn storage_digest(api: &Value) -> String {
    let spec = &api["spec"];
    let backends = ini::enabled_backends(text(spec, "/customServiceConfig")).join(",");
    let storage = ["storageClass", "storageRequest"].map(|field| text(spec, &format!("/storage/{field}")));
    let external = flag(spec, "/storage/external");
    let cache = text(spec, "/imageCache/size");
    hex(&format!("{backends}|{}|{}|{external}|{cache}", storage[0], storage[1]))[..16].to_owned()
}

/// The digest that a StatefulSet was made with: it stands at the end of its CONFIG_HASH, so that the set itself tells,
/// whatever happened to whoever made it.
pub(crate) fn made_with(set: &Value) -> Option<&str> {
    let container = items(set, "/spec/template/spec/containers").next()?;
    let hash = items(container, "/env").find(|e| e["name"] == "CONFIG_HASH")?;
    text(hash, "/value").rsplit_once('-').map(|(_, digest)| digest)
}

/// What is wrong with the sizes in a spec, if anything.
pub(crate) fn size_fault(api: &Value) -> Option<String> {
    let spec = &api["spec"];
    let mut sizes = vec![("imageCache.size", text(spec, "/imageCache/size"))];
    if !flag(spec, "/storage/external") {
        sizes.push(("storage.storageRequest", text(spec, "/storage/storageRequest")));
    }
    sizes.into_iter().filter(|(field, size)| !(size.is_empty() && *field == "imageCache.size")).find_map(
        |(field, size)| {
            Quantity::parse(size).err().map(|error| format!("glanceapi {}: spec.{field}: {size:?}: {error}", name(api)))
        },
    )
}

/// The StatefulSet as it should be.
pub(crate) fn stateful_set(api: &Value, parts: &Parts<'_>) -> Value {
    let spec = &api["spec"];
    let labels = labels(api);
    let set_name = set_name(api);
    let uses_host = ini::enabled_backends(text(spec, "/customServiceConfig")).iter().any(|b| b.ends_with(":cinder"));
    let mut pod = json!({
        "securityContext": {"fsGroup": GLANCE_ID},
        "serviceAccountName": text(spec, "/serviceAccount"),
        "containers": containers(api, parts, uses_host),
        "volumes": volumes(api, uses_host),
    });
    if uses_host {
        set(&mut pod, "hostPID", true.into());
    }
    if let Some(selector) = present(spec, "/nodeSelector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty())) {
        set(&mut pod, "nodeSelector", selector.clone());
    }
    place(&mut pod, parts.topology, &labels, parts.replace);
    let mut stateful_set = owned(api, "apps/v1", "StatefulSet", &set_name, &labels);
    stateful_set["spec"] = json!({
        "serviceName": set_name,
        "selector": {"matchLabels": labels},
        "podManagementPolicy": "Parallel",
        "replicas": number(spec, "/replicas").unwrap_or(1),
        "template": {
            "metadata": {"labels": labels, "annotations": {"k8s.v1.cni.cncf.io/networks": parts.networks}},
            "spec": pod,
        },
    });
    let claims = claims(spec, &labels);
    if !claims.is_empty() {
        set(&mut stateful_set["spec"], "volumeClaimTemplates", claims.into());
    }
    stateful_set
}

fn claims(spec: &Value, labels: &Texts) -> Vec<Value> {
    let mut claims = Vec::new();
    if !flag(spec, "/storage/external") {
        claims.push(claim(SERVICE, text(spec, "/storage/storageRequest"), spec, labels));
    }
    if !text(spec, "/imageCache/size").is_empty() {
        let mut cache = claim("glance-cache", text(spec, "/imageCache/size"), spec, labels);
        set(&mut cache["metadata"], "annotations", json!({"image-cache": "true"}));
        claims.push(cache);
    }
    claims
}

/// A claim's template, with what the API server would add: the list of templates is one value to it.
fn claim(name: &str, size: &str, spec: &Value, labels: &Texts) -> Value {
    let mut template = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": canonical(size)}},
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    });
    let class = text(spec, "/storage/storageClass");
    if !class.is_empty() {
        set(&mut template["spec"], "storageClassName", class.into());
    }
    template
}

/// A quantity as the API server would write it.
fn canonical(size: &str) -> String {
    Quantity::parse(size).map_or_else(|_| size.to_owned(), |quantity| quantity.to_string())
}

/// What containers ask for, as the API server would write it.
fn resources(spec: &Value) -> Value {
    let mut resources = present(spec, "/resources").cloned().unwrap_or_else(|| json!({}));
    for part in ["limits", "requests"] {
        for (_, quantity) in resources.get_mut(part).and_then(Value::as_object_mut).into_iter().flatten() {
            let written = match &*quantity {
                Value::String(text) => canonical(text),
                other => canonical(&other.to_string()),
            };
            *quantity = written.into();
        }
    }
    resources
}

fn containers(api: &Value, parts: &Parts<'_>, uses_host: bool) -> Value {
    let spec = &api["spec"];
    let log = format!("/usr/bin/tail -n+1 -F /var/log/glance/{}.log 2>/dev/null", name(api));
    let kolla = "/usr/local/bin/kolla_start";
    let run = |shell: &str, command: &str| json!(["--single-child", "--", shell, "-c", command]);
    let plain = json!({
        "runAsUser": GLANCE_ID, "runAsGroup": GLANCE_ID, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let proxy = json!({
        "runAsUser": GLANCE_ID, "runAsGroup": GLANCE_ID,
        "capabilities": {"drop": ["MKNOD"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let service = json!({
        "runAsUser": GLANCE_ID, "allowPrivilegeEscalation": true, "privileged": uses_host,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let rows = [
        ("glance-log", run("/bin/sh", &log), plain, log_mounts()),
        ("glance-httpd", run("/bin/bash", kolla), proxy, proxy_mounts(api)),
        ("glance-api", run("/bin/bash", kolla), service, api_mounts(api, uses_host)),
    ];
    let made = rows.into_iter().map(|(name, args, security, mounts)| {
        let mut env = environment(api, parts);
        if name == "glance-api" {
            env.extend(password_environment(spec, parts.neighbours, text(spec, "/customServiceConfig")));
        }
        let mut container = json!({
            "name": name,
            "image": text(spec, "/containerImage"),
            "command": ["/usr/bin/dumb-init"],
            "args": args,
            "securityContext": security,
            "env": env,
            "volumeMounts": mounts,
            "resources": resources(spec),
        });
        for (field, probe) in probes(spec, ApiType::of(api)) {
            set(&mut container, field, probe);
        }
        container
    });
    made.collect()
}

fn environment(api: &Value, parts: &Parts<'_>) -> Vec<Value> {
    let scheme = if is_tls(&api["spec"], ApiType::of(api)) { "HTTPS" } else { "HTTP" };
    let hash = format!("{}-{}", parts.config, storage_digest(api));
    [
        ("CONFIG_HASH", hash.as_str()),
        ("GLANCE_DOMAIN", parts.domain),
        ("KOLLA_CONFIG_STRATEGY", "COPY_ALWAYS"),
        ("URISCHEME", scheme),
    ]
    .map(|(name, value)| json!({"name": name, "value": value}))
    .into()
}

fn is_tls(spec: &Value, api_type: ApiType) -> bool {
    let side = if matches!(api_type, ApiType::Internal | ApiType::Edge) { "internal" } else { "public" };
    !text(spec, &format!("/tls/api/{side}/secretName")).is_empty()
}

/// The probes, with the times that the owner overrides.
fn probes(spec: &Value, api_type: ApiType) -> [(&'static str, Value); 3] {
    let scheme = if is_tls(spec, api_type) { "HTTPS" } else { "HTTP" };
    let health = json!({
        "httpGet": {"path": "/healthcheck", "port": PORT, "scheme": scheme},
        "initialDelaySeconds": 5, "periodSeconds": 30, "timeoutSeconds": 30,
    });
    let start = json!({"exec": {"command": ["/bin/true"]}, "failureThreshold": 6, "periodSeconds": 10});
    let with = |probe: Value, field: &str| {
        let mut probe = probe;
        for (key, value) in crate::object::fields(spec, &format!("/override/probes/{field}")) {
            match key.as_str() {
                "path" | "port" => {}
                _ => set(&mut probe, key, value.clone()),
            }
        }
        probe
    };
    [
        ("livenessProbe", with(health.clone(), "livenessProbes")),
        ("readinessProbe", with(health, "readinessProbes")),
        ("startupProbe", with(start, "startupProbes")),
    ]
}

fn mount(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path})
}

fn fixed(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path, "readOnly": true})
}

fn file(volume: &str, path: &str, key: &str) -> Value {
    json!({"name": volume, "mountPath": path, "readOnly": true, "subPath": key})
}

fn log_mounts() -> Vec<Value> {
    vec![mount("logs", "/var/log/glance")]
}

fn proxy_mounts(api: &Value) -> Vec<Value> {
    let mut mounts = vec![
        fixed("config-data", "/var/lib/config-data/default"),
        file("config-data", "/var/lib/kolla/config_files/config.json", "glance-httpd-config.json"),
    ];
    mounts.extend(authority(&api["spec"]));
    for side in ApiType::of(api).endpoints() {
        if !text(&api["spec"], &format!("/tls/api/{side}/secretName")).is_empty() {
            let volume = format!("{side}-tls-certs");
            mounts.push(file(&volume, &format!("/etc/pki/tls/certs/{side}.crt"), "tls.crt"));
            mounts.push(file(&volume, &format!("/etc/pki/tls/private/{side}.key"), "tls.key"));
        }
    }
    mounts
}

fn api_mounts(api: &Value, uses_host: bool) -> Vec<Value> {
    let spec = &api["spec"];
    let mut mounts =
        vec![fixed("config-data", "/var/lib/config-data/default"), file("config-data", "/etc/my.cnf", "my.cnf")];
    if !flag(spec, "/storage/external") {
        mounts.push(mount(SERVICE, "/var/lib/glance"));
    }
    mounts.extend(extra(api, "mounts"));
    for (index, _) in texts(spec, "/customServiceConfigSecrets").enumerate() {
        mounts.push(fixed(&format!("custom-config-{index}"), &format!("/var/lib/config-data/secret-{index}")));
    }
    if uses_host {
        mounts.extend(HOST_PATHS.iter().map(
            |(volume, path, _, read_only)| {
                if *read_only { fixed(volume, path) } else { mount(volume, path) }
            },
        ));
    }
    mounts.push(file("config-data", "/var/lib/kolla/config_files/config.json", "glance-api-config.json"));
    mounts.extend(log_mounts());
    mounts.push(fixed("scripts", "/usr/local/bin/container-scripts"));
    if !text(spec, "/imageCache/size").is_empty() {
        mounts.push(mount("glance-cache", "/var/lib/glance/image-cache"));
    }
    mounts.extend(authority(spec));
    mounts
}

/// What a Cinder store needs of its host: volume, path, whether it is made where missing, whether it is only read.
const HOST_PATHS: [(&str, &str, bool, bool); 7] = [
    ("etc-iscsi", "/etc/iscsi", false, true),
    ("dev", "/dev", false, false),
    ("lib-modules", "/lib/modules", false, true),
    ("run", "/run", false, false),
    ("sys", "/sys", false, false),
    ("var-locks-brick", "/var/locks/openstack/os-brick", true, false),
    ("etc-nvme", "/etc/nvme", true, false),
];

fn authority(spec: &Value) -> Option<Value> {
    let path = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
    (!text(spec, "/tls/caBundleSecretName").is_empty()).then(|| file("combined-ca-bundle", path, "tls-ca-bundle.pem"))
}

fn secret(volume: &str, name: &str, mode: u32) -> Value {
    json!({"name": volume, "secret": {"secretName": name, "defaultMode": mode}})
}

fn volumes(api: &Value, uses_host: bool) -> Vec<Value> {
    let spec = &api["spec"];
    let config = format!("{}-config-data", name(api));
    let mut volumes = vec![secret("config-data", &config, 0o644)];
    volumes.extend(extra(api, "volumes"));
    let custom = texts(spec, "/customServiceConfigSecrets").enumerate();
    volumes.extend(custom.map(|(index, name)| secret(&format!("custom-config-{index}"), name, 0o640)));
    if uses_host {
        volumes.extend(HOST_PATHS.iter().map(|(volume, path, made, _)| {
            let kind = if *made { "DirectoryOrCreate" } else { "" };
            json!({"name": volume, "hostPath": {"path": path, "type": kind}})
        }));
    }
    volumes.push(secret("config-data-custom", &config, 0o644));
    volumes.push(json!({"name": "logs", "emptyDir": {}}));
    volumes.push(secret("scripts", "glance-scripts", 0o755));
    let authority = text(spec, "/tls/caBundleSecretName");
    if !authority.is_empty() {
        volumes.push(secret("combined-ca-bundle", authority, 0o444));
    }
    for side in ApiType::of(api).endpoints() {
        let certificate = text(spec, &format!("/tls/api/{side}/secretName"));
        if !certificate.is_empty() {
            volumes.push(secret(&format!("{side}-tls-certs"), certificate, 0o440));
        }
    }
    volumes
}

/// Volumes or mounts that the owner adds, where they are meant for this API: for all, for all of Glance, or by name.
fn extra(api: &Value, what: &str) -> Vec<Value> {
    let own = api_name(api);
    let meant = |part: &&Value| {
        let mut to = texts(part, "/propagation").peekable();
        to.peek().is_none() || to.any(|p| matches!(p, "Glance" | "GlanceAPI" | "All") || p == own)
    };
    items(&api["spec"], "/extraMounts")
        .flat_map(|group| items(group, "/extraVol"))
        .filter(meant)
        .flat_map(|part| part[what].as_array().into_iter().flatten())
        .cloned()
        .collect()
}
