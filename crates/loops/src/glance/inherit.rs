//! What a GlanceAPI gets from its Glance.

use serde_json::{Map, Value, json};

use crate::layout::{API_NAME, ApiType, KEYSTONE_ENDPOINT, SERVICE};
use crate::object::{fields, flag, name, number, owned, pairs, present, set, text};
use crate::step::Settings;
use crate::topology_ref;

/// A Glance's spec with what it leaves to be understood.
pub(crate) fn understood(glance: &Value, settings: &Settings) -> Value {
    let mut spec = glance["spec"].clone();
    let defaults = [
        ("containerImage", settings.glance_image.as_str()),
        ("serviceUser", SERVICE),
        ("databaseAccount", SERVICE),
        ("memcachedInstance", "memcached"),
    ];
    for (field, value) in defaults {
        if text(&spec, &format!("/{field}")).is_empty() {
            set(&mut spec, field, value.into());
        }
    }
    if text(&spec, "/passwordSelectors/service").is_empty() {
        let mut selectors = present(&spec, "/passwordSelectors").cloned().unwrap_or_default();
        set(&mut selectors, "service", "GlancePassword".into());
        set(&mut spec, "passwordSelectors", selectors);
    }
    if number(&spec, "/apiTimeout").is_none_or(|t| t == 0) {
        set(&mut spec, "apiTimeout", 60.into());
    }
    // Nobody asks for storage: then there are no claims.
    if text(&spec, "/storage/storageRequest").is_empty() {
        let mut storage = present(&spec, "/storage").cloned().unwrap_or_default();
        set(&mut storage, "external", true.into());
        set(&mut spec, "storage", storage);
    }
    // No API at all: one that can be filled in, without pods.
    if fields(&spec, "/glanceAPIs").next().is_none() {
        set(&mut spec, "glanceAPIs", json!({"default": {"replicas": 0, "type": "split"}}));
        set(&mut spec, "keystoneEndpoint", "default".into());
    }
    if text(&spec, "/keystoneEndpoint").is_empty() {
        let names: Vec<String> = fields(&spec, "/glanceAPIs").map(|(name, _)| name.clone()).collect();
        if let [only] = names.as_slice() {
            set(&mut spec, "keystoneEndpoint", only.clone().into());
        }
    }
    spec
}

/// The layout of an API.
pub(crate) fn layout(template: &Value) -> &str {
    match text(template, "/type") {
        "" => "split",
        layout => layout,
    }
}

/// The ServiceAccount that a Glance's pods run as.
pub(crate) fn service_account(glance: &Value) -> String {
    format!("{SERVICE}-{}", name(glance))
}

/// A GlanceAPI as its Glance wants it: one part of one API.
pub(crate) fn glance_api(
    glance: &Value,
    spec: &Value,
    api: &str,
    template: &Value,
    part: ApiType,
    database: &str,
) -> Value {
    let mut own = template.as_object().cloned().unwrap_or_default();
    let mut put = |field: &str, value: Value| {
        own.insert(field.to_owned(), value);
    };
    put("apiType", part.word().into());
    put("type", layout(template).into());
    put("containerImage", spec["containerImage"].clone());
    put("databaseHostname", database.into());
    put("databaseAccount", spec["databaseAccount"].clone());
    put("memcachedInstance", spec["memcachedInstance"].clone());
    put("secret", spec["secret"].clone());
    put("passwordSelectors", spec["passwordSelectors"].clone());
    put("serviceUser", spec["serviceUser"].clone());
    put("serviceAccount", service_account(glance).into());
    put("quota", fields(spec, "/quotas").any(|(_, limit)| limit.as_i64().is_some_and(|l| l > 0)).into());
    put("replicas", number(template, "/replicas").unwrap_or(1).into());
    put("storage", storage(template, spec));
    put("imageCache", image_cache(template, spec));
    put("override", present(template, "/override").cloned().unwrap_or_else(|| json!({})));
    put("resources", present(template, "/resources").cloned().unwrap_or_else(|| json!({})));
    put("tls", tls(template));
    if number(template, "/apiTimeout").is_none_or(|t| t == 0) {
        put("apiTimeout", spec["apiTimeout"].clone());
    }
    if let Some(mounts) = present(spec, "/extraMounts") {
        put("extraMounts", mounts.clone());
    }
    if text(template, "/customServiceConfig").is_empty() && !text(spec, "/customServiceConfig").is_empty() {
        put("customServiceConfig", spec["customServiceConfig"].clone());
    }
    let has_secrets = template["customServiceConfigSecrets"].as_array().is_some_and(|l| !l.is_empty());
    if !has_secrets && let Some(secrets) = present(spec, "/customServiceConfigSecrets") {
        put("customServiceConfigSecrets", secrets.clone());
    }
    if present(template, "/nodeSelector").is_none()
        && let Some(selector) = present(spec, "/nodeSelector")
    {
        put("nodeSelector", selector.clone());
    }
    let mut own = Value::Object(own);
    topology_ref::inherit(&mut own, spec);
    let labels = pairs([("service", SERVICE), (API_NAME, api)]);
    let kind_name = format!("{}-{api}-{}", name(glance), part.word());
    let mut object = owned(glance, "glance.openstack.org/v1beta1", "GlanceAPI", &kind_name, &labels);
    if text(spec, "/keystoneEndpoint") == api {
        set(&mut object["metadata"], "annotations", json!({KEYSTONE_ENDPOINT: "true"}));
    }
    object["spec"] = without_nulls(own);
    object
}

fn storage(template: &Value, spec: &Value) -> Value {
    let mut storage = Map::new();
    for field in ["storageClass", "storageRequest"] {
        let own = text(template, &format!("/storage/{field}"));
        let value = if own.is_empty() { text(spec, &format!("/storage/{field}")) } else { own };
        if !value.is_empty() {
            storage.insert(field.into(), value.into());
        }
    }
    if flag(template, "/storage/external") || flag(spec, "/storage/external") {
        storage.insert("external".into(), true.into());
    }
    Value::Object(storage)
}

fn image_cache(template: &Value, spec: &Value) -> Value {
    let or = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
    json!({
        "size": or(text(template, "/imageCache/size"), text(spec, "/imageCache/size")),
        "cleanerScheduler": or(text(template, "/imageCache/cleanerScheduler"), "*/30 * * * *"),
        "prunerScheduler": or(text(template, "/imageCache/prunerScheduler"), "1 0 * * *"),
    })
}

fn tls(template: &Value) -> Value {
    let mut tls = present(template, "/tls").cloned().unwrap_or_else(|| json!({}));
    let mut api = present(&tls, "/api").cloned().unwrap_or_else(|| json!({}));
    for side in ["internal", "public"] {
        if api.get(side).is_none() {
            set(&mut api, side, json!({}));
        }
    }
    set(&mut tls, "api", api);
    tls
}

/// Applying a null would be an attempt to own nothing.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k, without_nulls(v)))
            .collect::<Map<_, _>>()
            .into(),
        other => other,
    }
}
