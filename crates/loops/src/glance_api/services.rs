//! The Services that a GlanceAPI is reached by.

use serde_json::{Value, json};

use crate::layout::{ApiType, KEYSTONE_ENDPOINT, PORT, SERVICE, api_name, labels, set_name};
use crate::object::{Texts, fields, namespace, owned, pairs, set, text};

/// A Service for each side, and a headless one that gives each pod a name.
pub(crate) fn services(api: &Value, cluster_domain: &str) -> Vec<Value> {
    let sides = ApiType::of(api).endpoints().iter().map(|side| endpoint(api, side, cluster_domain));
    std::iter::once(headless(api)).chain(sides).collect()
}

/// The addresses by side, as they stand in the status.
pub(crate) fn endpoints(api: &Value) -> Texts {
    let address = |side: &str| match text(&api["spec"], &format!("/override/service/{side}/endpointURL")) {
        "" => {
            let tls = !text(&api["spec"], &format!("/tls/api/{side}/secretName")).is_empty();
            let scheme = if tls { "https" } else { "http" };
            format!("{scheme}://{}.{}.svc:{PORT}", side_name(api, side), namespace(api))
        }
        url => url.to_owned(),
    };
    ApiType::of(api).endpoints().iter().map(|side| ((*side).to_owned(), address(side))).collect()
}

/// The name that the pods of a GlanceAPI share.
pub(crate) fn domain(api: &Value) -> String {
    format!("{}.{}.svc", set_name(api), namespace(api))
}

fn side_name(api: &Value, side: &str) -> String {
    format!("{SERVICE}-{}-{side}", api_name(api))
}

fn service(api: &Value, name: &str, labels: &Texts, annotations: Texts) -> Value {
    let mut service = owned(api, "v1", "Service", name, labels);
    set(&mut service["metadata"], "annotations", json!(annotations));
    service["spec"] = json!({
        "selector": crate::layout::labels(api),
        "ports": [{"name": name, "port": PORT, "protocol": "TCP", "targetPort": PORT}],
    });
    service
}

fn headless(api: &Value) -> Value {
    let annotations = pairs([("endpoint", "headless"), ("core.openstack.org/ingress_create", "false")]);
    let mut service = service(api, &set_name(api), &labels(api), annotations);
    set(&mut service["spec"], "clusterIP", "None".into());
    service
}

fn endpoint(api: &Value, side: &str, cluster_domain: &str) -> Value {
    let overrides = api["spec"].pointer(&format!("/override/service/{side}")).cloned().unwrap_or_default();
    let kind = text(&overrides, "/spec/type");
    let wants_ingress = api["metadata"]["annotations"][KEYSTONE_ENDPOINT] == "true"
        && side == "public"
        && matches!(kind, "" | "ClusterIP");
    let domain = domain(api);
    let mut labels = labels(api);
    labels.insert("endpoint".into(), side.into());
    let mut annotations = pairs([
        ("endpoint", side),
        ("core.openstack.org/ingress_create", if wants_ingress { "true" } else { "false" }),
        ("additionalSubjectNames", &format!("*.{domain},*.{domain}.{cluster_domain}")),
    ]);
    for (field, into) in [("labels", &mut labels), ("annotations", &mut annotations)] {
        for (key, value) in fields(&overrides, &format!("/metadata/{field}")) {
            into.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
    }
    let mut service = service(api, &side_name(api, side), &labels, annotations);
    for (field, value) in fields(&overrides, "/spec") {
        set(&mut service["spec"], field, value.clone());
    }
    service
}
