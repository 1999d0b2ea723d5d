//! The pod that a file asks for: as it stands there, or the first one that a workload would make.
//!
//! What kube-apiserver and the controllers fill in before kube-scheduler sees a pod is filled in here, as far as
//! placement depends on it: owners, names and labels, claims, priorities, tolerations, limit ranges, runtime classes.

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use stead_model::{ObjectKey, Objects};
use stead_placement::{Cluster, Pod};

/// The kinds that a pod can be made from.
const KINDS: [&str; 5] = ["Pod", "StatefulSet", "Deployment", "ReplicaSet", "Job"];

/// The kinds that are looked up to fill a pod in, beside those that placement looks at.
pub(crate) const DEFAULTS: [&str; 3] = ["PriorityClass", "LimitRange", "RuntimeClass"];

/// What stands in for the hash in the names that a Deployment gives.
const HASH: &str = "new";

/// A pod to place, and what is there before it: the file's other objects, its owner, its claims.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) pod: Value,
    pub(crate) before: Vec<Value>,
    /// What could not be looked up.
    pub(crate) notes: Vec<String>,
}

/// The pod that a file's objects ask for, in a cluster with these objects.
pub(crate) fn first_pod(file: Vec<Value>, namespace: Option<&str>, cluster: &[Value]) -> anyhow::Result<Wanted> {
    let (mut candidates, mut before): (Vec<Value>, Vec<Value>) =
        file.into_iter().partition(|o| o["kind"].as_str().is_some_and(|k| KINDS.contains(&k)));
    let names: Vec<String> = candidates.iter().map(name_of).collect();
    let mut workload = match candidates.len() {
        0 => bail!("the file has no pod to place: it needs one of {}", KINDS.join(", ")),
        1 => candidates.remove(0),
        _ => bail!("the file asks for several pods, leave one of them: {}", names.join(", ")),
    };
    for object in before.iter_mut().chain([&mut workload]) {
        settle_namespace(object, namespace)?;
    }
    let mut pod = match workload["kind"].as_str() {
        Some("Pod") => workload.clone(),
        _ => from_template(&workload, &mut before).with_context(|| name_of(&workload))?,
    };
    if workload["kind"] != "Pod" {
        before.push(workload);
    }
    readable(&pod, &before)?;
    let mut notes = Vec::new();
    let all = || cluster.iter();
    runtime_class(&mut pod, all(), &mut notes);
    priority(&mut pod, all(), &mut notes);
    limit_ranges(&mut pod, all());
    tolerations(&mut pod);
    label_keys(&mut pod);
    for claim in claims_of(&pod) {
        let there = |o: &Value| same(o, &claim);
        if !cluster.iter().chain(&before).any(there) {
            before.push(claim);
        }
    }
    for claim in before.iter_mut().filter(|o| o["kind"] == "PersistentVolumeClaim") {
        storage_class(claim, cluster);
    }
    Ok(Wanted { pod, before, notes })
}

/// Whether Kubernetes' types can read it all: what is filled in below goes into fields of the right shape only.
fn readable(pod: &Value, before: &[Value]) -> anyhow::Result<()> {
    let objects = Objects::from_items(before.iter().chain([pod]).cloned());
    let Some(key) = ObjectKey::of(pod) else { bail!("{}: metadata.name: missing", name_of(pod)) };
    Pod::from_objects(&objects, &key)?;
    Cluster::from_objects(&objects, Some(&key));
    Ok(objects.check()?)
}

/// That a field is an object, where it is there at all.
fn object_if_any(value: &Value, field: &str) -> anyhow::Result<()> {
    if !value.is_object() && !value.is_null() {
        bail!("{field}: not an object");
    }
    Ok(())
}

fn name_of(o: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&o["kind"]).to_lowercase(), text(&o["metadata"]["name"]))
}

fn same(a: &Value, b: &Value) -> bool {
    a["kind"] == b["kind"]
        && a["metadata"]["name"] == b["metadata"]["name"]
        && a["metadata"]["namespace"] == b["metadata"]["namespace"]
}

fn settle_namespace(object: &mut Value, namespace: Option<&str>) -> anyhow::Result<()> {
    let kind = object["kind"].as_str().unwrap_or_default();
    if stead_model::KINDS.iter().any(|k| k.kind == kind && !k.namespaced) {
        return Ok(());
    }
    match (object["metadata"]["namespace"].as_str(), namespace) {
        (Some(own), Some(given)) if own != given => {
            bail!("{}: metadata.namespace: {own:?} is not the namespace that -n names, {given:?}", name_of(object))
        }
        (Some(_), _) => {}
        (None, given) => object["metadata"]["namespace"] = json!(given.unwrap_or("default")),
    }
    Ok(())
}

/// The map at a field, which is made where it is not there.
fn map<'a>(parent: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !parent[field].is_object() {
        parent[field] = json!({});
    }
    parent[field].as_object_mut().expect("it is an object now")
}

/// The list at a field, which is made where it is not there.
fn list<'a>(parent: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    if !parent[field].is_array() {
        parent[field] = json!([]);
    }
    parent[field].as_array_mut().expect("it is an array now")
}

/// The first pod that a workload's controller would make. Its claims and its direct owner go to `before`.
fn from_template(workload: &Value, before: &mut Vec<Value>) -> anyhow::Result<Value> {
    let template = &workload["spec"]["template"];
    if !template["spec"].is_object() {
        bail!("spec.template.spec: missing");
    }
    object_if_any(&template["metadata"], "spec.template.metadata")?;
    object_if_any(&template["metadata"]["labels"], "spec.template.metadata.labels")?;
    object_if_any(&workload["spec"]["selector"], "spec.selector")?;
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = workload["metadata"]["namespace"].clone();
    let mut meta = template["metadata"].clone();
    map(&mut meta, "labels");
    meta["namespace"] = namespace.clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]});
    let (pod_name, owner) = match workload["kind"].as_str() {
        Some("StatefulSet") => {
            let ordinal = workload["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
            let pod_name = format!("{name}-{ordinal}");
            let labels = map(&mut pod["metadata"], "labels");
            labels.insert("statefulset.kubernetes.io/pod-name".into(), json!(pod_name));
            labels.insert("apps.kubernetes.io/pod-index".into(), json!(ordinal.to_string()));
            claim_templates(workload, &pod_name, &mut pod, before)?;
            (pod_name, workload.clone())
        }
        Some("Deployment") => {
            map(&mut pod["metadata"], "labels").insert("pod-template-hash".into(), json!(HASH));
            let mut selector = workload["spec"]["selector"].clone();
            map(&mut selector, "matchLabels").insert("pod-template-hash".into(), json!(HASH));
            let set = json!({
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": format!("{name}-{HASH}"), "namespace": namespace},
                "spec": {"selector": selector, "template": template},
            });
            before.push(set.clone());
            (format!("{name}-{HASH}-0"), set)
        }
        Some("Job") => {
            let labels = map(&mut pod["metadata"], "labels");
            labels.insert("job-name".into(), json!(name));
            labels.insert("batch.kubernetes.io/job-name".into(), json!(name));
            (format!("{name}-0"), workload.clone())
        }
        _ => (format!("{name}-0"), workload.clone()),
    };
    pod["metadata"]["name"] = json!(pod_name);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"].as_str().unwrap_or_default(),
        "controller": true,
    }]);
    Ok(pod)
}

/// A StatefulSet's claims for one pod, and the volumes that refer to them.
fn claim_templates(set: &Value, pod_name: &str, pod: &mut Value, before: &mut Vec<Value>) -> anyhow::Result<()> {
    for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        object_if_any(&template["metadata"], "spec.volumeClaimTemplates[].metadata")?;
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        let volumes = list(&mut pod["spec"], "volumes");
        volumes.retain(|v| v["name"] != name);
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{pod_name}")}}));
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"],
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        });
        claim["metadata"]["name"] = json!(format!("{name}-{pod_name}"));
        claim["metadata"]["namespace"] = set["metadata"]["namespace"].clone();
        before.push(claim);
    }
    Ok(())
}

/// The claims that the ephemeral volume controller makes for the pod.
fn claims_of(pod: &Value) -> Vec<Value> {
    let meta = &pod["metadata"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text(&meta["name"]), text(&meta["namespace"]));
    // What placement takes for the UID of a pod that has none.
    let uid = meta["uid"].as_str().map_or_else(|| format!("uid-{namespace}-{name}"), str::to_owned);
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |v: &Value| {
        let template = v["ephemeral"].get("volumeClaimTemplate")?;
        Some(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": format!("{name}-{}", text(&v["name"])),
                "namespace": namespace,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }))
    };
    volumes.filter_map(claim).collect()
}

fn named<'a>(mut objects: impl Iterator<Item = &'a Value>, kind: &str, name: &str) -> Option<&'a Value> {
    objects.find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
}

/// Admission plugin Priority.
fn priority<'a>(pod: &mut Value, objects: impl Iterator<Item = &'a Value> + Clone, notes: &mut Vec<String>) {
    let spec = &mut pod["spec"];
    if spec["priority"].is_i64() {
        return;
    }
    let class = match spec["priorityClassName"].as_str() {
        Some("system-node-critical") => Some(json!({"value": 2_000_001_000})),
        Some("system-cluster-critical") => Some(json!({"value": 2_000_000_000})),
        Some(name) => {
            let found = named(objects, "PriorityClass", name).cloned();
            if found.is_none() {
                notes.push(format!("priorityclass {name} is not known: the pod counts with priority 0"));
            }
            found
        }
        None => {
            let mut classes = objects;
            classes.find(|o| o["kind"] == "PriorityClass" && o["globalDefault"] == true).cloned()
        }
    };
    let Some(class) = class else { return };
    spec["priority"] = class["value"].clone();
    if spec["preemptionPolicy"].is_null() && class["preemptionPolicy"].is_string() {
        spec["preemptionPolicy"] = class["preemptionPolicy"].clone();
    }
}

/// Admission plugin RuntimeClass.
fn runtime_class<'a>(pod: &mut Value, objects: impl Iterator<Item = &'a Value>, notes: &mut Vec<String>) {
    let spec = &mut pod["spec"];
    let Some(name) = spec["runtimeClassName"].as_str() else { return };
    let Some(class) = named(objects, "RuntimeClass", name) else {
        notes.push(format!("runtimeclass {name} is not known: its overhead and its nodes are left out"));
        return;
    };
    if spec["overhead"].is_null() && class["overhead"]["podFixed"].is_object() {
        spec["overhead"] = class["overhead"]["podFixed"].clone();
    }
    for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
        map(spec, "nodeSelector").entry(key.clone()).or_insert_with(|| value.clone());
    }
    let more = class["scheduling"]["tolerations"].as_array().cloned().unwrap_or_default();
    list(spec, "tolerations").extend(more);
}

/// Admission plugin LimitRanger: what containers get that do not say what they need.
fn limit_ranges<'a>(pod: &mut Value, objects: impl Iterator<Item = &'a Value>) {
    let namespace = pod["metadata"]["namespace"].clone();
    let ranges: Vec<&Value> =
        objects.filter(|o| o["kind"] == "LimitRange" && o["metadata"]["namespace"] == namespace).collect();
    let limits = ranges.iter().flat_map(|r| r["spec"]["limits"].as_array().into_iter().flatten());
    for limit in limits.filter(|l| l["type"] == "Container") {
        for field in ["containers", "initContainers"] {
            for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
                if !container["resources"].is_object() {
                    container["resources"] = json!({});
                }
                let resources = &mut container["resources"];
                for (from, to) in [("defaultRequest", "requests"), ("default", "limits")] {
                    for (name, amount) in limit[from].as_object().into_iter().flatten() {
                        // A limit that is given is the request too, where none is.
                        if to == "limits" || resources["limits"].get(name).is_none() {
                            map(resources, to).entry(name.clone()).or_insert_with(|| amount.clone());
                        }
                    }
                }
            }
        }
    }
}

/// Admission plugin DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or not reached.
fn tolerations(pod: &mut Value) {
    let tolerations = list(&mut pod["spec"], "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_empty = |v: &Value| v.as_str().is_none_or(str::is_empty);
        let covers = |t: &Value| {
            (t["key"] == key || is_empty(&t["key"])) && (t["effect"] == "NoExecute" || is_empty(&t["effect"]))
        };
        if !tolerations.iter().any(covers) {
            let t = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(t);
        }
    }
}

/// kube-apiserver's part in `matchLabelKeys` and `mismatchLabelKeys`: the pod's own values join the selector.
fn label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = pod["spec"]["affinity"].get_mut(affinity) else { continue };
        for (field, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", None),
            ("preferredDuringSchedulingIgnoredDuringExecution", Some("podAffinityTerm")),
        ] {
            for term in affinity[field].as_array_mut().into_iter().flatten() {
                let term = match inner {
                    Some(inner) => &mut term[inner],
                    None => term,
                };
                if !term["labelSelector"].is_object() {
                    continue;
                }
                for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
                    let keys = term[keys].as_array().cloned().unwrap_or_default();
                    for key in keys.iter().filter_map(Value::as_str) {
                        let Some(value) = labels.get(key) else { continue };
                        let more = json!({"key": key, "operator": operator, "values": [value]});
                        list(&mut term["labelSelector"], "matchExpressions").push(more);
                    }
                }
            }
        }
    }
}

/// Admission plugin DefaultStorageClass: the newest of the classes that are marked as default.
fn storage_class(claim: &mut Value, objects: &[Value]) {
    if claim["spec"]["storageClassName"].is_string() {
        return;
    }
    let is_default = |o: &&Value| {
        o["kind"] == "StorageClass"
            && o["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    };
    let made = |o: &Value| o["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    let name = |o: &Value| o["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let newest = objects.iter().filter(is_default).min_by_key(|o| (std::cmp::Reverse(made(o)), name(o)));
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}
