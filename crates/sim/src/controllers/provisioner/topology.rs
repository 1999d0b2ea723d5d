//! Where a driver creates a volume (`topology.go` of external-provisioner).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};

use super::Failure;
use crate::step::Context;

/// Labels of a node that say from where a volume is accessible, by key.
pub(super) type Segments = Vec<(String, String)>;

/// The different segments of all nodes, by driver.
#[derive(Debug, Clone, Default)]
pub(super) struct TopologyCache {
    segments: BTreeMap<String, Arc<[Segments]>>,
}

impl TopologyCache {
    /// Nodes have changed.
    pub(super) fn forget(&mut self) {
        self.segments.clear();
    }

    /// The segments of the volume for a claim; none if the driver has no topology.
    pub(super) fn segments(
        &mut self,
        cx: &Context<'_>,
        driver: &str,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        selected: Option<&str>,
    ) -> Result<Option<Segments>, Failure> {
        if let Some(node) = selected {
            return of_node(cx, driver, node);
        }
        if !cx.settings.storage.immediate_topology {
            return Ok(None);
        }
        let all = self.segments.entry(driver.to_owned()).or_insert_with(|| of_all_nodes(cx, driver).into());
        if all.is_empty() {
            return Ok(None);
        }
        let mut terms = class.allowed_topologies.as_deref().map(flatten).unwrap_or_default();
        if terms.is_empty() {
            terms = all.to_vec();
        }
        terms.sort();
        terms.dedup();
        let (hash, index) = spreading(claim.metadata.name.as_deref().unwrap_or_default());
        let chosen = usize::try_from(hash.wrapping_add(index)).unwrap_or_default() % terms.len();
        Ok(terms.into_iter().nth(chosen))
    }
}

fn keys<'a>(node: &'a CSINode, driver: &str) -> &'a [String] {
    let driver = node.spec.drivers.iter().find(|other| other.name == driver);
    driver.and_then(|driver| driver.topology_keys.as_deref()).unwrap_or_default()
}

/// The labels of a node with these keys; none if one is missing.
fn labels_of(node: Option<&Arc<Node>>, keys: &[String]) -> Option<Segments> {
    let labels = node.and_then(|node| node.metadata.labels.as_ref());
    let mut segments = keys.iter().map(|key| Some((key.clone(), labels?.get(key)?.clone()))).collect::<Option<Segments>>()?;
    segments.sort();
    Some(segments)
}

/// The segments of the selected node.
fn of_node(cx: &Context<'_>, driver: &str, name: &str) -> Result<Option<Segments>, Failure> {
    let Some(csi_node) = cx.store.get::<CSINode>("", name) else {
        let message =
            format!("failed to get selected CSINode {name}: csinode.storage.k8s.io \"{name}\" not found");
        return Err(Failure { message, reschedule: true });
    };
    let keys = keys(csi_node, driver);
    if keys.is_empty() {
        return Ok(None);
    }
    let node = cx.store.get::<Node>("", name);
    labels_of(node, keys).map(Some).ok_or_else(|| {
        let labels = node.and_then(|node| node.metadata.labels.clone()).unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        let message = format!(
            "error generating accessibility requirements: topology labels from selected node map[{}] does not match \
             topology keys from CSINode [{}]",
            labels.join(" "),
            keys.join(" ")
        );
        Failure { message, reschedule: false }
    })
}

/// The different segments of the nodes that have the labels of the driver.
fn of_all_nodes(cx: &Context<'_>, driver: &str) -> Vec<Segments> {
    let Some(keys) = cx.store.all::<CSINode>().map(|node| keys(node, driver)).find(|keys| !keys.is_empty()) else {
        return Vec::new();
    };
    let mut all: Vec<Segments> = cx.store.all::<Node>().filter_map(|node| labels_of(Some(node), keys)).collect();
    all.sort();
    all.dedup();
    all
}

/// All combinations of values that a class allows.
fn flatten(allowed: &[TopologySelectorTerm]) -> Vec<Segments> {
    let mut all = Vec::new();
    for term in allowed {
        let mut terms: Vec<Segments> = Vec::new();
        for requirement in term.match_label_expressions.iter().flatten() {
            let of = |value: &String| (requirement.key.clone(), value.clone());
            terms = match terms.is_empty() {
                true => requirement.values.iter().map(|value| vec![of(value)]).collect(),
                false => {
                    let extend = |value: &String| terms.iter().map(|term| [&term[..], &[of(value)]].concat()).collect();
                    requirement.values.iter().flat_map::<Vec<Segments>, _>(extend).collect()
                }
            };
        }
        all.extend(terms);
    }
    all.iter_mut().for_each(|term| term.sort());
    all
}

/// What spreads the volumes of a StatefulSet over all segments: the hash of its name, and the ordinal of the claim
/// (`getPVCNameHashAndIndexOffset`).
fn spreading(claim: &str) -> (u32, u32) {
    let ordinal = claim.rsplit_once('-').and_then(|(rest, ordinal)| Some((rest, ordinal.parse::<u32>().ok()?)));
    let (hashed, index) = match ordinal {
        Some((rest, ordinal)) => (rest.rsplit_once('-').map_or(rest, |(_, set)| set), ordinal),
        None => (claim, 0),
    };
    // FNV-1, 32 bits.
    let hash = hashed.bytes().fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    (hash, index)
}
