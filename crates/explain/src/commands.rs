//! The commands for a fix.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{NodeAffinity, PersistentVolumeClaim, Taint};
use serde_json::{Value, json};
use stead_model::{ObjectKey, OpenStackControlPlane, stateful_set};

use crate::causes::{affinity_origin, service, spread_origin};
use crate::change::{Change, ChangeAction, Trial, part};
use crate::references::titled;
use crate::remedies::{by_kubernetes, join};
use crate::suggested_command::SuggestedCommand;
use crate::topology::users;

/// The commands for a fix, in order, with remarks for a person to read.
pub(crate) fn commands(trial: &Trial, changes: &[Change]) -> Vec<SuggestedCommand> {
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

fn command(trial: &Trial, change: &Change) -> Vec<SuggestedCommand> {
    let run = |arguments: String| vec![SuggestedCommand::client(&change.namespace, arguments)];
    let kind = change.kind.to_lowercase();
    match (&change.action, change.kind.as_str()) {
        (ChangeAction::Delete(_), _) => run(format!("delete {kind} {}", change.name)),
        (ChangeAction::Create(_), "Node") => {
            vec![SuggestedCommand::remark(format!("add a node as described (here called {})", change.name))]
        }
        (ChangeAction::Create(claim), "PersistentVolumeClaim") if of_template(trial, &change.name, claim) => {
            run(format!("delete pod {}  # its StatefulSet recreates claim and pod", trial.key.name))
        }
        (ChangeAction::Create(object), _) => {
            let mut object = object.clone();
            if let Some(o) = object.as_object_mut() {
                o.remove("status");
            }
            run(format!("create -f - <<'EOF'\n{object}\nEOF"))
        }
        (ChangeAction::Patch(patch), "Node") => node(trial, change, &patch.0),
        (ChangeAction::Patch(patch), "Pod") => pod(trial, change, &patch.0),
        (ChangeAction::Patch(patch), "PersistentVolumeClaim") => claim(trial, change, patch),
        (ChangeAction::Patch(patch), _) => {
            run(format!("patch {kind} {} --type=json -p '{}'", change.name, json!(patch)))
        }
    }
}

/// Whether the pod's StatefulSet creates just this claim.
fn of_template(trial: &Trial, name: &str, claim: &Value) -> bool {
    let Some(owner) = trial.view().and_then(|pod| pod.controller()).filter(|owner| owner.kind == "StatefulSet") else {
        return false;
    };
    let set = trial.objects.find::<StatefulSet>(&trial.key.namespace, &owner.name);
    let template = set.and_then(|set| stateful_set::template_of_claim(set, &trial.key.name, name));
    let class = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    template.zip(part::<PersistentVolumeClaim>(claim)).is_some_and(|(template, claim)| class(template) == class(&claim))
}

/// The value that an operation adds or sets.
pub(crate) fn value_of(operation: &PatchOperation) -> Option<&Value> {
    match operation {
        PatchOperation::Add(AddOperation { value, .. }) | PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            Some(value)
        }
        _ => None,
    }
}

fn path_of(operation: &PatchOperation) -> String {
    operation.path().to_string()
}

/// The same operation on another path.
fn at_path(operation: &PatchOperation, path: &str) -> Option<PatchOperation> {
    let path = PointerBuf::parse(path).ok()?;
    Some(match operation {
        PatchOperation::Add(AddOperation { value, .. }) => {
            PatchOperation::Add(AddOperation { path, value: value.clone() })
        }
        PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            PatchOperation::Replace(ReplaceOperation { path, value: value.clone() })
        }
        PatchOperation::Remove(_) => PatchOperation::Remove(RemoveOperation { path }),
        _ => return None,
    })
}

pub(crate) fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn node(trial: &Trial, change: &Change, operations: &[PatchOperation]) -> Vec<SuggestedCommand> {
    let name = &change.name;
    let taints = trial.objects.node(name).ok().flatten().map(|node| node.taints()).unwrap_or_default();
    let uncordons = operations.iter().any(|op| path_of(op) == "/spec/unschedulable");
    let mut labels = Vec::new();
    let mut out = Vec::new();
    for op in operations {
        let path = path_of(op);
        let path: Vec<&str> = path.split('/').skip(1).collect();
        match path.as_slice() {
            ["metadata", "labels", key] => labels.push(match value_of(op).and_then(Value::as_str) {
                Some(value) => format!("{}={value}", unescaped(key)),
                None => format!("{}-", unescaped(key)),
            }),
            ["spec", "unschedulable"] => out.push(SuggestedCommand::client("", format!("uncordon {name}"))),
            ["spec", "taints", at] => {
                let taint = at.parse::<usize>().ok().and_then(|at| taints.get(at));
                out.extend(taint.and_then(|taint| remove_taint(name, taint, uncordons)));
            }
            _ => {}
        }
    }
    if !labels.is_empty() {
        let label = format!("label node {name} --overwrite {}", labels.join(" "));
        out.insert(0, SuggestedCommand::client("", label));
    }
    out
}

/// The command that removes a taint; none for the taint of a cordon, which an uncordon removes.
fn remove_taint(node: &str, taint: &Taint, uncordons: bool) -> Option<SuggestedCommand> {
    let (key, effect) = (&taint.key, &taint.effect);
    if key == "node.kubernetes.io/unschedulable" && uncordons {
        return None;
    }
    if by_kubernetes(key) {
        let remark = format!("Kubernetes removes {key}:{effect} once node {node} is healthy again");
        return Some(SuggestedCommand::remark(remark));
    }
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    Some(SuggestedCommand::client("", format!("taint node {node} {key}{value}:{effect}-")))
}

/// The spec of a pod is changed in the object that creates the pod.
fn pod(trial: &Trial, change: &Change, operations: &[PatchOperation]) -> Vec<SuggestedCommand> {
    let (raw, namespace) = (trial.objects.raw(&change.key()).unwrap_or(&Value::Null), &change.namespace);
    let chain = trial.objects.controllers(&change.key());
    let Some(owner) = chain.last() else {
        let p = json!(operations);
        return vec![
            SuggestedCommand::client(namespace, format!("get pod {} -o json > pod.json", change.name)),
            SuggestedCommand::remark(format!("change pod.json: {p}")),
            SuggestedCommand::client("", "replace --force -f pod.json"),
        ];
    };
    if let Some(mut lines) = topology(trial, &change.key(), operations) {
        lines.extend(restart(trial, &change.key(), &chain));
        return lines;
    }
    if let Some(lines) = external_storage(trial, namespace, &chain, operations) {
        return lines;
    }
    let (kind, name) = (&owner.kind, &owner.name);
    let workload = matches!(kind.as_str(), "StatefulSet" | "Deployment" | "ReplicaSet" | "Job" | "DaemonSet");
    let template = chain.iter().find_map(|owner| trial.objects.raw(owner)?.pointer("/spec/template"));
    let mut lines = vec![match template.filter(|_| workload).and_then(|t| in_template(raw, t, operations)) {
        Some(patch) => {
            let kind = kind.to_lowercase();
            SuggestedCommand::client(namespace, format!("patch {kind} {name} --type=json -p '{}'", json!(patch)))
        }
        None => {
            let what = json!(operations);
            SuggestedCommand::remark(format!(
                "change {kind} {name}, which creates the pod, so that the pod gets {what}"
            ))
        }
    }];
    lines.extend(restart(trial, &change.key(), &chain));
    lines
}

/// A StatefulSet that creates its pods in order does not replace a pod that never became ready.
fn restart(trial: &Trial, pod: &ObjectKey, chain: &[ObjectKey]) -> Option<SuggestedCommand> {
    let set = chain.iter().find(|owner| owner.kind == "StatefulSet")?;
    let ordered = trial.objects.find(&set.namespace, &set.name).is_none_or(stateful_set::is_ordered);
    ordered.then(|| SuggestedCommand::client(&pod.namespace, format!("delete pod {}", pod.name)))
}

/// The same operations on the template that a pod was created from. Admission adds to a pod's lists, so that an item may
/// have another index there; none where the template does not have what is to be changed.
fn in_template(pod: &Value, template: &Value, operations: &[PatchOperation]) -> Option<Vec<PatchOperation>> {
    let (mut pod, mut template) = (pod.clone(), template.clone());
    let mut out = Vec::new();
    for op in operations {
        let mut path = path_in_template(&pod, &template, &path_of(op))?;
        let mut there = at_path(op, &path)?;
        if path.ends_with("/-") && !template.pointer(parent(&path)).is_some_and(Value::is_array) {
            // Admission gave the pod the list that the template does not have.
            path = parent(&path).to_owned();
            let (path, value) = (PointerBuf::parse(&path).ok()?, json!([value_of(op)?]));
            there = PatchOperation::Add(AddOperation { path, value });
        }
        json_patch::patch(&mut pod, std::slice::from_ref(op)).ok()?;
        json_patch::patch(&mut template, std::slice::from_ref(&there)).ok()?;
        out.push(at_path(&there, &format!("/spec/template{path}"))?);
    }
    Some(out)
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

/// The rule of a Topology that operations on a pod are about: its path in the pod, and in the Topology.
struct TopologyRule<'a> {
    in_pod: String,
    topology: &'a ObjectKey,
    in_topology: String,
}

fn topology_rule<'a>(trial: &'a Trial, pod: &ObjectKey, operations: &[PatchOperation]) -> Option<TopologyRule<'a>> {
    let path = path_of(operations.first()?);
    let spec = trial.objects.pod(pod).ok()??.spec()?;
    let affinity = "/spec/affinity/nodeAffinity/";
    if path.starts_with(affinity) {
        let own: &NodeAffinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let topology = affinity_origin(trial, own)?;
        return Some(TopologyRule { in_pod: affinity.into(), topology, in_topology: affinity.into() });
    }
    let own = "/spec/topologySpreadConstraints/";
    let at = path.strip_prefix(own)?.split('/').next()?;
    let rule = spec.topology_spread_constraints.as_ref()?.get(at.parse::<usize>().ok()?)?;
    let (topology, list, place) = spread_origin(trial, rule)?;
    Some(TopologyRule { in_pod: format!("{own}{at}/"), topology, in_topology: format!("/spec/{list}/{place}/") })
}

/// A rule that comes from a Topology is changed there.
fn topology(trial: &Trial, pod: &ObjectKey, operations: &[PatchOperation]) -> Option<Vec<SuggestedCommand>> {
    let rule = topology_rule(trial, pod, operations)?;
    let mut there = Vec::new();
    for op in operations {
        let path = path_of(op);
        there.push(at_path(op, &format!("{}{}", rule.in_topology, path.strip_prefix(&rule.in_pod)?))?);
    }
    let (namespace, name) = (&rule.topology.namespace, &rule.topology.name);
    let patch = format!("patch topology {name} --type=json -p '{}'", json!(there));
    Some(vec![SuggestedCommand::client(namespace, patch)])
}

/// The other consumers of the Topologies that a fix changes: their pods are affected too.
pub(crate) fn also_used(trial: &Trial, changes: &[Change]) -> Vec<String> {
    let own = service(trial);
    let mut out = Vec::new();
    for change in changes.iter().filter(|c| c.key() == trial.key) {
        let ChangeAction::Patch(patch) = &change.action else { continue };
        let Some(rule) = topology_rule(trial, &trial.key, &patch.0) else { continue };
        let others = users(&trial.objects, rule.topology).into_iter().filter(|user| Some(&user.key) != own.as_ref());
        // All of them: whoever applies the fix affects each one.
        let others: Vec<String> = others.map(|user| titled(&user.key)).collect();
        if !others.is_empty() {
            let line = format!("Topology {} is also used by: {}", rule.topology.name, join(&others));
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

/// With external storage, the claim of a Glance pod is only a staging area: the control plane can do without.
fn external_storage(
    trial: &Trial,
    namespace: &str,
    chain: &[ObjectKey],
    operations: &[PatchOperation],
) -> Option<Vec<SuggestedCommand>> {
    let drops_claim = operations.iter().all(|op| value_of(op).is_some_and(|value| value.get("emptyDir").is_some()));
    let api = &chain.iter().find(|owner| owner.kind == "GlanceAPI").filter(|_| drops_claim)?.name;
    let planes = trial.objects.all::<OpenStackControlPlane>();
    let (plane, spec) = planes.map(|(key, plane)| (key, &plane.spec)).find(|(key, _)| key.namespace == namespace)?;
    // The name of a GlanceAPI is GLANCE-ENTRY-TYPE.
    let apis = &spec.glance.as_ref()?.template.as_ref()?.glance_apis;
    let (stem, _) = api.rsplit_once('-')?;
    let names = |entry: &&String| stem.strip_suffix(entry.as_str()).is_some_and(|rest| rest.ends_with('-'));
    let entry = apis.keys().filter(names).max_by_key(|k| k.len())?;
    let patch = json!({"spec": {"glance": {"template": {"glanceAPIs": {entry: {"storage": {"external": true}}}}}}});
    Some(vec![
        SuggestedCommand::remark(format!("all pods of {api} restart; their claims remain until you delete them")),
        SuggestedCommand::client(
            namespace,
            format!("patch openstackcontrolplane {} --type=merge -p '{patch}'", plane.name),
        ),
    ])
}

/// The spec of a claim cannot be changed: a claim without a volume is deleted and created again.
fn claim(trial: &Trial, change: &Change, patch: &Patch) -> Vec<SuggestedCommand> {
    let (namespace, name) = (&change.namespace, &change.name);
    if patch.0.iter().all(|op| path_of(op).starts_with("/metadata/annotations/")) {
        let p = json!(patch);
        return vec![SuggestedCommand::client(namespace, format!("patch pvc {name} --type=json -p '{p}'"))];
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
        SuggestedCommand::client(namespace, format!("delete pvc {name}")),
        SuggestedCommand::client(namespace, format!("create -f - <<'EOF'\n{new}\nEOF")),
    ]
}
