//! Compares the Rust types of objects with the CRD schemas: a misspelled field would silently be absent.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use stead_manifests::{Manifest, Options, manifests, recovery};
use stead_model::{Glance, GlanceApi, OpenStackControlPlane, Topology, Typed};
use stead_recovery::NodeRecovery;

/// Builds a value with every field of a schema.
fn example(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => {
            let mut fields = Map::new();
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                fields.insert(name.clone(), example(schema));
            }
            if schema["additionalProperties"].is_object() {
                fields.insert("key".into(), example(&schema["additionalProperties"]));
            }
            Value::Object(fields)
        }
        Some("array") => json!([example(&schema["items"])]),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        _ if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        _ => json!("text"),
    }
}

/// Builds an object with every field of its CRD's schema.
fn object(definition: &Manifest) -> Value {
    let mut object = example(&definition.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    object["metadata"] = json!({"name": "x"});
    object
}

/// Reads the object into the type and writes it again.
fn read<T: DeserializeOwned + Serialize>(given: &Value) -> Value {
    let read: T = serde_json::from_value(given.clone()).expect("the type can read every field");
    serde_json::to_value(&read).expect("it can be written")
}

/// The fields of a GlanceAPI's spec that a template in a Glance does not have: Glance sets them.
const SET_BY_GLANCE: [&str; 10] = [
    "apiType",
    "databaseAccount",
    "databaseHostname",
    "extraMounts",
    "memcachedInstance",
    "passwordSelectors",
    "quota",
    "secret",
    "serviceAccount",
    "serviceUser",
];

/// Collects the fields of the type that the schema does not have, or that have another value.
fn compare(path: &str, read: &Value, given: &Value, faults: &mut Vec<String>) {
    match (read, given) {
        (_, Value::Null) => {
            let in_template = path.rsplit_once("glanceAPIs.key.");
            if !in_template.is_some_and(|(_, field)| SET_BY_GLANCE.contains(&field)) {
                faults.push(format!("{path} is not in the schema"));
            }
        }
        (Value::Object(fields), _) => {
            for (name, value) in fields {
                compare(&format!("{path}.{name}"), value, &given[name], faults);
            }
        }
        (Value::Array(items), _) => {
            for (i, item) in items.iter().enumerate() {
                compare(&format!("{path}[{i}]"), item, &given[i], faults);
            }
        }
        (read, given) if read == given => {}
        _ => faults.push(format!("{path} is {read}, not {given}")),
    }
}

fn check<T: Typed + Serialize>(faults: &mut Vec<String>) {
    let all = manifests(&Options::default());
    let is_of_type = |m: &&Manifest| m.is_definition() && m.object["spec"]["names"]["kind"] == T::KIND;
    let given = object(all.iter().find(is_of_type).expect("a definition"));
    let read = read::<T>(&given);
    for part in ["spec", "status"] {
        compare(&format!("{}.{part}", T::KIND), &read[part], &given[part], faults);
    }
}

/// These types have only the fields that Stead reads.
#[test]
fn every_field_of_a_type_is_in_the_schema() {
    let mut faults = Vec::new();
    check::<Topology>(&mut faults);
    check::<Glance>(&mut faults);
    check::<GlanceApi>(&mut faults);
    check::<OpenStackControlPlane>(&mut faults);
    assert_eq!(faults, Vec::<String>::new());
}

/// A Glance copies these to its GlanceAPIs, and a control plane to its Glance: no field may be lost.
#[test]
fn copied_specs_have_every_field_of_the_schema() {
    let all = manifests(&Options::default());
    for (kind, read) in [("Glance", read::<Glance> as fn(&Value) -> Value), ("GlanceAPI", read::<GlanceApi>)] {
        let given = all.iter().find(|m| m.is_definition() && m.object["spec"]["names"]["kind"] == kind);
        let given = object(given.expect("a definition"));
        let mut faults = Vec::new();
        compare(kind, &given["spec"], &read(&given)["spec"], &mut faults);
        assert_eq!(faults, Vec::<String>::new());
    }
}

/// Stead writes and reads NodeRecoveries: no field may be lost.
#[test]
fn a_node_recovery_has_exactly_the_fields_of_the_schema() {
    let mut given = object(&recovery());
    given["spec"]["plan"]["pods"][0]["target"] = json!("gone");
    let read = read::<NodeRecovery>(&given);
    for part in ["spec", "status"] {
        assert_eq!(read[part], given[part], "{part}");
    }
}
