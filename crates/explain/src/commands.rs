//! What to type for a change.

use serde_json::{Value, json};

use crate::because::{affinity_origin, glance_api, spread_origin};
use crate::change::{Action, Change, Trial};
use crate::explanation::some;
use crate::references::{followers, titled};
use crate::remedies::by_kubernetes;
use stead_model::ObjectKey;

/// The commands for a way out, in order. A line that begins with `#` is for a person to read.
pub(crate) fn commands(trial: &Trial, changes: &[Change]) -> Vec<String> {
    let mut trial = trial.clone();
    let mut out = Vec::new();
    for change in changes {
        out.extend(command(&trial, change));
        if let Some(next) = trial.with(std::slice::from_ref(change)) {
            trial = next;
        }
    }
    out.dedup();
    out
}

fn command(trial: &Trial, change: &Change) -> Vec<String> {
    let namespace = if change.namespace.is_empty() { String::new() } else { format!("-n {} ", change.namespace) };
    let kind = change.kind.to_lowercase();
    match (&change.action, change.kind.as_str()) {
        (Action::Delete(_), _) => vec![format!("kubectl {namespace}delete {kind} {}", change.name)],
        (Action::Create(_), "Node") => vec![format!("# add a node as described ({} stands for it)", change.name)],
        (Action::Create(claim), "PersistentVolumeClaim") if of_template(trial, &change.name, claim) => {
            vec![format!(
                "kubectl {namespace}delete pod {}  # its StatefulSet makes claim and pod anew",
                trial.key.name
            )]
        }
        (Action::Create(object), _) => {
            let mut object = object.clone();
            if let Some(o) = object.as_object_mut() {
                o.remove("status");
            }
            vec![format!("kubectl {namespace}create -f - <<'EOF'\n{object}\nEOF")]
        }
        (Action::Patch(patch), "Node") => node(trial, change, &operations(patch)),
        (Action::Patch(patch), "Pod") => pod(trial, change, &operations(patch)),
        (Action::Patch(_), "PersistentVolumeClaim") => claim(trial, change),
        (Action::Patch(patch), _) => {
            vec![format!("kubectl {namespace}patch {kind} {} --type=json -p '{}'", change.name, json!(patch))]
        }
    }
}

/// Whether the pod's StatefulSet makes just this claim by itself.
fn of_template(trial: &Trial, name: &str, claim: &Value) -> bool {
    let Some((kind, owner)) = controller(trial.raw_pod()) else { return false };
    let set = trial.objects.raw(&ObjectKey::new(&kind, &trial.key.namespace, &owner));
    let mut templates = set.and_then(|s| s["spec"]["volumeClaimTemplates"].as_array()).into_iter().flatten();
    kind == "StatefulSet"
        && templates.any(|t| {
            let stem = t["metadata"]["name"].as_str().unwrap_or_default();
            name == format!("{stem}-{}", trial.key.name)
                && t["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
        })
}

fn operations(patch: &json_patch::Patch) -> Vec<Value> {
    json!(patch).as_array().cloned().unwrap_or_default()
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn node(trial: &Trial, change: &Change, operations: &[Value]) -> Vec<String> {
    let name = &change.name;
    let raw = trial.objects.raw(&change.key()).unwrap_or(&Value::Null);
    let uncordons = operations.iter().any(|op| op["path"] == json!("/spec/unschedulable"));
    let mut labels = Vec::new();
    let mut out = Vec::new();
    for op in operations {
        let path: Vec<&str> = op["path"].as_str().unwrap_or_default().split('/').skip(1).collect();
        match path.as_slice() {
            ["metadata", "labels", key] if op["op"] == json!("remove") => labels.push(format!("{}-", unescaped(key))),
            ["metadata", "labels", key] => {
                labels.push(format!("{}={}", unescaped(key), op["value"].as_str().unwrap_or_default()));
            }
            ["spec", "unschedulable"] => out.push(format!("kubectl uncordon {name}")),
            ["spec", "taints", at] => {
                let taint = at.parse::<usize>().ok().and_then(|i| raw["spec"]["taints"].get(i)).unwrap_or(&Value::Null);
                let key = taint["key"].as_str().unwrap_or_default();
                let effect = taint["effect"].as_str().unwrap_or_default();
                if key == "node.kubernetes.io/unschedulable" && uncordons {
                    // The uncordon takes it away.
                } else if by_kubernetes(key) {
                    out.push(format!("# Kubernetes takes {key}:{effect} away once node {name} is well again"));
                } else {
                    let value = taint["value"].as_str().filter(|v| !v.is_empty());
                    let value = value.map(|v| format!("={v}")).unwrap_or_default();
                    out.push(format!("kubectl taint node {name} {key}{value}:{effect}-"));
                }
            }
            _ => {}
        }
    }
    if !labels.is_empty() {
        out.insert(0, format!("kubectl label node {name} --overwrite {}", labels.join(" ")));
    }
    out
}

/// A pod's spec is its owner's to change.
fn pod(trial: &Trial, change: &Change, operations: &[Value]) -> Vec<String> {
    let raw = trial.objects.raw(&change.key()).unwrap_or(&Value::Null);
    let namespace = &change.namespace;
    let Some(mut owner) = controller(raw) else {
        let p = json!(operations);
        return vec![
            format!("kubectl -n {namespace} get pod {} -o json > pod.json", change.name),
            format!("# change pod.json: {p}"),
            "kubectl replace --force -f pod.json".into(),
        ];
    };
    let mut chain = vec![owner.clone()];
    while let Some(next) = trial
        .objects
        .raw(&ObjectKey::new(&owner.0, namespace, &owner.1))
        .and_then(controller)
        .filter(|next| !chain.contains(next))
    {
        chain.push(next.clone());
        owner = next;
    }
    if let Some(mut lines) = topology(trial, raw, operations) {
        lines.extend(restart(trial, &change.key(), &chain));
        return lines;
    }
    if let Some(lines) = external_storage(trial, namespace, &chain, operations) {
        return lines;
    }
    let (kind, name) = &owner;
    let workload = matches!(kind.as_str(), "StatefulSet" | "Deployment" | "ReplicaSet" | "Job" | "DaemonSet");
    let template = chain.iter().find_map(|(kind, name)| {
        let owner = trial.objects.raw(&ObjectKey::new(kind, namespace, name))?;
        owner["spec"].get("template")
    });
    let mut lines = vec![match template.filter(|_| workload).and_then(|t| in_template(raw, t, operations)) {
        Some(patch) => {
            let kind = kind.to_lowercase();
            format!("kubectl -n {namespace} patch {kind} {name} --type=json -p '{}'", json!(patch))
        }
        None => format!("# change what makes the pod, {kind} {name}, so that the pod gets {}", json!(operations)),
    }];
    lines.extend(restart(trial, &change.key(), &chain));
    lines
}

/// A StatefulSet that goes in order does not replace a pod that never became ready by itself.
fn restart(trial: &Trial, pod: &ObjectKey, chain: &[(String, String)]) -> Option<String> {
    let (kind, name) = chain.iter().find(|(kind, _)| kind == "StatefulSet")?;
    let set = trial.objects.raw(&ObjectKey::new(kind, &pod.namespace, name));
    let parallel = set.is_some_and(|s| s["spec"]["podManagementPolicy"] == json!("Parallel"));
    (!parallel).then(|| format!("kubectl -n {} delete pod {}", pod.namespace, pod.name))
}

/// The same operations on the template that a pod was made from. Admission adds to a pod's lists, so that what is
/// the third there may be the second here; none where the template does not have what is to be changed.
fn in_template(pod: &Value, template: &Value, operations: &[Value]) -> Option<Vec<Value>> {
    let (mut pod, mut template) = (pod.clone(), template.clone());
    let mut out = Vec::new();
    for op in operations {
        let mut there = op.clone();
        there["path"] = json!(path_in_template(&pod, &template, op["path"].as_str()?)?);
        if there["path"].as_str()?.ends_with("/-")
            && !template.pointer(parent(there["path"].as_str()?)).is_some_and(Value::is_array)
        {
            // Admission gave the pod the list that the template has not.
            there["path"] = json!(parent(there["path"].as_str()?));
            there["value"] = json!([op["value"]]);
        }
        json_patch::patch(&mut pod, &patch_of(op)?).ok()?;
        json_patch::patch(&mut template, &patch_of(&there)?).ok()?;
        there["path"] = json!(format!("/spec/template{}", there["path"].as_str()?));
        out.push(there);
    }
    Some(out)
}

fn patch_of(operation: &Value) -> Option<json_patch::Patch> {
    serde_json::from_value(json!([operation])).ok()
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Where the template has what the pod has at a path: in lists it is found by what it is, or by its name.
fn path_in_template(pod: &Value, template: &Value, path: &str) -> Option<String> {
    let (mut here, mut there) = (pod, template);
    let mut out = String::new();
    for token in path.split('/').skip(1) {
        let found = match (here, there) {
            (Value::Array(items), Value::Array(others)) if token != "-" => {
                let item = items.get(token.parse::<usize>().ok()?)?;
                let named = |o: &Value| item["name"].is_string() && o["name"] == item["name"];
                let at = others.iter().position(|o| o == item).or_else(|| others.iter().position(named))?;
                at.to_string()
            }
            (Value::Array(_), _) if token != "-" => return None,
            _ => token.to_owned(),
        };
        (here, there) = (step(here, token), step(there, &found));
        out = format!("{out}/{found}");
    }
    Some(out)
}

fn step<'a>(value: &'a Value, token: &str) -> &'a Value {
    match value {
        Value::Array(items) => token.parse::<usize>().ok().and_then(|i| items.get(i)).unwrap_or(&Value::Null),
        other => &other[unescaped(token)],
    }
}

fn controller(object: &Value) -> Option<(String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|o| o["controller"] == json!(true))?;
    Some((owner["kind"].as_str()?.to_owned(), owner["name"].as_str()?.to_owned()))
}

/// The rule of a Topology that operations on a pod are about: where the pod has it, and where the Topology does.
struct Brought<'a> {
    here: String,
    topology: &'a ObjectKey,
    there: String,
}

fn brought<'a>(trial: &'a Trial, pod: &Value, operations: &[Value]) -> Option<Brought<'a>> {
    let path = operations.first()?["path"].as_str()?;
    let affinity = "/spec/affinity/nodeAffinity/";
    if path.starts_with(affinity) {
        let topology = affinity_origin(trial, &pod["spec"]["affinity"]["nodeAffinity"])?;
        return Some(Brought { here: affinity.into(), topology, there: affinity.into() });
    }
    let own = "/spec/topologySpreadConstraints/";
    let at = path.strip_prefix(own)?.split('/').next()?;
    let rule = &pod["spec"]["topologySpreadConstraints"][at.parse::<usize>().ok()?];
    let (topology, list, place) = spread_origin(trial, rule)?;
    Some(Brought { here: format!("{own}{at}/"), topology, there: format!("/spec/{list}/{place}/") })
}

/// A rule that a Topology brought is changed there.
fn topology(trial: &Trial, pod: &Value, operations: &[Value]) -> Option<Vec<String>> {
    let brought = brought(trial, pod, operations)?;
    let mut there = Vec::new();
    for op in operations {
        let field = op["path"].as_str()?.strip_prefix(&brought.here)?;
        let mut op = op.clone();
        op["path"] = json!(format!("{}{field}", brought.there));
        there.push(op);
    }
    let (namespace, name) = (&brought.topology.namespace, &brought.topology.name);
    Some(vec![format!("kubectl -n {namespace} patch topology {name} --type=json -p '{}'", json!(there))])
}

/// Who else follows the Topologies that a way out changes: their pods are placed anew as well.
pub(crate) fn also_used(trial: &Trial, changes: &[Change]) -> Vec<String> {
    let own = glance_api(trial).map(|(key, _)| key);
    let mut out = Vec::new();
    for change in changes.iter().filter(|c| c.key() == trial.key) {
        let Action::Patch(patch) = &change.action else { continue };
        let Some(brought) = brought(trial, trial.raw_pod(), &operations(patch)) else { continue };
        let others =
            followers(&trial.objects, brought.topology).into_iter().filter(|(key, _)| Some(*key) != own.as_ref());
        let others: Vec<String> = others.map(|(key, _)| titled(key)).collect();
        if !others.is_empty() {
            let line = format!("Topology {} is also used by: {}", brought.topology.name, some(&others));
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

/// Glance keeps images elsewhere and its claim is only a staging area: the control plane can do without.
fn external_storage(
    trial: &Trial,
    namespace: &str,
    chain: &[(String, String)],
    operations: &[Value],
) -> Option<Vec<String>> {
    let gives_up_claim = operations.iter().all(|op| op["value"].get("emptyDir").is_some());
    let (_, api) = chain.iter().find(|(kind, _)| kind == "GlanceAPI").filter(|_| gives_up_claim)?;
    let (plane, spec) = trial.objects.raw_of_kind("OpenStackControlPlane").find(|(k, _)| k.namespace == namespace)?;
    // GlanceAPI objects are called GLANCE-API-TYPE after the entry that they come from.
    let apis = spec["spec"]["glance"]["template"]["glanceAPIs"].as_object()?;
    let (stem, _) = api.rsplit_once('-')?;
    let names = |entry: &&String| stem.strip_suffix(entry.as_str()).is_some_and(|rest| rest.ends_with('-'));
    let entry = apis.keys().filter(names).max_by_key(|k| k.len())?;
    let patch = json!({"spec": {"glance": {"template": {"glanceAPIs": {entry: {"storage": {"external": true}}}}}}});
    Some(vec![
        format!("# all pods of {api} restart; their claims stay until somebody deletes them"),
        format!("kubectl -n {namespace} patch openstackcontrolplane {} --type=merge -p '{patch}'", plane.name),
    ])
}

/// A claim's spec is fixed: one that has no volume is deleted and made anew.
fn claim(trial: &Trial, change: &Change) -> Vec<String> {
    let Action::Patch(patch) = &change.action else { return Vec::new() };
    let (namespace, name) = (&change.namespace, &change.name);
    let ops = operations(patch);
    if ops.iter().all(|op| op["path"].as_str().is_some_and(|p| p.starts_with("/metadata/annotations/"))) {
        let p = json!(patch);
        return vec![format!("kubectl -n {namespace} patch pvc {name} --type=json -p '{p}'")];
    }
    let mut object = trial.objects.raw(&change.key()).cloned().unwrap_or(Value::Null);
    if json_patch::patch(&mut object, patch).is_err() {
        return Vec::new();
    }
    let new = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": object["spec"],
    });
    vec![
        format!("kubectl -n {namespace} delete pvc {name}"),
        format!("kubectl -n {namespace} create -f - <<'EOF'\n{new}\nEOF"),
    ]
}
