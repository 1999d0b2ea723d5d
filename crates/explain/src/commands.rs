//! What to type for a change.

use serde_json::{Value, json};

use crate::because::origin;
use crate::change::{Action, Change, Trial};
use crate::objects::ObjectKey;

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
        (Action::Create(_), "PersistentVolumeClaim") if of_template(trial, &change.name) => {
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

/// Whether a claim is one that the pod's StatefulSet makes.
fn of_template(trial: &Trial, claim: &str) -> bool {
    let Some((kind, name)) = controller(trial.raw_pod()) else { return false };
    let set = trial.objects.get(&ObjectKey::new(&kind, &trial.key.namespace, &name));
    let templates = set.and_then(|s| s["spec"]["volumeClaimTemplates"].as_array()).into_iter().flatten();
    let mut names = templates.filter_map(|t| t["metadata"]["name"].as_str());
    kind == "StatefulSet" && names.any(|t| claim == format!("{t}-{}", trial.key.name))
}

fn operations(patch: &json_patch::Patch) -> Vec<Value> {
    json!(patch).as_array().cloned().unwrap_or_default()
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn node(trial: &Trial, change: &Change, operations: &[Value]) -> Vec<String> {
    let name = &change.name;
    let raw = trial.objects.get(&change.key()).unwrap_or(&Value::Null);
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
                if key == "node.kubernetes.io/unschedulable" {
                    // The uncordon takes it away.
                } else if key.starts_with("node.kubernetes.io/") {
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
    let raw = trial.objects.get(&change.key()).unwrap_or(&Value::Null);
    let namespace = &change.namespace;
    if let Some(lines) = topology(trial, raw, operations) {
        return lines;
    }
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
        .get(&ObjectKey::new(&owner.0, namespace, &owner.1))
        .and_then(controller)
        .filter(|next| !chain.contains(next))
    {
        chain.push(next.clone());
        owner = next;
    }
    if let Some(lines) = external_storage(trial, namespace, &chain, operations) {
        return lines;
    }
    let in_template: Vec<Value> = operations
        .iter()
        .map(|op| {
            let mut op = op.clone();
            op["path"] = json!(format!("/spec/template{}", op["path"].as_str().unwrap_or_default()));
            op
        })
        .collect();
    let (kind, name) = &owner;
    let workload = matches!(kind.as_str(), "StatefulSet" | "Deployment" | "ReplicaSet" | "Job" | "DaemonSet");
    // A claim of a StatefulSet's template is no volume of its pod template; it cannot be patched there.
    let volumes = operations.iter().any(|op| op["path"].as_str().is_some_and(|p| p.starts_with("/spec/volumes/")));
    let mut lines = if workload && !(volumes && kind == "StatefulSet") {
        let p = json!(in_template);
        vec![format!("kubectl -n {namespace} patch {} {name} --type=json -p '{p}'", kind.to_lowercase())]
    } else {
        vec![format!("# change what makes the pod, {kind} {name}: {}", json!(in_template))]
    };
    // A StatefulSet does not replace a pod that never became ready by itself.
    if chain.iter().any(|(kind, _)| kind == "StatefulSet") {
        lines.push(format!("kubectl -n {namespace} delete pod {}", change.name));
    }
    lines
}

fn controller(object: &Value) -> Option<(String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|o| o["controller"] == json!(true))?;
    Some((owner["kind"].as_str()?.to_owned(), owner["name"].as_str()?.to_owned()))
}

/// A rule that a Topology brought is changed there.
fn topology(trial: &Trial, pod: &Value, operations: &[Value]) -> Option<Vec<String>> {
    let path = operations.first()?["path"].as_str()?;
    let mut tokens = path.strip_prefix("/spec/topologySpreadConstraints/")?.split('/');
    let at: usize = tokens.next()?.parse().ok()?;
    let name = origin(trial, "topologySpreadConstraints", &pod["spec"]["topologySpreadConstraints"][at])?;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
    let in_topology: Vec<Value> = operations
        .iter()
        .map(|op| {
            let mut op = op.clone();
            op["path"] = json!(op["path"].as_str().unwrap_or_default().replacen(&format!("/{at}/"), "/0/", 1));
            op
        })
        .collect();
    Some(vec![format!("kubectl -n {namespace} patch topology {name} --type=json -p '{}'", json!(in_topology))])
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
    let (plane, spec) = trial.objects.of_kind("OpenStackControlPlane").find(|(k, _)| k.namespace == namespace)?;
    // GlanceAPI objects are called GLANCE-API-TYPE after the entry that they come from.
    let apis = spec["spec"]["glance"]["template"]["glanceAPIs"].as_object()?;
    let entry = apis.keys().find(|k| api.split('-').any(|token| token == *k))?;
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
    let mut object = trial.objects.get(&change.key()).cloned().unwrap_or(Value::Null);
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
