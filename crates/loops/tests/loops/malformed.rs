//! Objects with a field of the wrong type: their conditions name it, and nothing is created for them.

use serde_json::{Value, json};

use crate::fake::Cluster;

#[test]
fn a_malformed_object_is_reported_in_its_conditions() {
    for (kind, spec, condition, message) in [
        (
            "Glance",
            json!({"storage": {"external": "yes"}}),
            "InputReady",
            "glance case/x: spec.storage.external: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "Glance",
            json!({"glanceAPIs": {"default": {"replicas": "3"}}}),
            "InputReady",
            "glance case/x: spec.glanceAPIs.default.replicas: invalid type: string \"3\", expected i32",
        ),
        (
            "GlanceAPI",
            json!({"override": {"service": {"public": {"endpointURL": 7}}}}),
            "InputReady",
            "glanceapi case/x: spec.override.service.public.endpointURL: invalid type: integer `7`, expected a string",
        ),
        (
            "OpenStackControlPlane",
            json!({"glance": {"template": {"extraMounts": [{"extraVol": "none"}]}}}),
            "InputReady",
            "openstackcontrolplane case/x: spec.glance.template.extraMounts[0].extraVol: invalid type: string \"none\", \
             expected a sequence",
        ),
        (
            "Topology",
            json!("spread"),
            "Satisfiable",
            "topology case/x: spec: invalid type: string \"spread\", expected",
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.create(kind, json!({"metadata": {"name": "x"}, "spec": spec}));
        cluster.settle(&json!({}));
        let object = cluster.find(kind, "x").expect("it exists");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let reported = conditions.iter().find(|c| c["type"] == condition);
        let text = reported.and_then(|c| c["message"].as_str()).unwrap_or_default();
        assert!(text.contains(message), "{kind}: {message}\n{object:#}");
        assert_ne!(reported.map_or(&Value::Null, |c| &c["status"]), "True", "{object:#}");
        for created in ["Glance", "GlanceAPI", "StatefulSet", "Service", "Secret", "ServiceAccount"] {
            assert!(created == kind || cluster.find(created, "glance").is_none(), "{kind}: {created} was created");
        }
        assert!(object["metadata"]["finalizers"].is_null(), "{object:#}");
    }
}

#[test]
fn unknown_fields_and_nulls_are_ignored() {
    let mut cluster = Cluster::new();
    cluster.create(
        "Topology",
        json!({"metadata": {"name": "x"}, "spec": {"later": {"a": 1}, "affinity": null}, "status": null}),
    );
    cluster.settle(&json!({}));
    let topology = cluster.find("Topology", "x").expect("it exists");
    let satisfiable = &topology["status"]["conditions"][0];
    assert_eq!(satisfiable["type"], "Satisfiable", "{topology:#}");
    assert_ne!(satisfiable["reason"], "Malformed", "{topology:#}");
}
