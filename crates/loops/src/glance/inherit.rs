//! What a GlanceAPI gets from its Glance.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use stead_model::{Glance, GlanceApiSpec, GlanceSpec, GlanceTls, ImageCache, Storage};

use crate::layout::{API_NAME, ApiType, KEYSTONE_ENDPOINT, SERVICE};
use crate::metadata::{name, texts};
use crate::optional::{non_empty, set_default, text};
use crate::owner::{Owner, WantedObject, named};
use crate::step::LoopSettings;

/// A Glance's spec with its defaults.
pub(crate) fn with_defaults(glance: &Glance, settings: &LoopSettings) -> GlanceSpec {
    let mut spec = glance.spec.clone();
    set_default(&mut spec.container_image, &settings.glance_image);
    set_default(&mut spec.service_user, SERVICE);
    set_default(&mut spec.database_account, SERVICE);
    set_default(&mut spec.memcached_instance, "memcached");
    set_default(&mut spec.password_selectors.get_or_insert_default().service, "GlancePassword");
    spec.api_timeout = spec.api_timeout.filter(|timeout| *timeout != 0).or(Some(60));
    // Without a size there are no claims.
    let storage = spec.storage.get_or_insert_default();
    if non_empty(&storage.storage_request).is_none() {
        storage.external = Some(true);
    }
    // Without an API there is one without pods, which can be changed later.
    if spec.glance_apis.is_empty() {
        let api = GlanceApiSpec { replicas: Some(0), r#type: Some("split".into()), ..GlanceApiSpec::default() };
        spec.glance_apis.insert("default".into(), api);
        spec.keystone_endpoint = Some("default".into());
    }
    let mut names = spec.glance_apis.keys();
    if let (Some(only), None) = (names.next(), names.next()) {
        set_default(&mut spec.keystone_endpoint, only);
    }
    spec
}

/// The layout of an API.
pub(crate) fn layout(template: &GlanceApiSpec) -> &str {
    non_empty(&template.r#type).unwrap_or("split")
}

/// The ServiceAccount of a Glance's pods.
pub(crate) fn service_account(glance: &Glance) -> String {
    format!("{SERVICE}-{}", name(&glance.metadata))
}

/// A GlanceAPI as its Glance wants it: one part of one API.
pub(crate) fn glance_api(
    glance: &Glance,
    spec: &GlanceSpec,
    api: &str,
    template: &GlanceApiSpec,
    part: ApiType,
    database: &str,
) -> WantedObject {
    let own = GlanceApiSpec {
        api_timeout: template.api_timeout.filter(|timeout| *timeout != 0).or(spec.api_timeout),
        api_type: Some(part.name().into()),
        container_image: spec.container_image.clone(),
        custom_service_config: first(&template.custom_service_config, &spec.custom_service_config),
        custom_service_config_secrets: config_secrets(template, spec),
        database_account: spec.database_account.clone(),
        database_hostname: Some(database.into()),
        extra_mounts: spec.extra_mounts.clone(),
        image_cache: Some(image_cache(template, spec)),
        memcached_instance: spec.memcached_instance.clone(),
        network_attachments: template.network_attachments.clone(),
        node_selector: template.node_selector.clone().or_else(|| spec.node_selector.clone()),
        r#override: Some(template.r#override.clone().unwrap_or_default()),
        password_selectors: spec.password_selectors.clone(),
        quota: Some(spec.quotas.iter().flatten().any(|(_, limit)| *limit > 0)),
        replicas: Some(template.replicas.unwrap_or(1)),
        resources: Some(template.resources.clone().unwrap_or_else(|| json!({}))),
        secret: spec.secret.clone(),
        service_account: Some(service_account(glance)),
        service_user: spec.service_user.clone(),
        storage: Some(storage(template, spec)),
        tls: Some(tls(template)),
        // A reference without a name is one of its own: it opts out.
        topology_ref: template.topology_ref.clone().or_else(|| spec.topology_ref.clone()),
        r#type: Some(layout(template).into()),
    };
    let is_registered = text(&spec.keystone_endpoint) == api;
    let metadata = ObjectMeta {
        annotations: is_registered.then(|| texts([(KEYSTONE_ENDPOINT, "true")])),
        ..named(
            &format!("{}-{api}-{}", name(&glance.metadata), part.name()),
            texts([("service", SERVICE), (API_NAME, api)]),
        )
    };
    Owner::of(glance).create("GlanceAPI", metadata, json!({"spec": without_nulls(json!(own))}))
}

/// The template's own value, or the Glance's where that is empty.
fn first(own: &Option<String>, inherited: &Option<String>) -> Option<String> {
    if non_empty(own).is_none() && non_empty(inherited).is_some() { inherited.clone() } else { own.clone() }
}

fn config_secrets(template: &GlanceApiSpec, spec: &GlanceSpec) -> Option<Vec<String>> {
    let own = &template.custom_service_config_secrets;
    let has_own = own.as_ref().is_some_and(|own| !own.is_empty());
    if has_own { own.clone() } else { spec.custom_service_config_secrets.clone().or_else(|| own.clone()) }
}

fn storage(template: &GlanceApiSpec, spec: &GlanceSpec) -> Storage {
    let (own, inherited) = (template.storage.clone().unwrap_or_default(), spec.storage.clone().unwrap_or_default());
    let one_of = |own: &Option<String>, inherited: &Option<String>| {
        non_empty(own).or_else(|| non_empty(inherited)).map(str::to_owned)
    };
    Storage {
        external: (own.external == Some(true) || inherited.external == Some(true)).then_some(true),
        storage_class: one_of(&own.storage_class, &inherited.storage_class),
        storage_request: one_of(&own.storage_request, &inherited.storage_request),
    }
}

fn image_cache(template: &GlanceApiSpec, spec: &GlanceSpec) -> ImageCache {
    let mut cache = template.image_cache.clone().unwrap_or_default();
    let inherited = spec.image_cache.as_ref().and_then(|cache| non_empty(&cache.size));
    set_default(&mut cache.size, inherited.unwrap_or_default());
    set_default(&mut cache.cleaner_scheduler, "*/30 * * * *");
    set_default(&mut cache.pruner_scheduler, "1 0 * * *");
    cache
}

fn tls(template: &GlanceApiSpec) -> GlanceTls {
    let mut tls = template.tls.clone().unwrap_or_default();
    let api = tls.api.get_or_insert_default();
    api.internal.get_or_insert_default();
    api.public.get_or_insert_default();
    tls
}

/// Removes fields that are null: applying one would set it, and own it.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k, without_nulls(v)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
