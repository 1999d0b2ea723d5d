//! The objects that the loops render for a Glance, as a cluster would store them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};
use stead_loops::{Failures, LoopSettings, ObjectKey, Store, World, Write, step, trim};

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "openstack";

/// All objects by key, including the content of Secrets.
pub(crate) struct Rendered {
    objects: BTreeMap<ObjectKey, Value>,
    writes: u64,
}

impl Rendered {
    /// Runs the loops on the given objects until they write nothing more. Jobs are complete as soon as they are
    /// created.
    pub(crate) fn render(given: Vec<Value>) -> Result<Rendered> {
        let mut rendered = Rendered { objects: BTreeMap::new(), writes: 0 };
        for object in given {
            rendered.apply(object)?;
        }
        let settings = LoopSettings {
            replace_default_anti_affinity: false,
            glance_image: "glance".into(),
            cluster_domain: "cluster.local".into(),
        };
        for _ in 0..20 {
            let before = rendered.objects.clone();
            let keys: Vec<ObjectKey> =
                before.keys().filter(|key| stead_loops::RECONCILED.contains(&key.kind.as_str())).cloned().collect();
            for key in keys {
                let mut store = Store::new();
                for object in rendered.objects.values() {
                    store.put(trim(object.clone()));
                }
                let failures = Failures::new();
                let now = jiff::Timestamp::UNIX_EPOCH;
                let world = World { store: &store, cluster: None, failures: &failures, now, settings: &settings };
                for write in step(&world, &key).writes {
                    rendered.write(write)?;
                }
            }
            if rendered.objects == before {
                return Ok(rendered);
            }
        }
        bail!("the loops keep writing");
    }

    fn write(&mut self, write: Write) -> Result<()> {
        match write {
            Write::Apply { object, .. } => self.apply(object),
            Write::Status { object } => {
                let live = self.live(&ObjectKey::of(&object).context("a status without an object name")?)?;
                live["status"] = object["status"].clone();
                Ok(())
            }
            Write::Patch { key, body } => {
                let finalizers = body["metadata"]["finalizers"].clone();
                self.live(&key)?["metadata"]["finalizers"] = finalizers;
                Ok(())
            }
            Write::Delete { key, .. } => {
                self.objects.remove(&key);
                Ok(())
            }
            Write::Event(_) => Ok(()),
        }
    }

    /// Applies an object as the API server would: fields of other managers are kept.
    fn apply(&mut self, mut object: Value) -> Result<()> {
        let key = ObjectKey::of(&object).context("an object without a name")?;
        self.writes += 1;
        if key.kind == "Job" {
            object["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        }
        match self.objects.get(&key) {
            Some(live) => {
                for field in ["uid", "generation", "resourceVersion", "finalizers", "creationTimestamp"] {
                    if let Some(value) = live["metadata"].get(field) {
                        object["metadata"][field] = value.clone();
                    }
                }
                if let Some(status) = live.get("status") {
                    object["status"] = status.clone();
                }
            }
            None => {
                object["metadata"]["uid"] = json!(format!("uid-{}", self.writes));
                object["metadata"]["resourceVersion"] = json!(self.writes.to_string());
                object["metadata"]["generation"] = json!(1);
            }
        }
        self.objects.insert(key, object);
        Ok(())
    }

    fn live(&mut self, key: &ObjectKey) -> Result<&mut Value> {
        self.objects.get_mut(key).with_context(|| format!("no {} {}", key.kind, key.name))
    }

    /// Returns the object with this kind and name.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Result<&Value> {
        let key = ObjectKey::new(kind, NAMESPACE, name);
        self.objects.get(&key).with_context(|| format!("the loops rendered no {kind} {name}"))
    }

    /// Returns the objects of a kind.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    /// Returns the decoded content of a Secret by key.
    pub(crate) fn secret(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let data = self.get("Secret", name)?["data"].as_object().context("the Secret has no data")?;
        let decode = |(key, value): (&String, &Value)| {
            let value = BASE64_STANDARD.decode(value.as_str().unwrap_or_default());
            Ok((key.clone(), value.with_context(|| format!("Secret {name}, key {key}"))?))
        };
        data.iter().map(decode).collect()
    }
}

/// Returns a Secret.
pub(crate) fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), BASE64_STANDARD.encode(value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
}

/// Returns a Service.
pub(crate) fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {}})
}
