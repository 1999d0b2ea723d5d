//! What an API server and the controllers add to objects that tests give in short: UIDs, selectors, templates, the names of
//! attachments.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Completes objects.
pub(crate) fn complete(mut items: Vec<Value>) -> Vec<Value> {
    items.iter_mut().for_each(identify);
    // The first pod of each.
    let pods = items.iter().rev().filter(|o| o["kind"] == "Pod").filter_map(by_owner);
    let pods: BTreeMap<(String, String), Value> = pods.collect();
    let ordinal = |pod: &Value| {
        let owner = text(&pod["metadata"]["ownerReferences"][0]["name"]);
        Some((owner, text(&pod["metadata"]["name"]).rsplit_once('-')?.1.parse::<u32>().ok()?))
    };
    let ordinals: Vec<(String, u32)> = items.iter().filter(|o| o["kind"] == "Pod").filter_map(ordinal).collect();
    for item in &mut items {
        match item["kind"].as_str().unwrap_or_default() {
            kind @ ("ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job") => {
                let key = (kind.to_owned(), text(&item["metadata"]["name"]));
                let last = ordinals.iter().filter(|(owner, _)| *owner == key.1).map(|(_, ordinal)| *ordinal).max();
                complete_workload(item, pods.get(&key), last);
            }
            "Node" => {
                let managed = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
                item["metadata"]["annotations"] = managed;
            }
            "PersistentVolumeClaim" => complete_claim(item),
            "PersistentVolume" => {
                let claim = text(&item["spec"]["claimRef"]["name"]);
                item["spec"]["claimRef"]["uid"] = format!("uid-{claim}").into();
            }
            _ => {}
        }
    }
    complete_deployments(&mut items);
    label_pods(&mut items);
    complete_attachments(&mut items);
    items
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn by_owner(pod: &Value) -> Option<((String, String), Value)> {
    let owner = &pod["metadata"]["ownerReferences"][0];
    owner["name"].is_string().then(|| ((text(&owner["kind"]), text(&owner["name"])), pod.clone()))
}

/// Objects that have owners of the same name are told apart by their kind.
fn identify(item: &mut Value) {
    if item["metadata"]["uid"].is_null() && item["metadata"]["name"].is_string() {
        item["metadata"]["uid"] = format!("uid-{}", text(&item["metadata"]["name"])).into();
    }
}

/// The labels that a workload selects its pods by.
fn selected(workload: &Value) -> Value {
    workload["spec"]["selector"]["matchLabels"].clone()
}

fn complete_workload(item: &mut Value, pod: Option<&Value>, last: Option<u32>) {
    let name = text(&item["metadata"]["name"]);
    let labels = match item["kind"].as_str() {
        Some("ReplicaSet") => json!({ "app": "web", "pod-template-hash": name }),
        Some("Job") => json!({ "batch.kubernetes.io/controller-uid": item["metadata"]["uid"] }),
        _ => json!({ "app": name }),
    };
    if item["spec"]["selector"].get("matchLabels").is_some() || item["spec"]["selector"] == json!({}) {
        item["spec"]["selector"] = json!({ "matchLabels": labels });
    }
    // A ReplicaSet of another revision than those that have pods wants none.
    if item["kind"] == "ReplicaSet" && pod.is_none() {
        item["spec"]["replicas"] = 0.into();
    }
    // In short, each StatefulSet wants three pods; here, those that it has.
    if item["kind"] == "StatefulSet" && item["spec"]["replicas"] == 3 {
        item["spec"]["replicas"] = last.map_or(1, |last| last + 1).into();
    }
    let mut spec = match pod {
        Some(pod) => pod["spec"].clone(),
        None => json!({ "containers": [{ "name": "c", "image": "i" }] }),
    };
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("nodeName");
        if item["kind"] == "Job" {
            fields.insert("restartPolicy".into(), "Never".into());
        }
    }
    item["metadata"]["labels"] = labels.clone();
    item["spec"]["template"] = json!({ "metadata": { "labels": labels }, "spec": spec });
    if item["kind"] == "ReplicaSet" {
        // Each is of a revision of its own.
        item["spec"]["template"]["metadata"]["annotations"] = json!({ "revision": name });
    }
    if item["kind"] == "Job"
        && let Some(spec) = item["spec"].as_object_mut()
    {
        spec.remove("replicas");
        spec.entry("parallelism").or_insert(json!(1));
        spec.entry("completions").or_insert(json!(1));
    }
}

/// A Deployment has the template of its newest ReplicaSet that wants pods. Where none does, its next one is of a newer
/// template.
fn complete_deployments(items: &mut [Value]) {
    let sets: Vec<Value> = items.iter().filter(|o| o["kind"] == "ReplicaSet").cloned().collect();
    for item in items.iter_mut().filter(|o| o["kind"] == "Deployment") {
        item["spec"]["selector"] = json!({ "matchLabels": { "app": "web" } });
        let owner = |set: &&Value| set["metadata"]["ownerReferences"][0]["name"] == item["metadata"]["name"];
        let wanted = sets.iter().filter(owner).rfind(|set| set["spec"]["replicas"].as_i64().unwrap_or(1) > 0);
        let mut template = wanted.or(sets.last()).map(|set| set["spec"]["template"].clone()).unwrap_or_default();
        template["metadata"]["labels"] = json!({ "app": "web" });
        if wanted.is_none() {
            template["metadata"]["annotations"] = json!({ "changed": "yes" });
        }
        if item["spec"]["template"].is_null() {
            item["spec"]["template"] = template;
        }
    }
}

fn label_pods(items: &mut [Value]) {
    let workloads: Vec<Value> =
        items.iter().filter(|o| o["spec"]["selector"]["matchLabels"].is_object()).cloned().collect();
    for pod in items.iter_mut().filter(|o| o["kind"] == "Pod") {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let is_owner = |w: &&Value| w["kind"] == owner["kind"] && w["metadata"]["name"] == owner["name"];
        let Some(workload) = workloads.iter().find(is_owner) else { continue };
        pod["metadata"]["labels"] = selected(workload);
        if workload["kind"] == "Job" {
            pod["spec"]["restartPolicy"] = "Never".into();
            // A pod that has not ended is still to be counted.
            if pod["metadata"]["deletionTimestamp"].is_null() && pod["metadata"]["finalizers"].is_null() {
                pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
            }
        }
    }
}

fn complete_claim(item: &mut Value) {
    if item["metadata"]["finalizers"].is_null() {
        item["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    }
}

/// Attachments are named by the controller, and the Node lists those that it knows of.
fn complete_attachments(items: &mut [Value]) {
    let volumes: Vec<Value> = items.iter().filter(|o| o["kind"] == "PersistentVolume").cloned().collect();
    let mut attached: Vec<(String, String)> = Vec::new();
    for item in items.iter_mut().filter(|o| o["kind"] == "VolumeAttachment") {
        let volume = volumes.iter().find(|v| v["metadata"]["name"] == item["spec"]["source"]["persistentVolumeName"]);
        let Some(unique) = volume.and_then(|volume| {
            let read = serde_json::from_value(volume.clone()).ok()?;
            stead_model::unique_volume_name(&read)
        }) else {
            continue;
        };
        let Some((driver, handle)) = unique.strip_prefix("kubernetes.io/csi/").and_then(|name| name.split_once('^'))
        else {
            continue;
        };
        let node = text(&item["spec"]["nodeName"]);
        let digest = Sha256::new().chain_update(handle).chain_update(driver).chain_update(&node).finalize();
        let name = digest.iter().fold(String::from("csi-"), |name, byte| format!("{name}{byte:02x}"));
        item["metadata"]["name"] = name.into();
        item["spec"]["attacher"] = driver.into();
        item["metadata"]["finalizers"] = json!([format!("external-attacher/{}", driver.replace('.', "-"))]);
        if item["status"]["attached"] == true {
            attached.push((node, unique));
        }
    }
    for node in items.iter_mut().filter(|o| o["kind"] == "Node") {
        let of_node = attached.iter().filter(|(name, _)| node["metadata"]["name"] == name.as_str());
        let list: Vec<Value> = of_node.map(|(_, unique)| json!({ "name": unique, "devicePath": "" })).collect();
        if !list.is_empty() && node["status"]["volumesAttached"].is_null() {
            node["status"]["volumesAttached"] = list.into();
        }
    }
}
