//! The StatefulSet of a GlanceAPI.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Map, Value, json};
use stead_model::{ExtraVolumes, GlanceApi, GlanceApiSpec, ModelError, Topology};
use stead_semantics::Quantity;

use crate::glance_api::config::{Dependencies, password_environment};
use crate::ini;
use crate::inputs::Inputs;
use crate::kinds::hex;
use crate::layout::{ApiType, Endpoint, GLANCE_ID, PORT, SERVICE, api_name, labels, set_name};
use crate::metadata::{Texts, name};
use crate::optional::{non_empty, text};
use crate::owner::{Owner, WantedObject, named};
use crate::placement_rules::placement;

/// What a StatefulSet depends on besides the GlanceAPI's own spec.
pub(crate) struct Parts<'a> {
    /// A digest of everything that the containers are configured with.
    pub(crate) config: &'a str,
    pub(crate) dependencies: &'a Dependencies,
    /// The Topology that applies.
    pub(crate) topology: Option<&'a Topology>,
    /// Whether any Topology replaces the default anti-affinity.
    pub(crate) replace: bool,
    /// The networks that the pods are attached to, as the value of their annotation.
    pub(crate) networks: &'a str,
    /// The domain of the pods.
    pub(crate) domain: &'a str,
}

/// A digest of what cannot be changed in a StatefulSet: its stores and claim templates. If it changes, the StatefulSet is
/// recreated; the claims are kept.
pub(crate) fn storage_digest(api: &GlanceApi) -> String {
    let spec = &api.spec;
    let backends = ini::enabled_backends(text(&spec.custom_service_config)).join(",");
    let storage = spec.storage.clone().unwrap_or_default();
    let (class, request) = (text(&storage.storage_class), text(&storage.storage_request));
    let external = is_external(spec);
    let cache = cache_size(spec).unwrap_or_default();
    hex(&format!("{backends}|{class}|{request}|{external}|{cache}"))[..16].to_owned()
}

/// The digest that a StatefulSet was created with. It is at the end of CONFIG_HASH, so that it does not depend on the
/// status of the GlanceAPI.
pub(crate) fn made_with(set: &StatefulSet) -> Option<&str> {
    let pod = set.spec.as_ref()?.template.spec.as_ref()?;
    let hash = pod.containers.first()?.env.as_ref()?.iter().find(|variable| variable.name == "CONFIG_HASH")?;
    hash.value.as_deref().unwrap_or_default().rsplit_once('-').map(|(_, digest)| digest)
}

/// Whether no claims are created for images.
fn is_external(spec: &GlanceApiSpec) -> bool {
    spec.storage.as_ref().is_some_and(|storage| storage.external == Some(true))
}

/// The size of the image cache; none for no cache.
fn cache_size(spec: &GlanceApiSpec) -> Option<&str> {
    non_empty(&spec.image_cache.as_ref()?.size)
}

/// Checks the sizes in a spec.
pub(crate) fn check_sizes(api: &GlanceApi) -> Result<(), ModelError> {
    let spec = &api.spec;
    let cache = cache_size(spec).map(|size| ("imageCache.size", size));
    let request = spec.storage.as_ref().map_or("", |storage| text(&storage.storage_request));
    let images = (!is_external(spec)).then_some(("storage.storageRequest", request));
    for (field, size) in cache.into_iter().chain(images) {
        Quantity::parse(size).map_err(|error| {
            let object = format!("glanceapi {}", name(&api.metadata));
            ModelError::malformed(object, format!("spec.{field}"), format!("{size:?}: {error}"))
        })?;
    }
    Ok(())
}

/// The wanted StatefulSet.
pub(crate) fn stateful_set(api: &GlanceApi, parts: &Parts<'_>) -> WantedObject {
    let spec = &api.spec;
    let labels = labels(api);
    let set_name = set_name(api);
    let uses_host = ini::uses_cinder(text(&spec.custom_service_config));
    let mut pod = placement(parts.topology, &labels, parts.replace);
    let mut set = |field: &str, value: Value| pod.insert(field.to_owned(), value);
    set("securityContext", json!({"fsGroup": GLANCE_ID}));
    set("serviceAccountName", text(&spec.service_account).into());
    set("containers", containers(api, parts, uses_host));
    set("volumes", volumes(api, uses_host).into());
    if uses_host {
        set("hostPID", true.into());
    }
    if let Some(selector) = spec.node_selector.as_ref().filter(|selector| !selector.is_empty()) {
        set("nodeSelector", json!(selector));
    }
    let claims = claims(spec, &labels);
    let mut stateful_set = json!({
        "serviceName": set_name,
        "selector": {"matchLabels": labels},
        "podManagementPolicy": "Parallel",
        "replicas": spec.replicas.unwrap_or(1),
        "template": {
            "metadata": {"labels": labels, "annotations": {"k8s.v1.cni.cncf.io/networks": parts.networks}},
            "spec": pod,
        },
    });
    if let Value::Object(fields) = &mut stateful_set
        && !claims.is_empty()
    {
        fields.insert("volumeClaimTemplates".into(), claims.into());
    }
    Owner::of(api).create("StatefulSet", named(&set_name, labels), json!({"spec": stateful_set}))
}

fn claims(spec: &GlanceApiSpec, labels: &Texts) -> Vec<Value> {
    let storage = spec.storage.clone().unwrap_or_default();
    let class = non_empty(&storage.storage_class);
    let images = (!is_external(spec)).then(|| {
        let metadata = json!({"name": SERVICE, "labels": labels});
        claim(metadata, text(&storage.storage_request), class)
    });
    let cache = cache_size(spec).map(|size| {
        let metadata = json!({"name": "glance-cache", "labels": labels, "annotations": {"image-cache": "true"}});
        claim(metadata, size, class)
    });
    images.into_iter().chain(cache).collect()
}

/// A claim template with the defaults that the API server would add: it treats the list of templates as one value.
fn claim(metadata: Value, size: &str, class: Option<&str>) -> Value {
    let resources = json!({"requests": {"storage": canonical(size)}});
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources, "volumeMode": "Filesystem"});
    if let (Value::Object(spec), Some(class)) = (&mut spec, class) {
        spec.insert("storageClassName".into(), class.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    })
}

/// A quantity as the API server would write it.
fn canonical(size: &str) -> String {
    Quantity::parse(size).map_or_else(|_| size.to_owned(), |quantity| quantity.to_string())
}

/// The resources of the containers, as the API server would write them.
fn resources(spec: &GlanceApiSpec) -> Value {
    let mut resources = spec.resources.clone().unwrap_or_else(|| json!({}));
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

fn containers(api: &GlanceApi, parts: &Parts<'_>, uses_host: bool) -> Value {
    let spec = &api.spec;
    let inputs = Inputs::of_api(spec);
    let log = format!("/usr/bin/tail -n+1 -F /var/log/glance/{}.log 2>/dev/null", name(&api.metadata));
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
    let containers = rows.into_iter().map(|(name, args, security, mounts)| {
        let mut env = environment(api, parts);
        if name == "glance-api" {
            let passwords = password_environment(&inputs, parts.dependencies, text(&spec.custom_service_config));
            env.extend(passwords.into_iter().map(|(_, variable)| variable));
        }
        let mut container = json!({
            "name": name,
            "image": inputs.image,
            "command": ["/usr/bin/dumb-init"],
            "args": args,
            "securityContext": security,
            "env": env,
            "volumeMounts": mounts,
            "resources": resources(spec),
        });
        if let Value::Object(container) = &mut container {
            container.extend(probes(spec, ApiType::of(api)));
        }
        container
    });
    containers.collect()
}

fn environment(api: &GlanceApi, parts: &Parts<'_>) -> Vec<Value> {
    let scheme = if is_tls(&api.spec, ApiType::of(api)) { "HTTPS" } else { "HTTP" };
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

fn is_tls(spec: &GlanceApiSpec, api_type: ApiType) -> bool {
    let is_internal = matches!(api_type, ApiType::Internal | ApiType::Edge);
    let endpoint = if is_internal { Endpoint::Internal } else { Endpoint::Public };
    endpoint.certificate(spec).is_some()
}

/// The probes, with the times that the user overrides.
fn probes(spec: &GlanceApiSpec, api_type: ApiType) -> [(String, Value); 3] {
    let scheme = if is_tls(spec, api_type) { "HTTPS" } else { "HTTP" };
    let health = json!({
        "httpGet": {"path": "/healthcheck", "port": PORT, "scheme": scheme},
        "initialDelaySeconds": 5, "periodSeconds": 30, "timeoutSeconds": 30,
    });
    let start = json!({"exec": {"command": ["/bin/true"]}, "failureThreshold": 6, "periodSeconds": 10});
    let overrides = spec.r#override.as_ref().and_then(|overrides| overrides.probes.clone()).unwrap_or_default();
    let with = |mut probe: Value, times: Option<Map<String, Value>>| {
        let times = times.into_iter().flatten().filter(|(name, _)| name != "path" && name != "port");
        if let Value::Object(probe) = &mut probe {
            probe.extend(times);
        }
        probe
    };
    [
        ("livenessProbe".into(), with(health.clone(), overrides.liveness_probes)),
        ("readinessProbe".into(), with(health, overrides.readiness_probes)),
        ("startupProbe".into(), with(start, overrides.startup_probes)),
    ]
}

fn mount(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path})
}

fn read_only(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path, "readOnly": true})
}

fn file(volume: &str, path: &str, key: &str) -> Value {
    json!({"name": volume, "mountPath": path, "readOnly": true, "subPath": key})
}

fn log_mounts() -> Vec<Value> {
    vec![mount("logs", "/var/log/glance")]
}

fn proxy_mounts(api: &GlanceApi) -> Vec<Value> {
    let mut mounts = vec![
        read_only("config-data", "/var/lib/config-data/default"),
        file("config-data", "/var/lib/kolla/config_files/config.json", "glance-httpd-config.json"),
    ];
    mounts.extend(authority_mount(&api.spec));
    for endpoint in ApiType::of(api).endpoints().iter().filter(|endpoint| endpoint.certificate(&api.spec).is_some()) {
        let endpoint = endpoint.name();
        let volume = format!("{endpoint}-tls-certs");
        mounts.push(file(&volume, &format!("/etc/pki/tls/certs/{endpoint}.crt"), "tls.crt"));
        mounts.push(file(&volume, &format!("/etc/pki/tls/private/{endpoint}.key"), "tls.key"));
    }
    mounts
}

fn api_mounts(api: &GlanceApi, uses_host: bool) -> Vec<Value> {
    let spec = &api.spec;
    let mut mounts =
        vec![read_only("config-data", "/var/lib/config-data/default"), file("config-data", "/etc/my.cnf", "my.cnf")];
    if !is_external(spec) {
        mounts.push(mount(SERVICE, "/var/lib/glance"));
    }
    mounts.extend(extra_volumes(api).flat_map(|volumes| volumes.mounts.iter().cloned()));
    for (index, _) in spec.custom_service_config_secrets.iter().flatten().enumerate() {
        mounts.push(read_only(&format!("custom-config-{index}"), &format!("/var/lib/config-data/secret-{index}")));
    }
    if uses_host {
        mounts.extend(HOST_PATHS.iter().map(
            |(volume, path, _, is_read_only)| {
                if *is_read_only { read_only(volume, path) } else { mount(volume, path) }
            },
        ));
    }
    mounts.push(file("config-data", "/var/lib/kolla/config_files/config.json", "glance-api-config.json"));
    mounts.extend(log_mounts());
    mounts.push(read_only("scripts", "/usr/local/bin/container-scripts"));
    if cache_size(spec).is_some() {
        mounts.push(mount("glance-cache", "/var/lib/glance/image-cache"));
    }
    mounts.extend(authority_mount(spec));
    mounts
}

/// What a Cinder store needs of its host: volume, path, whether it is created if missing, whether it is read-only.
const HOST_PATHS: [(&str, &str, bool, bool); 7] = [
    ("etc-iscsi", "/etc/iscsi", false, true),
    ("dev", "/dev", false, false),
    ("lib-modules", "/lib/modules", false, true),
    ("run", "/run", false, false),
    ("sys", "/sys", false, false),
    ("var-locks-brick", "/var/locks/openstack/os-brick", true, false),
    ("etc-nvme", "/etc/nvme", true, false),
];

/// The Secret with the certificates that are trusted.
fn authority(spec: &GlanceApiSpec) -> Option<&str> {
    non_empty(&spec.tls.as_ref()?.ca_bundle_secret_name)
}

fn authority_mount(spec: &GlanceApiSpec) -> Option<Value> {
    let path = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
    authority(spec).map(|_| file("combined-ca-bundle", path, "tls-ca-bundle.pem"))
}

fn secret(volume: &str, name: &str, mode: u32) -> Value {
    json!({"name": volume, "secret": {"secretName": name, "defaultMode": mode}})
}

fn volumes(api: &GlanceApi, uses_host: bool) -> Vec<Value> {
    let spec = &api.spec;
    let config = format!("{}-config-data", name(&api.metadata));
    let mut volumes = vec![secret("config-data", &config, 0o644)];
    volumes.extend(extra_volumes(api).flat_map(|extra| extra.volumes.iter().cloned()));
    let custom = spec.custom_service_config_secrets.iter().flatten().enumerate();
    volumes.extend(custom.map(|(index, name)| secret(&format!("custom-config-{index}"), name, 0o640)));
    if uses_host {
        volumes.extend(HOST_PATHS.iter().map(|(volume, path, is_created, _)| {
            let kind = if *is_created { "DirectoryOrCreate" } else { "" };
            json!({"name": volume, "hostPath": {"path": path, "type": kind}})
        }));
    }
    volumes.push(secret("config-data-custom", &config, 0o644));
    volumes.push(json!({"name": "logs", "emptyDir": {}}));
    volumes.push(secret("scripts", "glance-scripts", 0o755));
    volumes.extend(authority(spec).map(|name| secret("combined-ca-bundle", name, 0o444)));
    for endpoint in ApiType::of(api).endpoints() {
        let certificate = endpoint.certificate(spec);
        volumes.extend(certificate.map(|name| secret(&format!("{}-tls-certs", endpoint.name()), name, 0o440)));
    }
    volumes
}

/// The volumes that the user adds to this API: to all pods, to all of Glance, or to the API by its name.
fn extra_volumes(api: &GlanceApi) -> impl Iterator<Item = &ExtraVolumes> {
    let own = api_name(api);
    let is_for_api = move |volumes: &&ExtraVolumes| {
        let to = volumes.propagation.as_deref().unwrap_or_default();
        to.is_empty() || to.iter().any(|to| matches!(to.as_str(), "Glance" | "GlanceAPI" | "All") || to == own)
    };
    api.spec.extra_mounts.iter().flatten().flat_map(|group| &group.extra_vol).filter(is_for_api)
}
