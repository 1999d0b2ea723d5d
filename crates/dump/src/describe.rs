//! Pods from the text of `oc describe pod`, which older openstack-must-gathers have instead of YAML.
//!
//! The text does not have everything: affinity and most of a pod's security settings are missing. What it has becomes a Pod.

use serde_json::{Map, Value, json};

/// The pod that the text of `oc describe pod` describes; none if it is not the description of a pod.
pub fn pod(text: &str) -> Option<Value> {
    let sections = sections(text);
    let find = |name: &str| sections.iter().find(|section| section.name == name);
    let value =
        |name: &str| find(name).map(|section| section.value).filter(|value| !value.is_empty() && *value != "<none>");
    let (name, namespace) = (value("Name")?, value("Namespace")?);
    let mut metadata = json!({ "name": name, "namespace": namespace });
    let mut spec = json!({});
    let mut status = json!({ "phase": value("Status").map(phase)? });
    if let Some(labels) = find("Labels").map(|section| pairs(section, '=')).filter(|labels| !labels.is_empty()) {
        metadata["labels"] = labels.into();
    }
    if let Some((kind, owner)) = value("Controlled By").and_then(|owner| owner.split_once('/')) {
        metadata["ownerReferences"] =
            json!([{ "apiVersion": api_version(kind), "kind": kind, "name": owner, "uid": "", "controller": true }]);
    }
    if let Some(node) = value("Node") {
        spec["nodeName"] = node.split('/').next().into();
    }
    for (field, shown) in [("serviceAccountName", "Service Account"), ("priorityClassName", "Priority Class Name")] {
        if let Some(text) = value(shown) {
            spec[field] = text.into();
        }
    }
    if let Some(priority) = value("Priority").and_then(|priority| priority.parse::<i32>().ok()) {
        spec["priority"] = priority.into();
    }
    if let Some(selector) = find("Node-Selectors").map(|section| pairs(section, '=')).filter(|s| !s.is_empty()) {
        spec["nodeSelector"] = selector.into();
    }
    spec["tolerations"] =
        find("Tolerations").map(|section| section.values().filter_map(toleration).collect()).unwrap_or_default();
    spec["containers"] =
        find("Containers").map(|section| section.children().iter().map(container).collect()).unwrap_or_default();
    spec["volumes"] =
        find("Volumes").map(|section| section.children().iter().filter_map(volume).collect()).unwrap_or_default();
    if let Some(containers) = find("Containers") {
        status["containerStatuses"] = containers.children().iter().map(container_status).collect();
    }
    if let Some(section) = find("Conditions") {
        let words = section.lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let conditions = words.filter(|words| words.len() == 2 && matches!(words[1], "True" | "False" | "Unknown"));
        status["conditions"] = conditions.map(|words| json!({ "type": words[0], "status": words[1] })).collect();
    }
    Some(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status }))
}

/// `Terminating (lasts 3m)` is no phase: the pod ran when it was deleted.
fn phase(status: &str) -> &str {
    if status.starts_with("Terminating") { "Running" } else { status }
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "Job" => "batch/v1",
        "Node" | "ReplicationController" => "v1",
        _ => "apps/v1",
    }
}

/// A line `NAME: VALUE` and the lines below it that are indented more.
struct Section<'a> {
    name: &'a str,
    value: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Section<'a> {
    /// The value in its first line, and those below it.
    fn values(&self) -> impl Iterator<Item = &'a str> {
        let below = self.lines.iter().map(|line| line.trim());
        std::iter::once(self.value).chain(below).filter(|value| !value.is_empty() && *value != "<none>")
    }

    /// The sections inside it, without their indentation.
    fn children(&self) -> Vec<Section<'a>> {
        sections_of(self.lines.iter().copied())
    }

    fn child(&self, name: &str) -> Option<&'a str> {
        self.children().into_iter().find(|child| child.name == name).map(|child| child.value)
    }
}

fn sections(text: &str) -> Vec<Section<'_>> {
    sections_of(text.lines())
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn sections_of<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Section<'a>> {
    let mut out: Vec<Section<'a>> = Vec::new();
    let mut outer = None;
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let outer = *outer.get_or_insert(indentation(line));
        match (line.split_once(':'), out.last_mut()) {
            (Some((name, value)), _) if indentation(line) <= outer => {
                out.push(Section { name: name.trim(), value: value.trim(), lines: Vec::new() });
            }
            (_, Some(section)) => section.lines.push(line),
            (_, None) => {}
        }
    }
    out
}

/// `KEY=VALUE` in each line.
fn pairs(section: &Section<'_>, separator: char) -> Map<String, Value> {
    let pairs = section.values().filter_map(|pair| pair.split_once(separator));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().into())).collect()
}

/// `KEY=VALUE:EFFECT op=Exists for 300s`, of which most parts may be missing.
fn toleration(text: &str) -> Option<Value> {
    let mut out = Map::new();
    let mut words = text.split_whitespace();
    let (key, effect) = words.next().map(|first| first.split_once(':').unwrap_or((first, "")))?;
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    let rest: Vec<&str> = words.collect();
    let exists = rest.contains(&"op=Exists") || value.is_empty();
    for (field, text) in [("key", key), ("value", value), ("effect", effect)] {
        if !text.is_empty() {
            out.insert(field.into(), text.into());
        }
    }
    out.insert("operator".into(), if exists { "Exists" } else { "Equal" }.into());
    let seconds = rest.iter().position(|word| *word == "for").and_then(|at| rest.get(at + 1));
    if let Some(seconds) = seconds.and_then(|text| text.trim_end_matches('s').parse::<i64>().ok()) {
        out.insert("tolerationSeconds".into(), seconds.into());
    }
    Some(out.into())
}

fn container(section: &Section<'_>) -> Value {
    let mut out = json!({ "name": section.name, "image": section.child("Image").unwrap_or_default() });
    for child in section.children() {
        let field = match child.name {
            "Limits" => "limits",
            "Requests" => "requests",
            _ => continue,
        };
        out["resources"][field] = pairs(&child, ':').into();
    }
    out
}

fn container_status(section: &Section<'_>) -> Value {
    let children = section.children();
    let state = children.iter().find(|child| child.name == "State");
    let detail = |name: &str| state.and_then(|state| state.child(name)).unwrap_or_default();
    let described = match state.map(|state| state.value) {
        Some("Running") => json!({ "running": {} }),
        Some("Waiting") => json!({ "waiting": { "reason": detail("Reason"), "message": detail("Message") } }),
        Some("Terminated") => {
            let code = detail("Exit Code").parse::<i32>().unwrap_or_default();
            json!({ "terminated": { "reason": detail("Reason"), "exitCode": code } })
        }
        _ => json!({}),
    };
    let child = |name: &str| section.child(name).unwrap_or_default();
    json!({
        "name": section.name, "image": child("Image"), "imageID": child("Image ID"), "state": described,
        "ready": child("Ready") == "True", "restartCount": child("Restart Count").parse::<i32>().unwrap_or_default(),
    })
}

/// A volume that is a claim; others do not matter for where a pod can run.
fn volume(section: &Section<'_>) -> Option<Value> {
    let claim = section.child("ClaimName")?;
    Some(json!({ "name": section.name, "persistentVolumeClaim": { "claimName": claim } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Name:             glance-default-external-api-0
Namespace:        openstack
Priority:         0
Service Account:  glance-glance
Node:             worker-1/192.0.2.11
Start Time:       Tue, 20 Jan 2026 10:00:00 +0000
Labels:           app.kubernetes.io/managed-by=glance
                  service=glance
Annotations:      a: b
Status:           Running
IP:               10.128.0.5
Controlled By:    StatefulSet/glance-default-external-api
Containers:
  glance-api:
    Container ID:  cri-o://1
    Image:         registry.example.com/glance:1
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       Error
      Exit Code:    1
    Ready:          False
    Restart Count:  7
    Requests:
      cpu:     100m
      memory:  1Gi
    Environment:  <none>
Conditions:
  Type              Status
  Ready             False
  PodScheduled      True
Volumes:
  glance:
    Type:       PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)
    ClaimName:  glance-glance-default-external-api-0
    ReadOnly:   false
  config:
    Type:        Secret (a volume populated by a Secret)
    SecretName:  config
Node-Selectors:  node-role.kubernetes.io/worker=
Tolerations:     node.kubernetes.io/memory-pressure:NoSchedule op=Exists
                 node.kubernetes.io/unreachable:NoExecute op=Exists for 300s
Events:
  Type     Reason   Age   From     Message
  ----     ------   ----  ----     -------
  Warning  BackOff  1m    kubelet  Back-off restarting failed container
";

    #[test]
    fn a_description_becomes_a_pod() {
        let pod = pod(TEXT).expect("a pod");
        assert_eq!(pod["metadata"]["labels"], json!({ "app.kubernetes.io/managed-by": "glance", "service": "glance" }));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
        assert_eq!(pod["spec"]["nodeName"], "worker-1");
        assert_eq!(pod["spec"]["nodeSelector"], json!({ "node-role.kubernetes.io/worker": "" }));
        let requests = json!({ "cpu": "100m", "memory": "1Gi" });
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], requests);
        let claim = "glance-glance-default-external-api-0";
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{ "name": "glance", "persistentVolumeClaim": { "claimName": claim } }])
        );
        assert_eq!(pod["spec"]["tolerations"][1]["tolerationSeconds"], 300);
        assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 7);
        let conditions = json!([{ "type": "Ready", "status": "False" }, { "type": "PodScheduled", "status": "True" }]);
        assert_eq!(pod["status"]["conditions"], conditions);
        assert_eq!(super::pod("Name: x\n"), None);
        assert_eq!(super::pod(""), None);
    }
}
