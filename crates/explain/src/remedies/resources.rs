//! Resources: the pod can request less, other pods can be deleted, a node can be added.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubernetesQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use stead_placement::{Attempt, Cluster, NodeInfo, Pod, ResourceName};
use stead_semantics::quantity::Quantity;

use super::{Harm, Remedy, leave, stays};
use crate::change::{Change, Trial, set};
use stead_model::ObjectKey;

/// What is missing on a node, by resource.
fn shortfall(pod: &Pod, info: &NodeInfo) -> Vec<(ResourceName, i64)> {
    let want = &pod.spec.resources.requests;
    let scalars = want.scalars.iter().map(|(name, _)| ResourceName::Scalar(name.clone()));
    let names = [ResourceName::Cpu, ResourceName::Memory, ResourceName::EphemeralStorage].into_iter().chain(scalars);
    names
        .filter_map(|name| {
            let want = want.amount(&name);
            let free = info.node.allocatable.amount(&name).saturating_sub(info.requested.amount(&name));
            (want > 0 && want > free).then(|| (name, want.saturating_sub(free)))
        })
        .collect()
}

pub(super) fn remedies(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let short = shortfall(&trial.pod, info);
    let full = info.pods.len() as i64 + 1 > info.node.max_pods;
    let mut out = Vec::new();
    if !short.is_empty() {
        out.extend(ask_for_less(trial, info, &short));
    }
    out.extend(room(trial, info, &short, full));
    if full && !short.is_empty() {
        // One pod is deleted for the number of pods; the next step handles the other resources.
        out.extend(room(trial, info, &[], true));
    }
    out
}

/// Deletes the fewest pods that make room, the lowest priority first.
fn room(trial: &Trial, info: &NodeInfo, short: &[(ResourceName, i64)], full: bool) -> Option<Remedy> {
    let mut pods: Vec<&Arc<Pod>> = info.pods.iter().filter(|p| !stays(trial, p)).collect();
    pods.sort_by_key(|p| (p.spec.priority, p.key.clone()));
    let enough = |chosen: &[&Arc<Pod>]| {
        short
            .iter()
            .all(|(name, need)| chosen.iter().map(|p| p.spec.resources.taken.amount(name)).sum::<i64>() >= *need)
            && (!full || !chosen.is_empty())
    };
    if let Some(one) = pods.iter().find(|p| enough(&[p])) {
        return leave(trial, &[one]);
    }
    // No single pod: the largest ones of the lowest priority, until it is enough.
    let size = |p: &Pod| short.iter().map(|(name, _)| p.spec.resources.taken.amount(name)).max().unwrap_or(0);
    pods.sort_by_key(|p| (p.spec.priority > trial.pod.spec.priority, -size(p), p.key.clone()));
    (2..=super::MOST_LEAVING.min(pods.len())).find(|n| enough(&pods[..*n])).and_then(|n| leave(trial, &pods[..n]))
}

/// Deletes as many pods of a node as it takes, for when nothing smaller helps. As in preemption, all candidates are removed
/// first, and added again one by one, the highest priority first, as long as the pod still fits.
pub(crate) fn make_room(trial: &Trial, info: &NodeInfo) -> Option<Remedy> {
    let mut pods: Vec<&Arc<Pod>> = info.pods.iter().filter(|p| !stays(trial, p)).collect();
    if pods.is_empty() || pods.len() > MOST_IN_ALL {
        return None;
    }
    pods.sort_by_key(|p| (Reverse(p.spec.priority), p.key.clone()));
    let mut cluster = trial.cluster.clone();
    for pod in &pods {
        cluster.remove_pod(&pod.key);
    }
    let takes = |cluster: &Cluster| {
        let node = cluster.node(&info.node.name);
        node.is_some_and(|n| Attempt::new(cluster, &trial.pod).and_then(|a| a.node(n)).is_ok())
    };
    if !takes(&cluster) {
        return None;
    }
    pods.retain(|pod| {
        cluster.set_pod((***pod).clone());
        let stays = takes(&cluster);
        if !stays {
            cluster.remove_pod(&pod.key);
        }
        !stays
    });
    let names: Vec<String> = pods.iter().map(|p| p.key.to_string()).collect();
    let text = format!("make room on node {}: delete {} pods, {}", info.node.name, pods.len(), super::join(&names));
    let changes = pods.iter().map(|p| Change::delete(&super::pod_key(p))).collect();
    Some(Remedy::new(Harm::Disrupts, text, changes))
}

/// A node with more pods than this is not emptied, not even for a trial.
const MOST_IN_ALL: usize = 64;

/// Lowers the pod's requests to what is free, the largest request first.
fn ask_for_less(trial: &Trial, info: &NodeInfo, short: &[(ResourceName, i64)]) -> Option<Remedy> {
    let mut changed = trial.clone();
    let mut operations = Vec::new();
    let mut what = Vec::new();
    for (name, _) in short {
        let free = (info.node.allocatable.amount(name) - info.requested.amount(name)).max(0);
        for _ in 0..6 {
            let over = changed.pod.spec.resources.requests.amount(name) - free;
            if over <= 0 {
                break;
            }
            let ops = shrink_largest(changed.view()?.spec()?, name.as_str(), over)?;
            changed = changed.with(&[Change::patch(&trial.key, ops.clone())])?;
            operations.extend(ops);
        }
        if changed.pod.spec.resources.requests.amount(name) > free {
            return None;
        }
        let was = shown(name.as_str(), trial.pod.spec.resources.requests.amount(name));
        what.push(match changed.pod.spec.resources.requests.amount(name) {
            0 if matches!(name, ResourceName::Cpu | ResourceName::Memory) => {
                format!("no {name} instead of {was} (nothing is free: such a pod is throttled and evicted first)")
            }
            0 => format!("no {name} instead of {was}"),
            less => format!("{name} {} instead of {was}", shown(name.as_str(), less)),
        });
    }
    if operations.is_empty() {
        return None;
    }
    let text = format!("request less: {} fits node {}", super::join(&what), info.node.name);
    Some(Remedy::one(Harm::Smaller, text, Change::patch(&trial.key, operations)))
}

/// An amount as people write it.
pub(crate) fn shown(name: &str, amount: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        _ if name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-") => UNITS
            .iter()
            .find(|(_, unit)| amount >= *unit && amount % unit == 0)
            .map_or_else(|| amount.to_string(), |(suffix, unit)| format!("{}{suffix}", amount / unit)),
        _ => amount.to_string(),
    }
}

/// The amount of a quantity: millicores of CPU, units of everything else.
fn amount_of(name: &str, quantity: &KubernetesQuantity) -> Option<i64> {
    let quantity = Quantity::parse(&quantity.0).ok()?;
    Some(if name == "cpu" { quantity.milli_value() } else { quantity.value() })
}

/// How much of a resource is requested; a limit without a request is also the request.
fn requested(name: &str, resources: Option<&ResourceRequirements>) -> Option<i64> {
    let resources = resources?;
    let lists = [&resources.requests, &resources.limits];
    amount_of(name, lists.into_iter().flatten().find_map(|list| list.get(name))?)
}

/// Takes an amount off the container, or the pod as a whole, that requests most of a resource.
fn shrink_largest(spec: &PodSpec, name: &str, over: i64) -> Option<Vec<json_patch::PatchOperation>> {
    let mut largest: Option<(i64, Vec<String>, Option<&ResourceRequirements>)> = None;
    if let Some(have) = requested(name, spec.resources.as_ref()) {
        largest = Some((have, vec!["spec".into()], spec.resources.as_ref()));
    } else {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for (list, containers) in [("containers", spec.containers.as_slice()), ("initContainers", init)] {
            for (i, container) in containers.iter().enumerate() {
                let resources = container.resources.as_ref();
                let Some(have) = requested(name, resources) else { continue };
                if largest.as_ref().is_none_or(|(most, _, _)| have > *most) {
                    largest = Some((have, vec!["spec".into(), list.into(), i.to_string()], resources));
                }
            }
        }
    }
    let (have, path, resources) = largest.filter(|(have, _, _)| *have > 0)?;
    let less = shown(name, (have - over).max(0));
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let below = |field: &'static str| [path.as_slice(), &["resources", field]].concat();
    let mut operations = Vec::new();
    if resources.is_none_or(|resources| resources.requests.is_none()) {
        operations.push(set(&below("requests"), json!({})));
    }
    operations.push(set(&[below("requests").as_slice(), &[name]].concat(), less.as_str()));
    // Huge pages and extended resources cannot be limited to more than is requested.
    let countable = !matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    if countable && limits.is_some_and(|limits| limits.contains_key(name)) {
        operations.push(set(&[below("limits").as_slice(), &[name]].concat(), less.as_str()));
    }
    Some(operations)
}

/// Adds a node: like an existing one, without taints, with room for the pod, in each of the zones in turn.
pub(crate) fn new_nodes(trial: &Trial) -> Vec<Remedy> {
    let mut zones: Vec<(String, &NodeInfo)> = Vec::new();
    for info in trial.cluster.nodes() {
        let zone = ["topology.kubernetes.io/zone", "zone"].iter().find_map(|k| info.node.label(k)).unwrap_or_default();
        match zones.iter_mut().find(|(z, _)| z == zone) {
            None => zones.push((zone.to_owned(), info)),
            // The one with the most labels is the best model.
            Some((_, best)) if info.node.labels.len() > best.node.labels.len() => *best = info,
            Some(_) => {}
        }
    }
    if zones.is_empty() {
        return vec![new_node(trial, "", None)];
    }
    zones.into_iter().take(4).map(|(zone, like)| new_node(trial, &zone, Some(like))).collect()
}

fn new_node(trial: &Trial, zone: &str, like: Option<&NodeInfo>) -> Remedy {
    let mut name = String::from("new-node");
    let mut n = 1;
    while trial.cluster.node(&name).is_some() {
        n += 1;
        name = format!("new-node-{n}");
    }
    let mut labels = BTreeMap::new();
    let mut allocatable = BTreeMap::new();
    if let Some(like) = like {
        for (key, value) in &like.node.labels {
            // A label with the name of the old node gets the name of the new one.
            let own = **value == *like.node.name || key == "kubernetes.io/hostname";
            labels.insert(key.to_string(), if own { name.clone() } else { value.to_string() });
        }
        let found = trial.objects.node(&like.node.name).ok().flatten();
        allocatable = found.and_then(|node| node.typed().status.as_ref()?.allocatable.clone()).unwrap_or_default();
    } else {
        labels.insert("kubernetes.io/hostname".into(), name.clone());
        let selector = trial.view().and_then(|pod| pod.spec()?.node_selector.clone());
        labels.extend(selector.into_iter().flatten());
    }
    let want = &trial.pod.spec.resources.requests;
    let mut enlarged = Vec::new();
    let needs = [("cpu", want.milli_cpu), ("memory", want.memory), ("ephemeral-storage", want.ephemeral_storage)];
    let scalars = want.scalars.iter().map(|(name, n)| (&**name, *n));
    for (resource, need) in needs.into_iter().chain(scalars).filter(|(_, need)| *need > 0) {
        if has(&allocatable, resource) < need {
            allocatable.insert(resource.to_owned(), KubernetesQuantity(shown(resource, need)));
            enlarged.push(format!("{resource} {}", shown(resource, need)));
        }
    }
    if has(&allocatable, "pods") < 1 {
        allocatable.insert("pods".into(), KubernetesQuantity("110".into()));
    }
    let features = &trial.pod.spec.features;
    let node = Node {
        metadata: ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            capacity: Some(allocatable.clone()),
            allocatable: Some(allocatable),
            declared_features: (!features.is_empty()).then(|| features.iter().map(ToString::to_string).collect()),
            ..NodeStatus::default()
        }),
    };
    let place = if zone.is_empty() { String::new() } else { format!(" in {zone}") };
    let size = if enlarged.is_empty() { String::new() } else { format!(", with {}", super::join(&enlarged)) };
    let like = like.map(|l| format!(" like {}", l.node.name)).unwrap_or_default();
    let text = format!("add a node{place}{like}{size}");
    Remedy::one(Harm::Buys, text, Change::create(&ObjectKey::node(&name), json!(node)))
}

/// How much of a resource a list has.
fn has(list: &BTreeMap<String, KubernetesQuantity>, name: &str) -> i64 {
    list.get(name).and_then(|quantity| amount_of(name, quantity)).unwrap_or(0)
}
