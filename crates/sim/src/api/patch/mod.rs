//! Changes of parts of an object: patches (`patch.rs` of kube-apiserver's handlers) and server-side apply
//! (`k8s.io/apimachinery/pkg/util/managedfields`). They are rare, so they go through JSON.

mod managed_fields;
mod schema;
mod strategic;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

use self::schema::Place;
use super::{ApiServer, Request, strategy, whole_seconds};
use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::step::{ObjectPart, Patch};
use crate::store::Change;

/// What identifies an object or is set by the API server: nobody owns it.
const NOT_OWNED: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "managedFields",
];
/// The answer to a strategic merge patch of a custom resource.
const UNKNOWN_FORMAT: &str = "the body of the request was in an unknown format - accepted media types include: \
                              application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl ApiServer {
    /// Changes an object by a patch. A version or UID in the patch has to be that of the object.
    pub(super) fn patch(
        &mut self,
        request: &mut Request<'_>,
        key: &SimKey,
        patch: &Patch,
        part: ObjectPart,
    ) -> Result<Option<Change>, ApiError> {
        let Some(before) = self.store.object(key) else { return Err(ApiError::NotFound(key.clone())) };
        let mut value = before.to_json();
        match patch {
            Patch::Merge(patch) => json_patch::merge(&mut value, patch),
            Patch::Strategic(_) if strategy::is_custom(key.kind.entry()) => return Err(bad_request(UNKNOWN_FORMAT)),
            Patch::Strategic(patch) => strategic::apply(&mut value, patch, Place::root(key.kind.entry())),
            Patch::Json(patch) => {
                let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(bad_request)?;
                json_patch::patch(&mut value, &patch).map_err(|error| ApiError::Invalid {
                    key: key.clone(),
                    message: format!("the server rejected our request due to an error in our request: {error}"),
                })?;
            }
        }
        let mut object = SimObject::from_json(&value).map_err(bad_request)?;
        if object.key() != *key {
            return Err(bad_request("the name of the object does not match the name on the URL"));
        }
        self.replace(request, &mut object, part, None)
    }

    /// Server-side apply. Fields that others own are taken over (`force`).
    pub(super) fn apply(
        &mut self,
        request: &mut Request<'_>,
        object: &Value,
        manager: &str,
        part: ObjectPart,
    ) -> Result<Option<Change>, ApiError> {
        let wanted = SimObject::from_json(object).map_err(bad_request)?;
        let key = wanted.key();
        let place = Place::root(key.kind.entry());
        let applied = applied_part(object, part);
        let set = managed_fields::fields_of(&owned_part(&applied), place);
        let Some(before) = self.store.object(&key) else {
            if part == ObjectPart::Status {
                return Err(ApiError::NotFound(key));
            }
            if !wanted.uid().is_empty() {
                let message = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    wanted.uid()
                );
                return Err(ApiError::Conflict { key, message });
            }
            let mut new = SimObject::from_json(&applied).map_err(bad_request)?;
            new.metadata_mut().managed_fields = Some(vec![entry(&key, manager, part, set, request.now)]);
            return self.create(request, &mut new).map(Some);
        };
        let mut value = before.to_json();
        let entries = before.metadata().managed_fields.clone().unwrap_or_default();
        managed_fields::merge(&mut value, &applied, place);
        let own = entries.iter().find(|entry| is_of(entry, manager, part));
        if let Some(before) = own.and_then(fields) {
            let others = entries.iter().filter(|entry| !is_of(entry, manager, part)).filter_map(fields);
            let kept: Vec<&Map<String, Value>> = others.chain([&set]).collect();
            managed_fields::prune(&mut value, before, &kept);
        }
        let mut object = SimObject::from_json(&value).map_err(bad_request)?;
        // An apply that owns the same fields as before keeps its time.
        let same = own.filter(|own| fields(own) == Some(&set)).cloned();
        let new = same.unwrap_or_else(|| entry(&key, manager, part, set, request.now));
        let mut entries: Vec<ManagedFieldsEntry> =
            entries.into_iter().filter(|entry| !is_of(entry, manager, part)).collect();
        entries.push(new);
        object.metadata_mut().managed_fields = Some(entries);
        self.replace(request, &mut object, part, Some(manager))
    }
}

fn bad_request(error: impl ToString) -> ApiError {
    ApiError::BadRequest { message: error.to_string() }
}

/// The fields of an applied object that the request may set.
fn applied_part(object: &Value, part: ObjectPart) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        match part {
            ObjectPart::Spec => {
                fields.remove("status");
            }
            ObjectPart::Status => {
                fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"))
            }
        }
        if let (ObjectPart::Status, Some(metadata)) = (part, fields.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.retain(|name, _| NOT_OWNED.contains(&name.as_str()));
        }
    }
    object
}

/// The fields of an applied object that somebody can own.
fn owned_part(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !NOT_OWNED.contains(&name.as_str()));
            if metadata.is_empty() {
                fields.remove("metadata");
            }
        }
    }
    object
}

fn subresource(part: ObjectPart) -> Option<&'static str> {
    match part {
        ObjectPart::Spec => None,
        ObjectPart::Status => Some("status"),
    }
}

fn entry(key: &SimKey, manager: &str, part: ObjectPart, set: Map<String, Value>, now: Timestamp) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        api_version: Some(key.kind.entry().api_version.to_owned()),
        fields_type: Some("FieldsV1".into()),
        fields_v1: Some(FieldsV1(Value::Object(set))),
        manager: Some(manager.to_owned()),
        operation: Some("Apply".into()),
        subresource: subresource(part).map(str::to_owned),
        time: Some(whole_seconds(now)),
    }
}

fn is_of(entry: &ManagedFieldsEntry, manager: &str, part: ObjectPart) -> bool {
    let of = entry.subresource.as_deref().filter(|name| !name.is_empty());
    is_applied(entry) && entry.manager.as_deref() == Some(manager) && of == subresource(part)
}

fn is_applied(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some("Apply")
}

fn fields(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref()?.0.as_object()
}

/// Who changes a field that somebody else applied takes it over. `manager` is who makes the change by an apply.
pub(super) fn disown_changes(object: &mut SimObject, before: &SimObject, manager: Option<&str>) {
    let is_foreign = |entry: &&mut ManagedFieldsEntry| is_applied(entry) && entry.manager.as_deref() != manager;
    if !object.metadata().managed_fields.iter().flatten().any(is_applied) {
        return;
    }
    let (old, new) = (before.to_json(), object.to_json());
    for entry in object.metadata_mut().managed_fields.iter_mut().flatten().filter(is_foreign) {
        if let Some(kept) = fields(entry).map(|set| managed_fields::unchanged(set, &old, &new)) {
            entry.fields_v1 = Some(FieldsV1(Value::Object(kept)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::settings::Settings;
    use serde_json::json;

    fn deployment(spec: Value) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "n" }, "spec": spec })
    }

    fn run<T>(act: impl FnOnce(&mut ApiServer, &mut Request<'_>) -> T, objects: &[Value]) -> (T, ApiServer) {
        let objects = objects.iter().map(|object| SimObject::from_json(object).expect("an object"));
        let mut server = ApiServer::with_objects(&Settings::default(), objects);
        let (settings, mut choices) = (Settings::default(), Choices::seeded(1));
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let result = act(&mut server, &mut Request { now, settings: &settings, choices: &mut choices });
        (result, server)
    }

    #[test]
    fn strategic_merge_patches() {
        let object = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "finalizers": ["a/a", "b/b"], "labels": { "x": "1", "y": "2" } },
            "spec": { "containers": [
                    { "name": "a", "image": "1", "env": [{ "name": "E", "value": "1" }, { "name": "F", "value": "2" }],
                      "ports": [{ "containerPort": 80, "name": "web" }] },
                    { "name": "b", "image": "1", "args": ["x", "y"] }],
                "volumes": [{ "name": "v", "emptyDir": {} }],
                "tolerations": [{ "key": "t" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "True" }] } });
        for (what, patch, pointer, expected) in [
            (
                "a field",
                json!({ "metadata": { "labels": { "x": "3" } } }),
                "/metadata/labels",
                json!({ "x": "3", "y": "2" }),
            ),
            (
                "null removes",
                json!({ "metadata": { "labels": { "x": null } } }),
                "/metadata/labels",
                json!({ "y": "2" }),
            ),
            (
                "a container by its name",
                json!({ "spec": { "containers": [{ "name": "b", "image": "2" }] } }),
                "/spec/containers/1",
                json!({ "name": "b", "image": "2", "args": ["x", "y"] }),
            ),
            (
                "a variable by its name",
                json!({ "spec": { "containers": [{ "name": "a", "env": [{ "name": "F", "$patch": "delete" }, { "name": "G", "value": "3" }] }] } }),
                "/spec/containers/0/env",
                json!([{ "name": "G", "value": "3" }, { "name": "E", "value": "1" }]),
            ),
            (
                "a port by its number",
                json!({ "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 80, "name": "w" }, { "containerPort": 81 }] }] } }),
                "/spec/containers/0/ports",
                json!([{ "containerPort": 80, "name": "w" }, { "containerPort": 81 }]),
            ),
            (
                "arguments as a whole",
                json!({ "spec": { "containers": [{ "name": "b", "args": ["z"] }] } }),
                "/spec/containers/1/args",
                json!(["z"]),
            ),
            (
                "tolerations as a whole",
                json!({ "spec": { "tolerations": [{ "key": "u" }] } }),
                "/spec/tolerations",
                json!([{ "key": "u" }]),
            ),
            (
                "a new order",
                json!({ "spec": { "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] } }),
                "/spec/containers/0/name",
                json!("b"),
            ),
            (
                "another source of a volume",
                json!({ "spec": { "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/" } }] } }),
                "/spec/volumes",
                json!([{ "name": "v", "hostPath": { "path": "/" } }]),
            ),
            (
                "a list that is replaced",
                json!({ "spec": { "containers": [{ "$patch": "replace" }, { "name": "c" }] } }),
                "/spec/containers",
                json!([{ "name": "c" }]),
            ),
            (
                "finalizers are a set",
                json!({ "metadata": { "finalizers": ["c/c", "a/a"] } }),
                "/metadata/finalizers",
                json!(["c/c", "a/a", "b/b"]),
            ),
            (
                "new items come first",
                json!({ "status": { "conditions": [{ "type": "New", "status": "True" }] } }),
                "/status/conditions/0/type",
                json!("New"),
            ),
            (
                "a finalizer is removed",
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/a"] } }),
                "/metadata/finalizers",
                json!(["b/b"]),
            ),
            (
                "a condition by its type",
                json!({ "status": { "conditions": [{ "type": "Other", "status": "False" }] } }),
                "/status/conditions",
                json!([{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }]),
            ),
        ] {
            let mut patched = object.clone();
            strategic::apply(&mut patched, &patch, Place::root(stead_model::Kind::known("Pod")));
            assert_eq!(patched.pointer(pointer), Some(&expected), "{what}");
        }
    }

    #[test]
    fn patches_of_the_server() {
        let object = deployment(json!({ "replicas": 1, "selector": {}, "template": { "spec": { "containers": [] } } }));
        let key = SimObject::from_json(&object).expect("an object").key();
        let replicas = |patch: Patch, part: ObjectPart| {
            let (answer, server) =
                run(|server, request| server.patch(request, &key, &patch, part), std::slice::from_ref(&object));
            answer.map_err(|error| error.code())?;
            Ok::<_, u16>(server.store().object(&key).expect("it stays").to_json()["spec"]["replicas"].clone())
        };
        let spec = json!({ "spec": { "replicas": 3 } });
        for (what, patch, part, expected) in [
            ("merge", Patch::Merge(spec.clone()), ObjectPart::Spec, Ok(json!(3))),
            ("strategic", Patch::Strategic(spec.clone()), ObjectPart::Spec, Ok(json!(3))),
            (
                "JSON",
                Patch::Json(json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }])),
                ObjectPart::Spec,
                Ok(json!(3)),
            ),
            (
                "a removed default comes back",
                Patch::Merge(json!({ "spec": { "replicas": null } })),
                ObjectPart::Spec,
                Ok(json!(1)),
            ),
            ("the status does not change the spec", Patch::Merge(spec), ObjectPart::Status, Ok(json!(1))),
            ("a wrong type", Patch::Merge(json!({ "spec": { "replicas": "x" } })), ObjectPart::Spec, Err(400)),
            ("another name", Patch::Merge(json!({ "metadata": { "name": "e" } })), ObjectPart::Spec, Err(400)),
            (
                "an old version",
                Patch::Merge(json!({ "metadata": { "resourceVersion": "1" } })),
                ObjectPart::Spec,
                Err(409),
            ),
            ("another UID", Patch::Merge(json!({ "metadata": { "uid": "u" } })), ObjectPart::Spec, Err(409)),
        ] {
            assert_eq!(replicas(patch, part), expected, "{what}");
        }
    }

    /// Applies some versions of an object, one after the other, and gives what is there at the end.
    fn applied(steps: &[(&str, Value)]) -> Value {
        let act = |server: &mut ApiServer, request: &mut Request<'_>| {
            for (manager, object) in steps {
                server.apply(request, object, manager, ObjectPart::Spec).expect("applied");
            }
        };
        let ((), server) = run(act, &[]);
        let key = SimObject::from_json(&steps[0].1).expect("an object").key();
        server.store().object(&key).expect("it is there").to_json()
    }

    #[test]
    fn an_apply_removes_what_the_same_manager_does_not_apply_any_more() {
        let config = |labels: Value, containers: Value| {
            let mut object = deployment(json!({ "selector": { "matchLabels": { "a": "b" } },
                "template": { "spec": { "containers": containers } } }));
            object["metadata"]["labels"] = labels;
            object
        };
        let one = json!([{ "name": "a", "image": "i:1" }]);
        let two = json!([{ "name": "a", "image": "i:1" }, { "name": "b", "image": "i:1" }]);
        let with_env = json!([{ "name": "a", "image": "i:1", "env": [{ "name": "E", "value": "1" }] }]);
        let names = |object: &Value| -> Vec<String> {
            let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            containers.iter().map(|container| container["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let labels = json!({ "x": "1" });
        // A dropped label, and an item of a list.
        let found = applied(&[("s", config(labels.clone(), two.clone())), ("s", config(json!({}), one.clone()))]);
        assert_eq!((found["metadata"].get("labels"), names(&found)), (None, vec!["a".to_owned()]));
        // The same, but another manager applied the label too.
        let found = applied(&[
            ("s", config(labels.clone(), two.clone())),
            ("t", config(labels.clone(), one.clone())),
            ("s", config(json!({}), one.clone())),
        ]);
        assert_eq!((found["metadata"]["labels"].clone(), names(&found)), (labels, vec!["a".to_owned()]));
        // A field of an item; defaults of the item stay.
        let found = applied(&[("s", config(json!({}), with_env)), ("s", config(json!({}), one))]);
        let container = &found["spec"]["template"]["spec"]["containers"][0];
        assert_eq!((container.get("env"), container["imagePullPolicy"].as_str()), (None, Some("IfNotPresent")));
    }

    #[test]
    fn fields_are_recorded_as_kubernetes_does() {
        let found = applied(&[(
            "stead",
            deployment(json!({ "replicas": 2, "selector": { "matchLabels": { "a": "b" } },
            "template": { "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 80 }] }] } } })),
        )]);
        let entry = &found["metadata"]["managedFields"][0];
        assert_eq!(
            *entry,
            json!({ "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "stead", "operation": "Apply",
                "time": "2027-01-15T08:00:00Z",
                "fieldsV1": { "f:spec": { "f:replicas": {}, "f:selector": {}, "f:template": { "f:spec": { "f:containers": {
                    "k:{\"name\":\"a\"}": { ".": {}, "f:name": {}, "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } } } } } } } } })
        );
    }

    #[test]
    fn who_changes_a_field_takes_it_over() {
        let object = |replicas: i32| {
            deployment(json!({ "replicas": replicas, "paused": false, "selector": {},
            "template": { "spec": { "containers": [] } } }))
        };
        let act = |server: &mut ApiServer, request: &mut Request<'_>| {
            server.apply(request, &object(2), "s", ObjectPart::Spec).expect("applied");
            let key = SimObject::from_json(&object(2)).expect("an object").key();
            let patch = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
            server.patch(request, &key, &patch, ObjectPart::Spec).expect("patched");
            // Not owned any more: a later apply without the field leaves it.
            let mut without = object(2);
            without["spec"].as_object_mut().expect("a spec").remove("replicas");
            server.apply(request, &without, "s", ObjectPart::Spec).expect("applied");
            key
        };
        let (key, server) = run(act, &[]);
        let found = server.store().object(&key).expect("it is there").to_json();
        assert_eq!(found["spec"]["replicas"], 5);
        assert_eq!(found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].get("f:replicas"), None);
    }

    #[test]
    fn an_apply_of_the_same_changes_nothing_and_the_status_is_apart() {
        let object = deployment(json!({ "replicas": 2, "selector": {}, "template": { "spec": { "containers": [] } } }));
        let status = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "n" },
            "spec": { "replicas": 7 }, "status": { "readyReplicas": 2 } });
        let act = |server: &mut ApiServer, request: &mut Request<'_>| {
            let first = server.apply(request, &object, "s", ObjectPart::Spec).expect("applied").is_some();
            let again = server.apply(request, &object, "s", ObjectPart::Spec).expect("applied").is_some();
            server.apply(request, &status, "s", ObjectPart::Status).expect("applied");
            (first, again)
        };
        let (changed, server) = run(act, &[]);
        assert_eq!(changed, (true, false));
        let key = SimObject::from_json(&object).expect("an object").key();
        let found = server.store().object(&key).expect("it is there").to_json();
        assert_eq!((found["spec"]["replicas"].as_i64(), found["status"]["readyReplicas"].as_i64()), (Some(2), Some(2)));
        let subresources: Vec<&Value> = found["metadata"]["managedFields"]
            .as_array()
            .expect("entries")
            .iter()
            .map(|entry| &entry["subresource"])
            .collect();
        assert_eq!(subresources, [&Value::Null, &json!("status")]);
    }
}
