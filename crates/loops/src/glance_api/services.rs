//! The Services of a GlanceAPI.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use stead_model::{GlanceApi, ServiceOverride};

use crate::layout::{ApiType, Endpoint, KEYSTONE_ENDPOINT, PORT, SERVICE, api_name, labels, set_name};
use crate::metadata::{Texts, annotation, namespace, texts};
use crate::optional::non_empty;
use crate::owner::{Owner, WantedObject, named};

/// A Service for each endpoint, and a headless one that gives each pod a name.
pub(crate) fn services(api: &GlanceApi, cluster_domain: &str) -> Vec<WantedObject> {
    let endpoints = ApiType::of(api).endpoints().iter();
    let services = endpoints.map(|endpoint| endpoint_service(api, *endpoint, cluster_domain));
    std::iter::once(headless(api)).chain(services).collect()
}

/// The addresses by endpoint, for the status.
pub(crate) fn endpoints(api: &GlanceApi) -> Texts {
    let address = |endpoint: Endpoint| match overrides(api, endpoint).and_then(|o| non_empty(&o.endpoint_url)) {
        None => {
            let scheme = if endpoint.certificate(&api.spec).is_some() { "https" } else { "http" };
            format!("{scheme}://{}.{}.svc:{PORT}", endpoint_name(api, endpoint), namespace(&api.metadata))
        }
        Some(url) => url.to_owned(),
    };
    let endpoints = ApiType::of(api).endpoints().iter();
    endpoints.map(|endpoint| (endpoint.name().to_owned(), address(*endpoint))).collect()
}

/// The domain of the pods of a GlanceAPI.
pub(crate) fn domain(api: &GlanceApi) -> String {
    format!("{}.{}.svc", set_name(api), namespace(&api.metadata))
}

fn endpoint_name(api: &GlanceApi, endpoint: Endpoint) -> String {
    format!("{SERVICE}-{}-{}", api_name(api), endpoint.name())
}

fn overrides(api: &GlanceApi, endpoint: Endpoint) -> Option<&ServiceOverride> {
    api.spec.r#override.as_ref()?.service.as_ref()?.get(endpoint.name())
}

/// A Service with more fields in its spec.
fn service(
    api: &GlanceApi,
    name: &str,
    labels: Texts,
    annotations: Texts,
    fields: impl IntoIterator<Item = (String, Value)>,
) -> WantedObject {
    let metadata = ObjectMeta { annotations: Some(annotations), ..named(name, labels) };
    let ports = json!([{"name": name, "port": PORT, "protocol": "TCP", "targetPort": PORT}]);
    let mut spec =
        Map::from_iter([("selector".to_owned(), json!(crate::layout::labels(api))), ("ports".to_owned(), ports)]);
    spec.extend(fields);
    Owner::of(api).create("Service", metadata, json!({"spec": spec}))
}

fn headless(api: &GlanceApi) -> WantedObject {
    let annotations = texts([("endpoint", "headless"), ("core.openstack.org/ingress_create", "false")]);
    service(api, &set_name(api), labels(api), annotations, [("clusterIP".to_owned(), "None".into())])
}

fn endpoint_service(api: &GlanceApi, endpoint: Endpoint, cluster_domain: &str) -> WantedObject {
    let overrides = overrides(api, endpoint).cloned().unwrap_or_default();
    let spec = overrides.spec.unwrap_or_default();
    let is_cluster_ip = matches!(spec.get("type").and_then(Value::as_str), None | Some("" | "ClusterIP"));
    let is_registered = annotation(&api.metadata, KEYSTONE_ENDPOINT) == Some("true");
    let wants_ingress = is_registered && endpoint == Endpoint::Public && is_cluster_ip;
    let domain = domain(api);
    let mut labels = labels(api);
    labels.insert("endpoint".into(), endpoint.name().into());
    let mut annotations = texts([
        ("endpoint", endpoint.name()),
        ("core.openstack.org/ingress_create", if wants_ingress { "true" } else { "false" }),
        ("additionalSubjectNames", &format!("*.{domain},*.{domain}.{cluster_domain}")),
    ]);
    let metadata = overrides.metadata.unwrap_or_default();
    labels.extend(metadata.labels.unwrap_or_default());
    annotations.extend(metadata.annotations.unwrap_or_default());
    service(api, &endpoint_name(api, endpoint), labels, annotations, spec)
}
