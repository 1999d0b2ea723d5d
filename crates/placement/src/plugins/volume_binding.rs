//! VolumeBinding: the pod's claims have volumes that the node can use, or such volumes can be found or provisioned.

use crate::cluster::Cluster;
use crate::node::Node;
use crate::plugins::volume_limits::{is_created_for, not_owner};
use crate::pod::Pod;
use crate::status::{AttemptFault, Code, Filtered, Plugin, Rejection, RejectionReason, SchedulingError};
use crate::storage::{Claim, PersistentVolume, StorageState};
use crate::version_rules::AttributesClassRule;

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A pod's claims, by state.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    bound: Vec<&'a Claim>,
    /// Unbound claims with binding mode `WaitForFirstConsumer`.
    waiting: Vec<&'a Claim>,
}

fn rejection(reason: RejectionReason) -> AttemptFault {
    AttemptFault::Rejected(Rejection::new(Plugin::VolumeBinding, Code::Unresolvable, reason))
}

impl<'a> State<'a> {
    /// PreFilter; none if the pod has no claims.
    pub(crate) fn new(cluster: &'a Cluster, pod: &Pod) -> Result<Option<State<'a>>, AttemptFault> {
        let storage = cluster.storage();
        let mut claims = Vec::new();
        for (name, ephemeral) in pod.spec.volumes.iter().filter_map(|v| v.claim()) {
            let Some(claim) = storage.claim(&pod.key.namespace, name) else {
                let claim = name.into();
                return Err(rejection(if ephemeral {
                    RejectionReason::EphemeralClaimNotCreated { claim }
                } else {
                    RejectionReason::ClaimNotFound { claim }
                }));
            };
            if claim.lost {
                let volume = claim.volume.as_deref().unwrap_or_default().into();
                return Err(rejection(RejectionReason::ClaimLost { claim: name.into(), volume }));
            }
            if claim.deleting {
                return Err(rejection(RejectionReason::ClaimDeleting { claim: name.into() }));
            }
            if ephemeral && !is_created_for(claim, pod) {
                return Err(rejection(RejectionReason::EphemeralClaimNotOwned(not_owner(claim, pod))));
            }
            claims.push(claim);
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let mut state = State { bound: Vec::new(), waiting: Vec::new() };
        let mut immediate = false;
        for claim in claims {
            if claim.bound {
                state.bound.push(claim);
            } else if waits(storage, claim)? && claim.volume.is_none() {
                state.waiting.push(claim);
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err(rejection(RejectionReason::UnboundImmediateClaims));
        }
        Ok(Some(state))
    }

    pub(crate) fn filter(&self, cluster: &Cluster, node: &Node) -> Filtered {
        let storage = cluster.storage();
        let mut reasons = Vec::new();
        let (usable, found) = self.check_bound(storage, node);
        let (satisfied, room) = self.check_waiting(cluster, node)?;
        if !usable {
            reasons.push(RejectionReason::VolumeNodeAffinity(cluster.rules().volume_node_affinity));
        }
        if !satisfied {
            reasons.push(RejectionReason::NoVolumeToBind);
        }
        if !room {
            reasons.push(RejectionReason::NotEnoughStorage);
        }
        if !found {
            reasons.push(RejectionReason::BoundVolumeMissing);
        }
        if reasons.is_empty() {
            return Ok(());
        }
        Err(AttemptFault::Rejected(Rejection { plugin: Plugin::VolumeBinding, code: Code::Unresolvable, reasons }))
    }

    /// Whether the node can use every bound volume, and whether all of them exist. The first problem decides.
    fn check_bound(&self, storage: &StorageState, node: &Node) -> (bool, bool) {
        for claim in &self.bound {
            match claim.volume.as_deref().and_then(|v| storage.volume(v)) {
                None => return (true, false),
                Some(volume) if !volume.usable_on(&node.labels) => return (false, true),
                Some(_) => {}
            }
        }
        (true, true)
    }

    /// Whether the unbound claims can get volumes on the node, and whether there is capacity for them.
    fn check_waiting(&self, cluster: &Cluster, node: &Node) -> Result<(bool, bool), AttemptFault> {
        self.search(cluster, node).map(|search| (search.satisfied, search.room))
    }

    /// Looks for volumes for the unbound claims.
    fn search(&self, cluster: &Cluster, node: &Node) -> Result<Search<'a>, AttemptFault> {
        let storage = cluster.storage();
        let attributes = cluster.rules().attributes_class;
        let mut search = Search { satisfied: true, room: true, bindings: Vec::new(), provisions: Vec::new() };
        let mut to_match = Vec::new();
        for claim in &self.waiting {
            match &claim.selected_node {
                Some(selected) if **selected != *node.name => return Ok(Search { satisfied: false, ..search }),
                Some(_) => search.provisions.push(*claim),
                None => to_match.push(*claim),
            }
        }
        // kube-scheduler matches the smallest claim first.
        to_match.sort_by(|a, b| a.request.cmp(&b.request));
        let mut chosen: Vec<&str> = Vec::new();
        for claim in to_match {
            if attributes == AttributesClassRule::Unsupported && !claim.attributes_class.is_empty() {
                let (namespace, claim) = (claim.namespace.clone(), claim.name.clone());
                return Err(AttemptFault::Error(SchedulingError::AttributesClassUnsupported { namespace, claim }));
            }
            match find_volume(storage, claim, node, &chosen, attributes) {
                Some(volume) => {
                    chosen.push(&volume.name);
                    search.bindings.push((claim, volume.name.clone()));
                }
                None => search.provisions.push(claim),
            }
        }
        for claim in &search.provisions {
            let Some(class) = storage.class(&claim.class) else {
                return Err(AttemptFault::Error(SchedulingError::StorageClassNotFound { class: claim.class.clone() }));
            };
            if class.provisioner.is_empty() || *class.provisioner == *NO_PROVISIONER || !class.allows(&node.labels) {
                return Ok(Search { satisfied: false, ..search });
            }
            if !has_room(storage, &class.provisioner, claim, node) {
                return Ok(Search { room: false, ..search });
            }
        }
        Ok(search)
    }
}

/// The result of a search for volumes on a node.
struct Search<'a> {
    /// Whether every claim can get a volume.
    satisfied: bool,
    /// Whether there is capacity for the volumes to provision.
    room: bool,
    /// Claims that get an existing volume.
    bindings: Vec<(&'a Claim, Box<str>)>,
    /// Claims that get a new volume.
    provisions: Vec<&'a Claim>,
}

/// The volumes that the unbound claims of a pod get on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumePlan {
    /// Claims and the existing volumes that they are bound to.
    pub bindings: Vec<(Box<str>, Box<str>)>,
    /// Claims that a volume is provisioned for.
    pub provisions: Vec<Box<str>>,
}

impl VolumePlan {
    /// Whether all claims of the pod are bound.
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

impl Cluster {
    /// The volumes that the unbound claims of a pod get on a node; none where the pod does not fit there.
    pub fn volume_plan(&self, pod: &Pod, node: &str) -> Option<VolumePlan> {
        let node = &self.node(node)?.node;
        let Some(state) = State::new(self, pod).ok()? else { return Some(VolumePlan::default()) };
        let search = state.search(self, node).ok().filter(|search| search.satisfied && search.room)?;
        Some(VolumePlan {
            bindings: search.bindings.into_iter().map(|(claim, volume)| (claim.name.clone(), volume)).collect(),
            provisions: search.provisions.iter().map(|claim| claim.name.clone()).collect(),
        })
    }
}

/// Whether the claim's class has binding mode `WaitForFirstConsumer`.
fn waits(storage: &StorageState, claim: &Claim) -> Result<bool, AttemptFault> {
    match storage.class(&claim.class) {
        None => Ok(false),
        Some(class) => class
            .waits
            .ok_or_else(|| AttemptFault::Error(SchedulingError::BindingModeNotSet { class: class.name.clone() })),
    }
}

/// The smallest available volume for the claim on the node (`FindMatchingVolume`).
fn find_volume<'a>(
    storage: &'a StorageState,
    claim: &Claim,
    node: &Node,
    chosen: &[&str],
    attributes: AttributesClassRule,
) -> Option<&'a PersistentVolume> {
    let mut smallest: Option<&PersistentVolume> = None;
    // kube-scheduler lists only the volumes of the claim's class.
    for volume in storage.volumes.values().filter(|v| v.class == claim.class) {
        let is_for = volume.is_for(claim);
        if chosen.contains(&&*volume.name)
            || (volume.claim.is_some() && !is_for)
            || volume.capacity < claim.request
            || volume.block != claim.block
            || match attributes {
                AttributesClassRule::Ignored => false,
                AttributesClassRule::Unsupported => !volume.attributes_class.is_empty(),
                AttributesClassRule::Compared => volume.attributes_class != claim.attributes_class,
            }
            || volume.deleting
        {
            continue;
        }
        let usable = volume.usable_on(&node.labels);
        if is_for {
            return usable.then_some(volume);
        }
        if volume.available
            && usable
            && claim.selector.as_ref().is_none_or(|s| s.matches(&volume.labels))
            && claim.access_modes.iter().all(|m| volume.access_modes.contains(m))
            && smallest.is_none_or(|s| s.capacity > volume.capacity)
        {
            smallest = Some(volume);
        }
    }
    smallest
}

/// Whether the driver has enough capacity for the claim that the node can access.
fn has_room(storage: &StorageState, provisioner: &str, claim: &Claim, node: &Node) -> bool {
    let Some(request) = &claim.request else { return true };
    if !storage.publishes_room(provisioner) {
        return true;
    }
    let size = request.value();
    storage.capacities.values().any(|c| {
        c.class == claim.class
            && c.limit.is_some_and(|limit| limit >= size)
            && c.nodes.as_ref().is_some_and(|n| n.matches(&node.labels))
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1 as core;
    use k8s_openapi::api::storage::v1 as storage;
    use serde_json::{from_value, json};

    use super::*;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            let node: core::Node =
                from_value(json!({ "metadata": { "name": name, "labels": { "host": name } } })).expect("a node");
            cluster.set_node(Node::compile(&node).expect("a node"));
        }
        let class: storage::StorageClass = from_value(json!({ "metadata": { "name": "local" },
            "provisioner": "topolvm.io", "volumeBindingMode": "WaitForFirstConsumer" }))
        .expect("a class");
        cluster.set_class(&class).expect("a class");
        let volume: core::PersistentVolume = from_value(json!({ "metadata": { "name": "pv-a" },
            "spec": { "storageClassName": "local", "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"],
                "nodeAffinity": { "required": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "host", "operator": "In", "values": ["a"] }] }] } } },
            "status": { "phase": "Available" } }))
        .expect("a volume");
        cluster.set_volume(&volume).expect("a volume");
        for (name, size) in [("large", "5Gi"), ("small", "1Gi")] {
            let claim: core::PersistentVolumeClaim =
                from_value(json!({ "metadata": { "name": name, "namespace": "n" },
                "spec": { "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": size } } } }))
                .expect("a claim");
            cluster.set_claim(&claim).expect("a claim");
        }
        cluster
    }

    #[test]
    fn the_smallest_claim_gets_an_existing_volume_and_the_others_a_new_one() {
        let cluster = cluster();
        let pod: core::Pod = from_value(json!({ "metadata": { "name": "p", "namespace": "n" },
            "spec": { "containers": [], "volumes": [
                { "name": "l", "persistentVolumeClaim": { "claimName": "large" } },
                { "name": "s", "persistentVolumeClaim": { "claimName": "small" } }] } }))
        .expect("a pod");
        let pod = Pod::compile(&pod, cluster.version()).expect("a pod");
        let on = |node: &str| cluster.volume_plan(&pod, node).expect("the pod fits");
        let expected = VolumePlan { bindings: vec![("small".into(), "pv-a".into())], provisions: vec!["large".into()] };
        assert_eq!(on("a"), expected);
        assert_eq!(on("b"), VolumePlan { bindings: Vec::new(), provisions: vec!["small".into(), "large".into()] });
        assert_eq!(cluster.volume_plan(&pod, "c"), None);
    }
}
