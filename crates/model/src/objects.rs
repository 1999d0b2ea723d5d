//! A cluster's objects by kind, namespace and name.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::json::JsonRef;
use crate::key::ObjectKey;
use crate::kinds::placement_kinds;
use crate::kubernetes_version::KubernetesVersion;
use crate::outline::PodOutline;
use crate::tokens::Tokens;
use crate::typed::{ParsedJson, Typed, parse_json};
use crate::unread::{ObjectText, UnreadObject};
use crate::workload_outline::WorkloadOutline;

/// A cluster's objects. A fork (a clone) shares them and keeps its own changes beside them.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    found: Arc<BTreeMap<ObjectKey, Object>>,
    /// The objects that differ from what was found; none for a deleted one.
    changed: BTreeMap<ObjectKey, Option<Arc<Object>>>,
    version: KubernetesVersion,
}

/// One object: its JSON, and its Kubernetes type once somebody has asked for it.
pub struct Object {
    /// The JSON as it was read; none where that was a value.
    text: Option<ObjectText>,
    raw: OnceLock<Value>,
    /// None where it could not be parsed.
    typed: OnceLock<Option<Box<dyn Any + Send + Sync>>>,
    outline: OnceLock<Box<PodOutline>>,
    workload_outline: OnceLock<Box<WorkloadOutline>>,
    /// What is wrong with it, once somebody has come across that.
    fault: OnceLock<Box<ModelError>>,
}

impl Object {
    /// An object that nobody has asked for yet.
    pub fn new(raw: Value) -> Object {
        Object::of(None, OnceLock::from(raw))
    }

    fn of(text: Option<ObjectText>, raw: OnceLock<Value>) -> Object {
        Object {
            text,
            raw,
            typed: OnceLock::new(),
            outline: OnceLock::new(),
            workload_outline: OnceLock::new(),
            fault: OnceLock::new(),
        }
    }

    fn raw(&self) -> &Value {
        self.raw.get_or_init(|| self.text.as_ref().map(ObjectText::value).unwrap_or_default())
    }

    /// Reads something out of the JSON, without keeping the rest.
    fn read_json<T>(&self, read: impl FnOnce(JsonRef<'_>) -> T) -> Result<T, serde_json::Error> {
        self.read_json_without(|_, _| false, read)
    }

    /// The same where fields that are not needed, by depth and name, may be missing.
    fn read_json_without<T>(
        &self,
        is_not_needed: impl Fn(usize, &str) -> bool,
        read: impl FnOnce(JsonRef<'_>) -> T,
    ) -> Result<T, serde_json::Error> {
        match self.text.as_ref().filter(|_| self.raw.get().is_none()) {
            Some(text) => Ok(read(Tokens::of_text(text.text.as_str(), is_not_needed)?.root())),
            None => Ok(read(JsonRef::Value(self.raw()))),
        }
    }
}

impl From<UnreadObject> for Object {
    fn from(unread: UnreadObject) -> Object {
        match unread {
            UnreadObject::Value(value) => Object::new(value),
            UnreadObject::Text(text) => Object::of(Some(text), OnceLock::new()),
        }
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.raw().fmt(f)
    }
}

/// One of the objects.
#[derive(Debug, Clone, Copy)]
pub struct ObjectRef<'a> {
    key: &'a ObjectKey,
    object: &'a Object,
}

impl<'a> ObjectRef<'a> {
    /// An object that is kept under this key.
    pub fn new(key: &'a ObjectKey, object: &'a Object) -> ObjectRef<'a> {
        ObjectRef { key, object }
    }

    /// Its key.
    pub fn key(self) -> &'a ObjectKey {
        self.key
    }

    /// Its JSON: for patches, and for data that is passed through.
    pub fn raw(self) -> &'a Value {
        self.object.raw()
    }

    /// Its metadata, whatever its kind.
    pub fn metadata(self) -> Result<ObjectMeta, ModelError> {
        let parse = |json: JsonRef<'_>| {
            let metadata = json.field("metadata").unwrap_or(JsonRef::Value(&Value::Null));
            parse_json(self.key, ParsedJson(metadata)).map_err(|error| error.below("metadata"))
        };
        let others = |depth: usize, name: &str| depth == 0 && name != "metadata";
        self.object.read_json_without(others, parse).unwrap_or_else(|error| Err(self.not_json(&error)))
    }

    /// The object as its Kubernetes type, which is kept.
    pub fn typed<T: Typed>(self) -> Result<&'a T, ModelError> {
        debug_assert_eq!(T::KIND, self.key.kind, "a kind is read as its own type");
        let parsed = self.object.typed.get_or_init(|| {
            let mut parsed: T = self.parse(|_, _| false).ok()?;
            // The raw object has the fields of each manager; a copy of them would be larger than everything else.
            for entry in parsed.metadata_mut().managed_fields.iter_mut().flatten() {
                entry.fields_v1 = None;
            }
            Some(Box::new(parsed))
        });
        match parsed.as_ref().and_then(|parsed| parsed.downcast_ref()) {
            Some(parsed) => Ok(parsed),
            None => Err(self.parse::<T>(|_, _| false).err().unwrap_or_else(|| ModelError::NotFound(self.key.clone()))),
        }
    }

    /// The object as its Kubernetes type, which is not kept unless somebody has asked for it before: for a walk over all
    /// objects of a large cluster. Its managed fields may be missing.
    pub fn read<T: Typed>(self) -> Result<Cow<'a, T>, ModelError> {
        match self.object.typed.get() {
            Some(_) => self.typed().map(Cow::Borrowed),
            None => self.parse(|depth, name| depth == 1 && name == "managedFields").map(Cow::Owned),
        }
    }

    fn parse<T: Typed>(self, is_not_needed: impl Fn(usize, &str) -> bool) -> Result<T, ModelError> {
        let parse = |json: JsonRef<'_>| {
            if self.key.kind == "Pod" {
                // The tokens are at hand: this takes no further walk over all pods.
                self.object.outline.get_or_init(|| Box::new(PodOutline::of(json)));
            }
            T::from_json(self.key, ParsedJson(json))
        };
        let parsed = self.object.read_json_without(is_not_needed, parse);
        let parsed = parsed.unwrap_or_else(|error| Err(self.not_json(&error)));
        parsed.inspect_err(|error| self.report(error.clone()))
    }

    /// Its text is JSON that a value cannot represent, such as one that is nested too deeply.
    fn not_json(self, error: &serde_json::Error) -> ModelError {
        ModelError::malformed(self.key, ".", error)
    }

    /// What a walk over all pods looks at.
    pub fn outline(self) -> &'a PodOutline {
        let read = || self.object.read_json_without(PodOutline::does_not_need, PodOutline::of);
        self.object.outline.get_or_init(|| Box::new(read().unwrap_or_default()))
    }

    /// What a walk over all workloads looks at.
    pub fn workload_outline(self) -> &'a WorkloadOutline {
        let of = |json: JsonRef<'_>| WorkloadOutline::of(&self.key.kind, json);
        let read = || self.object.read_json_without(WorkloadOutline::does_not_need, of);
        self.object.workload_outline.get_or_init(|| Box::new(read().unwrap_or_default()))
    }

    /// Whether its deletion was requested. Most objects are not being deleted, and are recognized without being parsed.
    pub fn is_being_deleted(self) -> bool {
        let field = "deletionTimestamp";
        if self.object.text.as_ref().is_some_and(|text| !text.text.as_str().contains(field)) {
            return false;
        }
        let others = |depth: usize, name: &str| depth == 0 && name != "metadata";
        let has_time = |json: JsonRef<'_>| json.field("metadata")?.field(field)?.text().map(drop);
        self.object.read_json_without(others, has_time).is_ok_and(|time| time.is_some())
    }

    /// Calls `visit` with each field that is a time in UTC, at any depth.
    pub fn each_time(self, mut visit: impl FnMut(&str, &str)) {
        match self.object.text.as_ref() {
            Some(text) => text.each_time(&mut visit),
            // What cannot be parsed has no fields; whoever asks for the object learns why.
            None => drop(self.object.read_json(|json| json.each_text(&mut visit))),
        }
    }

    /// Notes that something is wrong with the object: it becomes one of [`Objects::warnings`].
    pub fn report(self, error: ModelError) {
        // Only the first is kept: what comes later follows from it as a rule.
        let _ = self.object.fault.set(Box::new(error));
    }
}

impl Objects {
    /// From objects that have `apiVersion` and `kind`. An object of another API group that has the name of a known kind is
    /// left out, apart from OpenShift's configuration of nodes ([`crate::NODE_CONFIG`]).
    pub fn from_items(items: impl IntoIterator<Item = impl Into<UnreadObject>>) -> Objects {
        let items = items.into_iter().filter_map(|item| item.into().normalized());
        Objects::new(items.map(|(key, item)| (key, item.into())).collect())
    }

    /// From a recorded scheduler case, whose lists say which kind their items are; with the key of the pod to place.
    pub fn from_case(mut given: Map<String, Value>) -> Result<(Objects, ObjectKey), ModelError> {
        let malformed = |field: String, reason: &str| ModelError::malformed("case", field, reason);
        let mut found = BTreeMap::new();
        for (kind, list) in placement_kinds().filter_map(|kind| Some((kind, kind.case_list?))) {
            let items = match given.remove(list) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items,
                Some(_) => return Err(malformed(list.into(), "not a list")),
            };
            for (i, item) in items.into_iter().enumerate() {
                let key = ObjectKey::of_kind(kind.kind, &item)
                    .ok_or_else(|| malformed(format!("{list}[{i}].metadata.name"), "missing"))?;
                found.insert(key, Object::new(item));
            }
        }
        let pod = given.remove("pod").ok_or_else(|| malformed("pod".into(), "missing"))?;
        let key = ObjectKey::of_kind("Pod", &pod).ok_or_else(|| malformed("pod.metadata.name".into(), "missing"))?;
        found.insert(key.clone(), Object::new(pod));
        Ok((Objects::new(found), key))
    }

    fn new(found: BTreeMap<ObjectKey, Object>) -> Objects {
        Objects { found: Arc::new(found), changed: BTreeMap::new(), version: KubernetesVersion::default() }
    }

    /// The objects from a key on, in order.
    fn iter_from(&self, from: ObjectKey) -> impl Iterator<Item = ObjectRef<'_>> {
        let kept = self.found.range(from.clone()..).filter(|(key, _)| !self.changed.contains_key(*key));
        let kept = kept.map(|(key, object)| ObjectRef { key, object });
        let changed = self.changed.range(from..);
        let changed = changed.filter_map(|(key, object)| Some(ObjectRef { key, object: object.as_ref()? }));
        Merged { left: kept.peekable(), right: changed.peekable() }
    }

    /// All objects, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = ObjectRef<'_>> {
        self.iter_from(ObjectKey::new("", "", ""))
    }

    /// The object of this key.
    pub fn object(&self, key: &ObjectKey) -> Option<ObjectRef<'_>> {
        let (key, object) = match self.changed.get_key_value(key) {
            Some((key, changed)) => (key, &**changed.as_ref()?),
            None => self.found.get_key_value(key)?,
        };
        Some(ObjectRef { key, object })
    }

    /// The objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = ObjectRef<'a>> {
        self.iter_from(ObjectKey::new(kind, "", "")).take_while(move |object| object.key.kind == kind)
    }

    /// The objects of a kind in a namespace.
    pub fn of_kind_in<'a>(&'a self, kind: &'a str, namespace: &'a str) -> impl Iterator<Item = ObjectRef<'a>> {
        let inside = move |key: &ObjectKey| key.kind == kind && key.namespace == namespace;
        self.iter_from(ObjectKey::new(kind, namespace, "")).take_while(move |object| inside(object.key))
    }

    /// The kinds of which there are objects, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        let first = |from: ObjectKey| self.iter_from(from).next().map(|object| object.key.kind.as_str());
        // The least name that is greater than a kind.
        let next = move |kind: &&str| first(ObjectKey::new(&format!("{kind}\0"), "", ""));
        std::iter::successors(first(ObjectKey::new("", "", "")), next)
    }

    /// The keys of a kind.
    pub fn keys<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        self.of_kind(kind).map(ObjectRef::key)
    }

    /// Whether there is such an object.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.object(key).is_some()
    }

    /// Whether there is no object of a kind, which as a rule means that they were not read.
    pub fn has_none(&self, kind: &str) -> bool {
        self.of_kind(kind).next().is_none()
    }

    /// An object as its Kubernetes type; an error where it is malformed.
    pub fn get<T: Typed>(&self, key: &ObjectKey) -> Result<Option<&T>, ModelError> {
        self.object(key).map(ObjectRef::typed).transpose()
    }

    /// A namespaced object as its Kubernetes type; none where there is none or it is malformed, which is then a warning.
    pub fn find<T: Typed>(&self, namespace: &str, name: &str) -> Option<&T> {
        self.get(&ObjectKey::new(T::KIND, namespace, name)).ok().flatten()
    }

    /// The objects of a kind as their Kubernetes type, malformed ones left out.
    pub fn all<T: Typed>(&self) -> impl Iterator<Item = (&ObjectKey, &T)> {
        self.of_kind(T::KIND).filter_map(|object| Some((object.key, object.typed().ok()?)))
    }

    /// The objects of a kind in a namespace as their Kubernetes type, malformed ones left out.
    pub fn all_in<'a, T: Typed>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a T)> {
        self.of_kind_in(T::KIND, namespace).filter_map(|object| Some((object.key, object.typed().ok()?)))
    }

    /// The JSON of an object: for patches, and for data that is passed through.
    pub fn raw(&self, key: &ObjectKey) -> Option<&Value> {
        self.object(key).map(ObjectRef::raw)
    }

    /// The JSON of the objects of a kind.
    pub fn raw_of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
        self.of_kind(kind).map(|object| (object.key(), object.raw()))
    }

    /// The Kubernetes version of the cluster: its rules and wording apply to these objects.
    pub fn version(&self) -> KubernetesVersion {
        self.version
    }

    /// Sets the Kubernetes version of the cluster. Without it, the newest one is assumed.
    pub fn set_version(&mut self, version: KubernetesVersion) {
        self.version = version;
    }

    /// Adds an object, or replaces it.
    pub fn insert(&mut self, key: ObjectKey, raw: Value) {
        self.changed.insert(key, Some(Arc::new(Object::new(raw))));
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.changed.insert(key.clone(), None);
    }

    /// What is wrong with the objects that were looked at so far: they were left out of the answer.
    pub fn warnings(&self) -> Vec<ModelError> {
        self.faults().collect()
    }

    /// An error where something is wrong with an object that was looked at so far: for a caller that leaves nothing out.
    pub fn check(&self) -> Result<(), ModelError> {
        self.faults().next().map_or(Ok(()), Err)
    }

    fn faults(&self) -> impl Iterator<Item = ModelError> {
        self.iter().filter_map(|object| Some((**object.object.fault.get()?).clone()))
    }
}

/// Two sorted sequences as one.
struct Merged<L: Iterator, R: Iterator> {
    left: Peekable<L>,
    right: Peekable<R>,
}

impl<'a, L, R> Iterator for Merged<L, R>
where
    L: Iterator<Item = ObjectRef<'a>>,
    R: Iterator<Item = ObjectRef<'a>>,
{
    type Item = ObjectRef<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        match (self.left.peek(), self.right.peek()) {
            (Some(l), Some(r)) if r.key < l.key => self.right.next(),
            (Some(_), _) => self.left.next(),
            (None, _) => self.right.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(name: &str, spec: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "n" }, "spec": spec })
    }

    #[test]
    fn a_malformed_object_is_an_error_for_who_asks_and_a_warning_for_others() {
        let objects = Objects::from_items([
            pod("good", json!({ "nodeName": "a" })),
            pod("bad", json!({ "containers": [{ "name": "c", "resources": 7 }] })),
        ]);
        assert_eq!(objects.warnings(), []);
        let names: Vec<&str> = objects.all::<Pod>().map(|(key, _)| key.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let text = "pod n/bad: spec.containers[0].resources: invalid type: integer `7`, expected ResourceRequirements";
        assert_eq!(objects.warnings().iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        let asked = objects.get::<Pod>(&ObjectKey::pod("n", "bad"));
        assert_eq!(asked.expect_err("it is malformed").to_string(), text);
        assert!(objects.get::<Pod>(&ObjectKey::pod("n", "none")).expect("nothing is malformed").is_none());
    }

    #[test]
    fn a_fork_has_its_own_changes() {
        let found = Objects::from_items(["a", "c", "d"].map(|name| pod(name, json!({}))));
        let mut fork = found.clone();
        fork.insert(ObjectKey::pod("n", "b"), pod("b", json!({})));
        fork.insert(ObjectKey::pod("n", "c"), pod("c", json!({ "nodeName": "x" })));
        fork.remove(&ObjectKey::pod("n", "a"));
        let names = |objects: &Objects| objects.keys("Pod").map(|key| key.name.clone()).collect::<Vec<_>>().concat();
        assert_eq!((names(&found), names(&fork)), ("acd".into(), "bcd".into()));
        let node = |objects: &Objects| {
            let pod = objects.find::<Pod>("n", "c").expect("it is there");
            pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
        };
        assert_eq!((node(&found), node(&fork).as_deref()), (None, Some("x")));
    }

    #[test]
    fn objects_of_other_groups_are_left_out_and_older_versions_are_read() {
        let service = |version: &str, name: &str| json!({ "apiVersion": version, "kind": "Service", "metadata": { "name": name, "namespace": "n" } });
        let objects = Objects::from_items([service("v1", "a"), service("serving.knative.dev/v1", "b")]);
        assert_eq!(objects.keys("Service").map(ToString::to_string).collect::<Vec<_>>(), ["service n/a"]);
    }

    #[test]
    fn namespaces_do_not_run_into_each_other() {
        let objects = Objects::from_items([("n", "z"), ("n-2", "a"), ("m", "b")].map(|(namespace, name)| {
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace } })
        }));
        let names: Vec<&str> = objects.of_kind_in("Pod", "n").map(|object| object.key().name.as_str()).collect();
        assert_eq!(names, ["z"]);
    }
}
