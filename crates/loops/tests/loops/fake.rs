//! A cluster that is a map: as much of an API server as the recordings need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use stead_loops::{Failures, LoopSettings, MANAGER, ObjectKey, RECONCILED, Store, World, Write, affected, step, trim};
use stead_model::ObjectRef;

const NAMESPACE: &str = "case";
const IMAGE: &str = "registry.test/glance-api:1";

/// Objects by key, and the loops that look at them.
pub(crate) struct Cluster {
    store: Store,
    queue: BTreeSet<ObjectKey>,
    revision: u64,
    failures: BTreeMap<ObjectKey, Failures>,
    settings: LoopSettings,
}

impl Cluster {
    /// With the seven nodes of the recordings, and nothing else.
    pub(crate) fn new() -> Cluster {
        let mut cluster = Cluster {
            store: Store::new(),
            queue: BTreeSet::new(),
            revision: 0,
            failures: BTreeMap::new(),
            settings: LoopSettings {
                replace_default_anti_affinity: true,
                glance_image: IMAGE.into(),
                cluster_domain: "cluster.local".into(),
            },
        };
        for (name, zone) in [
            ("master-0", "zoneA"),
            ("master-1", "zoneB"),
            ("master-2", "zoneC"),
            ("worker-0", "zoneA"),
            ("worker-1", "zoneB"),
            ("worker-2", "zoneC"),
            ("worker-3", "zoneA"),
        ] {
            let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "zone": zone});
            cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}));
        }
        cluster
    }

    /// Makes a request of a recording. What belongs to other operators is not known here.
    pub(crate) fn request(&mut self, request: &Value) {
        let body = filled(&request["body"]);
        let path = request["path"].as_str().expect("a path").replace("{ns}", NAMESPACE);
        let parts: Vec<&str> = path.split('/').collect();
        let Some(at) = parts.iter().position(|p| *p == NAMESPACE) else { return };
        let kind = match parts[at + 1] {
            "topologies" => "Topology",
            "glances" => "Glance",
            "glanceapis" => "GlanceAPI",
            "openstackcontrolplanes" => "OpenStackControlPlane",
            "statefulsets" => "StatefulSet",
            "secrets" => "Secret",
            "services" => "Service",
            _ => return,
        };
        match request["method"].as_str() {
            Some("POST") => self.create(kind, body),
            Some("DELETE") => self.delete(&ObjectKey::new(kind, NAMESPACE, parts[at + 2])),
            Some("PATCH") => {
                let key = ObjectKey::new(kind, NAMESPACE, parts[at + 2]);
                let Some(mut object) = self.store.raw(&key).cloned() else { return };
                if body.is_array() {
                    let patch: json_patch::Patch = serde_json::from_value(body).expect("a patch");
                    json_patch::patch(&mut object, &patch).expect("it applies");
                } else {
                    json_patch::merge(&mut object, &body);
                }
                self.update(object);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Somebody creates an object in the namespace of the case.
    pub(crate) fn create(&mut self, kind: &str, mut object: Value) {
        object["kind"] = kind.into();
        object["metadata"]["namespace"] = NAMESPACE.into();
        object["metadata"]["uid"] = format!("uid-{}", self.revision).into();
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{:02}Z", self.revision % 60).into();
        if let Some(plain) = object.as_object_mut().and_then(|o| o.remove("stringData")) {
            object["data"] = plain;
        }
        self.put(trim(object));
    }

    /// A new version of an object: another generation if it says something else, its end if that was asked for and
    /// nothing holds it any more.
    fn update(&mut self, mut object: Value) {
        let key = ObjectKey::of(&object).expect("a key");
        let Some(before) = self.store.raw(&key).cloned() else { return };
        if before["spec"] != object["spec"] {
            object["metadata"]["generation"] = (before["metadata"]["generation"].as_i64().unwrap_or(1) + 1).into();
        }
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if !object["metadata"]["deletionTimestamp"].is_null() && !held {
            self.remove(&key);
        } else if before != object {
            self.put(object);
        }
    }

    fn put(&mut self, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let Some(key) = ObjectKey::of(&object) else { return };
        let (before, _) = self.store.put(object);
        let before = before.as_deref().map(|before| ObjectRef::new(&key, before));
        self.queue.extend(affected(&self.store, before, self.store.object(&key)));
    }

    /// Somebody deletes an object.
    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        let Some(mut object) = self.store.raw(key).cloned() else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            self.put(object);
        } else {
            self.remove(key);
        }
    }

    /// An object goes, and what it owns goes too.
    fn remove(&mut self, key: &ObjectKey) {
        let Some(deleted) = self.store.remove(key) else { return };
        let deleted = ObjectRef::new(key, &deleted);
        self.queue.extend(affected(&self.store, Some(deleted), None));
        let kinds = ["Glance", "GlanceAPI", "StatefulSet", "Service", "Secret", "Job", "CronJob"];
        for kind in kinds.into_iter().chain(["ServiceAccount", "Role", "RoleBinding"]) {
            let uid = &deleted.raw()["metadata"]["uid"];
            let owned: Vec<ObjectKey> = self
                .list(kind)
                .filter(|o| o["metadata"]["ownerReferences"][0]["uid"] == *uid)
                .filter_map(ObjectKey::of)
                .collect();
            for key in owned {
                self.delete(&key);
            }
        }
    }

    /// Runs the loop of an object though nothing changed, as after the time that it asked for.
    pub(crate) fn look_again(&mut self, key: &ObjectKey) {
        self.queue.insert(key.clone());
    }

    /// Lets the loops work until none has anything to say; `recorded` tells what the rest of the cluster makes of it.
    pub(crate) fn settle(&mut self, recorded: &Value) {
        for _ in 0..10_000 {
            let Some(key) = self.queue.pop_first() else {
                if self.rest_of_the_cluster(recorded) {
                    continue;
                }
                return;
            };
            if RECONCILED.contains(&key.kind.as_str()) {
                self.reconcile(&key);
            }
        }
        panic!("the loops do not come to rest");
    }

    fn reconcile(&mut self, key: &ObjectKey) {
        let none = Failures::new();
        let wanted = step(
            &World {
                store: &self.store,
                cluster: None,
                failures: self.failures.get(key).unwrap_or(&none),
                now: "2026-01-01T00:00:00Z".parse().expect("a time"),
                settings: &self.settings,
            },
            key,
        );
        for write in wanted.writes {
            match write {
                Write::Apply { object, .. } => self.apply(object),
                Write::Status { object } => {
                    let key = ObjectKey::of(&object).expect("a key");
                    let Some(mut live) = self.store.raw(&key).cloned() else { continue };
                    live["status"] = object["status"].clone();
                    self.update(live);
                }
                Write::Patch { key, body } => {
                    let Some(mut live) = self.store.raw(&key).cloned() else { continue };
                    // Two patches of one step are decided for the same version.
                    assert_eq!(live["metadata"]["uid"], body["metadata"]["uid"], "{key}");
                    live["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
                    self.update(live);
                }
                Write::Delete { key, uid, .. } => {
                    if self.store.raw(&key).is_some_and(|o| o["metadata"]["uid"] == uid.as_str()) {
                        self.delete(&key);
                    }
                }
                Write::Event(_) => {}
            }
        }
    }

    /// What is applied is all that is said about these objects.
    fn apply(&mut self, wanted: Value) {
        let mut wanted = wanted;
        wanted["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
        let key = ObjectKey::of(&wanted).expect("a key");
        let Some(live) = self.store.raw(&key).cloned() else {
            return self.create(&key.kind.clone(), wanted);
        };
        let mut object = wanted;
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "finalizers", "deletionTimestamp"] {
            if let Some(value) = live["metadata"].get(field) {
                object["metadata"][field] = value.clone();
            }
        }
        if let Some(status) = live.get("status") {
            object["status"] = status.clone();
        }
        let object = trim(object);
        if object != live {
            self.update(object);
        }
    }

    /// Jobs end and pods become ready as they did when it was recorded. Gives whether anything changed.
    fn rest_of_the_cluster(&mut self, recorded: &Value) -> bool {
        let mut changed = false;
        let sets: Vec<Value> = self.list("StatefulSet").cloned().collect();
        for mut set in sets {
            let recorded_sets = recorded["statefulsets"].as_array().into_iter().flatten();
            let recorded = recorded_sets.clone().find(|s| s["name"] == set["metadata"]["name"]);
            let ready = recorded.map_or(json!(0), |s| s["status"]["readyReplicas"].clone());
            let status = json!({"observedGeneration": set["metadata"]["generation"], "readyReplicas": ready});
            if set["status"] != status {
                set["status"] = status;
                self.update(set);
                changed = true;
            }
        }
        let jobs: Vec<Value> = self.list("Job").cloned().collect();
        for mut job in jobs {
            let selector = job["spec"]["template"]["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
            let takes = |node: &Value| selector.iter().all(|(k, v)| node["metadata"]["labels"].get(k) == Some(v));
            let fits = self.store.of_kind("Node").any(|node| takes(node.raw()));
            if fits && job["status"].is_null() {
                job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
                self.update(job);
                changed = true;
            }
        }
        changed
    }

    /// An object of the namespace of the case.
    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.store.raw(&ObjectKey::namespaced(kind, NAMESPACE, name))
    }

    fn list(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.store.of_kind_in(kind, NAMESPACE).map(ObjectRef::raw)
    }

    /// The identities of the StatefulSets.
    pub(crate) fn sets(&self) -> BTreeMap<String, Value> {
        let sets = self.list("StatefulSet");
        sets.map(|s| (s["metadata"]["name"].as_str().unwrap_or_default().to_owned(), s["metadata"]["uid"].clone()))
            .collect()
    }

    /// What decides where pods run, in the recordings' form.
    pub(crate) fn placement(&self, before: &BTreeMap<String, Value>) -> Value {
        let list = |kind| self.list(kind);
        let sets = list("StatefulSet").map(|set| {
            let (meta, spec) = (&set["metadata"], &set["spec"]);
            let uid = match before.get(meta["name"].as_str().unwrap_or_default()) {
                None => "new",
                Some(uid) if *uid == meta["uid"] => "same",
                Some(_) => "made anew",
            };
            let template = &spec["template"];
            let mut pod = Map::new();
            pod.insert("labels".into(), template["metadata"]["labels"].clone());
            for field in ["affinity", "topologySpreadConstraints", "nodeSelector"] {
                if let Some(value) = template["spec"].get(field) {
                    pod.insert(field.into(), value.clone());
                }
            }
            let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
            json!({
                "name": meta["name"],
                "uid": uid,
                "replicas": spec["replicas"],
                "podManagementPolicy": spec["podManagementPolicy"],
                "selector": spec["selector"],
                "pod": pod,
                "claims": claims.map(|c| json!([c["metadata"]["name"], c["spec"]])).collect::<Vec<_>>(),
            })
        });
        let apis = list("GlanceAPI").map(|api| {
            let told = api["status"]["conditions"].as_array().into_iter().flatten();
            let told = told.filter(|c| c["type"] == "TopologyReady" || c["type"] == "DeploymentReady").map(|c| {
                let mut c = c.clone();
                c.as_object_mut().map(|c| c.remove("lastTransitionTime"));
                c
            });
            json!({
                "name": api["metadata"]["name"],
                "last": api["status"]["lastAppliedTopology"],
                "ready": api["status"]["readyCount"].as_i64().unwrap_or(0),
                "conditions": told.collect::<Vec<_>>(),
            })
        });
        let topologies = list("Topology").map(|t| {
            let mut out = json!({"name": t["metadata"]["name"]});
            if let Some(finalizers) = t["metadata"]["finalizers"].as_array().filter(|f| !f.is_empty()) {
                let mut finalizers: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
                finalizers.sort_unstable();
                out["finalizers"] = json!(finalizers);
            }
            if !t["metadata"]["deletionTimestamp"].is_null() {
                out["deleting"] = true.into();
            }
            out
        });
        let services =
            list("Service").filter(|s| !s["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("hostname-for-")));
        let services = services.map(|s| {
            let ip = if s["spec"]["clusterIP"] == "None" { "None" } else { "<ip>" };
            json!({"name": s["metadata"]["name"], "selector": s["spec"]["selector"], "ports": s["spec"]["ports"], "clusterIP": ip})
        });
        let found = json!({
            "statefulsets": sets.collect::<Vec<_>>(),
            "glanceapis": apis.collect::<Vec<_>>(),
            "topologies": topologies.collect::<Vec<_>>(),
            "services": services.collect::<Vec<_>>(),
        });
        let text = found.to_string().replace(&format!("\"{NAMESPACE}\""), "\"{ns}\"");
        serde_json::from_str(&text).expect("still JSON")
    }
}

fn filled(body: &Value) -> Value {
    serde_json::from_str(&body.to_string().replace("{ns}", NAMESPACE)).expect("still JSON")
}
