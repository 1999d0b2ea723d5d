//! Claims and volumes: no fix moves data, so most leave it where it is, and say so.

use std::sync::Arc;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec,
    PersistentVolumeStatus, Volume as PodVolume, VolumeNodeAffinity, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass as ObjectStorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use stead_placement::{Claim, NodeInfo, Plugin, Pod, StorageClass, Volume};

use super::resources::shown;
use super::{Harm, Remedy, leave, node_key, raw_node};
use crate::change::{Change, Trial, set, set_in, unset};
use stead_model::{ObjectKey, claim_of};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A volume of the pod with its place in the list.
struct Slot<'a> {
    at: usize,
    volume: &'a PodVolume,
    claim: Option<String>,
}

fn slots(trial: &Trial) -> Vec<Slot<'_>> {
    let volumes = trial.view().and_then(|pod| pod.spec()?.volumes.as_deref()).unwrap_or_default().iter().enumerate();
    volumes
        .map(|(at, volume)| Slot { at, volume, claim: claim_of(volume, &trial.pod.key.name).map(|(claim, _)| claim) })
        .collect()
}

pub(super) fn remedies(trial: &Trial, info: Option<&NodeInfo>, plugin: Plugin) -> Vec<Remedy> {
    let mut out = Vec::new();
    if plugin == Plugin::VolumeRestrictions {
        out.extend(holders_leave(trial, info));
    }
    if let (Plugin::NodeVolumeLimits, Some(info)) = (plugin, info) {
        out.extend(attached_leave(trial, info));
    }
    for slot in slots(trial) {
        match &slot.claim {
            Some(name) => out.extend(of_claim(trial, info, plugin, &slot, name)),
            None if plugin == Plugin::VolumeRestrictions && is_disk(slot.volume) => {
                let what = &slot.volume.name;
                let text = format!("replace the disk of volume {what} with an empty directory; its data stays");
                out.push(Remedy::one(Harm::Data, text, empty_dir(trial, &slot)));
            }
            None => {}
        }
    }
    out.extend(without_claims(trial));
    if let (Plugin::VolumeZone, Some(info)) = (plugin, info) {
        out.extend(zone_label(trial, info));
    }
    out
}

/// None of the pod's claims, where it has several.
fn without_claims(trial: &Trial) -> Option<Remedy> {
    let slots: Vec<Slot<'_>> = slots(trial).into_iter().filter(|s| s.claim.is_some()).collect();
    if slots.len() < 2 {
        return None;
    }
    let storage = trial.cluster.storage();
    let holds_data = slots
        .iter()
        .filter_map(|s| s.claim.as_deref())
        .any(|name| storage.claim(&trial.pod.key.namespace, name).is_some_and(|c| c.lost || c.volume.is_some()));
    let (harm, note) = if holds_data {
        (Harm::Data, "their data stays where it is")
    } else {
        (Harm::Looser, "they have no volumes yet, so nothing is lost")
    };
    let names: Vec<String> = slots.iter().filter_map(|s| s.claim.clone()).collect();
    let operations = slots.iter().map(as_empty_dir).collect();
    let text = format!("run the pod without the claims {} (external storage, or none); {note}", super::join(&names));
    Some(Remedy::one(harm, text, Change::patch(&trial.key, operations)))
}

fn is_disk(volume: &PodVolume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
}

/// Replaces a volume with an empty directory that is deleted with the pod.
fn empty_dir(trial: &Trial, slot: &Slot<'_>) -> Change {
    Change::patch(&trial.key, vec![as_empty_dir(slot)])
}

fn as_empty_dir(slot: &Slot<'_>) -> json_patch::PatchOperation {
    json_patch::PatchOperation::Replace(json_patch::ReplaceOperation {
        path: json_patch::jsonptr::PointerBuf::from_tokens(["spec", "volumes", &slot.at.to_string()]),
        value: json!({"name": slot.volume.name, "emptyDir": {}}),
    })
}

/// Whether a pod has a claim of the pod's own namespace that one pod at a time can have.
pub(crate) fn held_once(trial: &Trial, holder: &Pod, claim: &str) -> bool {
    let namespace = &trial.pod.key.namespace;
    let claim = trial.cluster.storage().claim(namespace, claim).filter(|_| holder.key.namespace == *namespace);
    claim.is_some_and(|c| c.access_modes.iter().any(|m| **m == *"ReadWriteOncePod"))
}

/// Pods that hold what can be held once.
fn holders_leave(trial: &Trial, info: Option<&NodeInfo>) -> Option<Remedy> {
    let info = info?;
    let spec = &trial.pod.spec;
    let holds = |p: &Pod, here: bool| {
        p.spec.volumes.iter().any(|v| match v {
            Volume::Claim(name) => spec.volumes.contains(v) && held_once(trial, p, name),
            other => here && spec.volumes.iter().any(|w| same_disk(other, w)),
        })
    };
    let everywhere = trial.cluster.nodes().flat_map(|i| i.pods.iter().map(move |p| (i, p)));
    let pods: Vec<&Arc<Pod>> =
        everywhere.filter(|(i, p)| holds(p, i.node.name == info.node.name)).map(|(_, p)| p).collect();
    leave(trial, &pods)
}

/// Whether two volumes are one disk. Whether that is a conflict depends on who writes to it.
pub(crate) fn same_disk(a: &Volume, b: &Volume) -> bool {
    match (a, b) {
        (Volume::GcePersistentDisk { name: a, .. }, Volume::GcePersistentDisk { name: b, .. }) => a == b,
        (Volume::AwsElasticBlockStore(a), Volume::AwsElasticBlockStore(b)) => a == b,
        (Volume::Iscsi { iqn: a, .. }, Volume::Iscsi { iqn: b, .. }) => a == b,
        (Volume::Rbd { image: a, .. }, Volume::Rbd { image: b, .. }) => a == b,
        _ => false,
    }
}

/// Pods that have volumes attached to the node, one at a time, the least important first.
fn attached_leave(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let mut pods: Vec<&Arc<Pod>> =
        info.pods.iter().filter(|p| p.spec.volumes.iter().any(|v| v.claim().is_some())).collect();
    pods.sort_by_key(|p| (p.spec.priority, p.key.clone()));
    let single = pods.iter().take(4).filter_map(|p| leave(trial, &[p]));
    let several = (2..=pods.len().min(3)).filter_map(|n| leave(trial, &pods[..n]));
    single.chain(several).collect()
}

fn of_claim(trial: &Trial, info: Option<&NodeInfo>, plugin: Plugin, slot: &Slot<'_>, name: &str) -> Vec<Remedy> {
    let namespace = &*trial.pod.key.namespace;
    let key = ObjectKey::namespaced("PersistentVolumeClaim", namespace, name);
    let storage = trial.cluster.storage();
    let mut out = Vec::new();
    let Some(claim) = storage.claim(namespace, name) else {
        out.extend(make_claim(trial, slot, &key));
        let text = format!("replace claim {name}, which does not exist, with an empty directory");
        out.push(Remedy::one(Harm::Looser, text, empty_dir(trial, slot)));
        return out;
    };
    let volume = claim.volume.as_deref().and_then(|v| storage.volume(v));
    let at_fault = match (plugin, info, volume) {
        (Plugin::VolumeBinding, Some(info), Some(volume)) if claim.bound => !volume.usable_on(&info.node.labels),
        _ => true,
    };
    if !at_fault {
        return out;
    }
    if !claim.bound && !claim.lost && !claim.deleting {
        out.extend(of_waiting(trial, info, claim, &key));
    }
    let (harm, note) = match (claim.volume.as_deref(), volume) {
        (Some(volume), Some(_)) => (Harm::Data, format!("the data of claim {name} stays in volume {volume}")),
        (Some(volume), None) if claim.bound || claim.lost => {
            (Harm::Data, format!("the data of claim {name} was in volume {volume}, which does not exist here"))
        }
        (None, _) if claim.lost => (Harm::Data, format!("claim {name} has lost its volume")),
        _ => (Harm::Looser, format!("claim {name} has no volume yet, so nothing is lost")),
    };
    let text = format!("run the pod without claim {name} (external storage, or none); {note}");
    out.push(Remedy::one(harm, text, empty_dir(trial, slot)));
    if !claim.uid.is_empty() {
        out.extend(recreate(trial, claim, slot, &key, harm));
    }
    out
}

/// A claim that waits for its pod: another class, a smaller size, a volume made by hand, or another node.
fn of_waiting(trial: &Trial, info: Option<&NodeInfo>, claim: &Claim, key: &ObjectKey) -> Vec<Remedy> {
    let mut out = Vec::new();
    let object = trial.objects.get::<PersistentVolumeClaim>(key).ok().flatten();
    if let (Some(selected), Some(info)) = (&claim.selected_node, info)
        && **selected != *info.node.name
    {
        let text = format!("let the volume of claim {} be provisioned on another node than {selected}", claim.name);
        let change = Change::patch(key, vec![unset(&["metadata", "annotations", SELECTED_NODE])]);
        out.push(Remedy::one(Harm::Looser, text, change));
    }
    // One that an earlier step has just made is in the class that was chosen for it.
    let fresh = claim.uid.is_empty();
    for class in classes(trial).filter(|c| c.name != claim.class && !fresh) {
        let mut operations = vec![set(&["spec", "storageClassName"], &*class.name)];
        if object.is_some_and(|claim| claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())) {
            operations.push(unset(&["spec", "volumeName"]));
        }
        let annotations = object.and_then(|claim| claim.metadata.annotations.as_ref());
        if annotations.is_some_and(|annotations| annotations.contains_key(SELECTED_NODE)) {
            operations.push(unset(&["metadata", "annotations", SELECTED_NODE]));
        }
        let text =
            format!("create claim {} in class {} (it has no volume yet, so nothing is lost)", claim.name, class.name);
        out.push(Remedy::one(Harm::Looser, text, Change::patch(key, operations)));
    }
    if let Some(info) = info {
        out.extend(volume_by_hand(trial, info, claim));
        out.extend(smaller(trial, info, claim, key));
    }
    out
}

/// The classes that make volumes once the pod is placed, the cluster's default first.
fn classes(trial: &Trial) -> impl Iterator<Item = &StorageClass> {
    let is_default = |class: &ObjectStorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|a| a.get("storageclass.kubernetes.io/is-default-class")).is_some_and(|v| v == "true")
    };
    let mut all: Vec<(&ObjectKey, &ObjectStorageClass)> = trial.objects.all::<ObjectStorageClass>().collect();
    all.sort_by_key(|(_, class)| !is_default(class));
    all.into_iter()
        .filter_map(|(key, _)| trial.cluster.storage().class(&key.name))
        .filter(|c| c.waits == Some(true) && *c.provisioner != *"kubernetes.io/no-provisioner")
        .take(4)
}

/// A new claim of the pod, like an existing one or a template of one.
fn new_claim(
    trial: &Trial,
    slot: &Slot<'_>,
    key: &ObjectKey,
    class: &str,
    like: Option<&PersistentVolumeClaimSpec>,
) -> Value {
    let one_gibibyte = || VolumeResourceRequirements { requests: Some(storage("1Gi".into())), limits: None };
    let like = like.cloned().unwrap_or_default();
    json!(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            owner_references: slot.volume.ephemeral.is_some().then(|| vec![owned_by_pod(trial)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: like.access_modes.or_else(|| Some(vec!["ReadWriteOnce".into()])),
            resources: like.resources.or_else(|| Some(one_gibibyte())),
            volume_mode: like.volume_mode.or_else(|| Some("Filesystem".into())),
            storage_class_name: Some(class.into()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: Some(PersistentVolumeClaimStatus {
            phase: Some("Pending".into()),
            ..PersistentVolumeClaimStatus::default()
        }),
    })
}

fn storage(amount: String) -> BTreeMap<String, Quantity> {
    BTreeMap::from([("storage".into(), Quantity(amount))])
}

/// The owner reference of the claim of a generic ephemeral volume.
fn owned_by_pod(trial: &Trial) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: trial.pod.key.name.to_string(),
        uid: trial.pod.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Creates a claim that does not exist.
fn make_claim(trial: &Trial, slot: &Slot<'_>, key: &ObjectKey) -> Vec<Remedy> {
    let template = slot.volume.ephemeral.as_ref().and_then(|e| Some(&e.volume_claim_template.as_ref()?.spec));
    let wanted = template.and_then(|template| template.storage_class_name.as_deref());
    classes(trial)
        .filter(|c| wanted.is_none_or(|w| *w == *c.name))
        .map(|class| {
            let claim = new_claim(trial, slot, key, &class.name, template);
            let text = if template.is_none() {
                format!("create claim {} in class {}: it does not exist", key.name, class.name)
            } else {
                format!(
                    "claim {} has not been created by the ephemeral volume controller yet: check that it runs",
                    key.name
                )
            };
            Remedy::one(Harm::None, text, Change::create(key, claim))
        })
        .collect()
}

/// Deletes the claim and creates it again, empty.
fn recreate(trial: &Trial, claim: &Claim, slot: &Slot<'_>, key: &ObjectKey, harm: Harm) -> Vec<Remedy> {
    let mut list: Vec<&StorageClass> = classes(trial).collect();
    list.sort_by_key(|c| c.name != claim.class);
    list.into_iter().filter_map(|class| recreate_in(trial, class, claim, slot, key, harm)).collect()
}

fn recreate_in(
    trial: &Trial,
    class: &StorageClass,
    claim: &Claim,
    slot: &Slot<'_>,
    key: &ObjectKey,
    harm: Harm,
) -> Option<Remedy> {
    let old = trial.objects.get::<PersistentVolumeClaim>(key).ok()??;
    let new = new_claim(trial, slot, key, &class.name, old.spec.as_ref());
    let (harm, note) = match (harm, &claim.volume) {
        (Harm::Data, Some(volume)) => {
            (Harm::Loses, format!("; its data is deleted with volume {volume}, unless the volume is retained"))
        }
        (harm, _) => (harm, String::new()),
    };
    let text = format!("delete claim {} and create it again, empty, in class {}{note}", key.name, class.name);
    Some(Remedy::new(harm, text, vec![Change::delete(key), Change::create(key, new)]))
}

/// Somebody prepares a volume of the claim's class on the node.
fn volume_by_hand(trial: &Trial, info: &NodeInfo, claim: &Claim) -> Option<Remedy> {
    let class = trial.cluster.storage().class(&claim.class)?;
    let host = info.node.label(HOSTNAME)?;
    if *class.provisioner != *"kubernetes.io/no-provisioner" || claim.selector.is_some() {
        return None;
    }
    let size = shown("memory", claim.request.as_ref()?.value());
    let name = format!("{}-on-{}", claim.name, info.node.name);
    let on_host =
        NodeSelectorRequirement { key: HOSTNAME.into(), operator: "In".into(), values: Some(vec![host.into()]) };
    let term = NodeSelectorTerm { match_expressions: Some(vec![on_host]), match_fields: None };
    let volume = PersistentVolume {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(storage(size.clone())),
            access_modes: Some(claim.access_modes.iter().map(ToString::to_string).collect()),
            storage_class_name: Some(claim.class.to_string()),
            persistent_volume_reclaim_policy: Some("Retain".into()),
            local: Some(LocalVolumeSource { path: format!("/mnt/{name}"), fs_type: None }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            volume_mode: claim.block.then(|| "Block".into()),
            ..PersistentVolumeSpec::default()
        }),
        status: Some(PersistentVolumeStatus { phase: Some("Available".into()), ..PersistentVolumeStatus::default() }),
    };
    let text = format!("prepare a volume of {size} in class {} on node {}", claim.class, info.node.name);
    let key = ObjectKey::cluster("PersistentVolume", &name);
    Some(Remedy::one(Harm::None, text, Change::create(&key, json!(volume))))
}

/// The claim asks for what the driver has left where the node can reach it.
fn smaller(trial: &Trial, info: &NodeInfo, claim: &Claim, key: &ObjectKey) -> Option<Remedy> {
    let request = claim.request.as_ref()?.value();
    let left = trial.cluster.storage().room(&claim.class, &info.node.labels)?;
    if left <= 0 || left >= request {
        return None;
    }
    let (left, was) = (shown("memory", left), shown("memory", request));
    let text = format!("request less in claim {}: {left} of {was} is available to node {}", claim.name, info.node.name);
    let change = Change::patch(key, vec![set(&["spec", "resources", "requests", "storage"], left)]);
    Some(Remedy::one(Harm::Smaller, text, change))
}

/// A node that says its region but not its zone, or the other way round, gets the label that the volume asks for.
fn zone_label(trial: &Trial, info: &NodeInfo) -> Option<Remedy> {
    let storage = trial.cluster.storage();
    for (name, _) in trial.pod.spec.volumes.iter().filter_map(|v| v.claim()) {
        let claim = storage.claim(&trial.pod.key.namespace, name);
        let Some(volume) = claim.and_then(|c| storage.volume(c.volume.as_deref()?)) else { continue };
        for key in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
            if let (Some(value), None) = (volume.labels.get(key), info.node.label(key)) {
                let value = value.split("__").next().unwrap_or_default();
                let operations = set_in(raw_node(trial, info), &["metadata", "labels"], key, value);
                let text = format!("label node {} {key}={value}, if that is where it is", info.node.name);
                return Some(Remedy::one(Harm::Trusts, text, Change::patch(&node_key(info), operations)));
            }
        }
    }
    None
}
