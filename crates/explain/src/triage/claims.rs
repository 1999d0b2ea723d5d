//! Claims without a volume.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

/// The node that kube-scheduler has chosen for the volume.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The class of claims from before the field `storageClassName`.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Assigns the unbound claims. A claim that waits for its first consumer is stuck only together with a consumer.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let unbound: BTreeMap<&ObjectKey, &PersistentVolumeClaim> =
        evidence.objects.all::<PersistentVolumeClaim>().filter(|(_, claim)| !is_bound(claim)).collect();
    if unbound.is_empty() {
        return;
    }
    let consumers = stuck_consumers(evidence, roots);
    for (key, claim) in unbound {
        if claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let consumer = consumers.get(key);
        if consumer.is_none() && !evidence.is_older(&claim.metadata, evidence.thresholds.creating) {
            continue;
        }
        match (claim_root(evidence, key, claim), consumer) {
            (Some((root, detail)), _) => roots.assign(key, root, &detail),
            (None, Some(root)) => roots.assign(key, root.clone(), ""),
            (None, None) => {}
        }
    }
}

/// The claims of stuck pods without a node, each with the root of the first such pod.
fn stuck_consumers(evidence: &Evidence<'_>, roots: &Roots) -> BTreeMap<ObjectKey, Root> {
    let mut out = BTreeMap::new();
    let pods: BTreeSet<&ObjectKey> = roots.assigned().map(|(key, _)| key).filter(|key| key.kind == "Pod").collect();
    for key in pods {
        let Some(pod) = evidence.objects.pod(key).ok().flatten().filter(|pod| pod.node().is_none()) else { continue };
        let Some(root) = roots.of(key) else { continue };
        for (claim, _) in evidence.claims(pod) {
            out.entry(claim).or_insert_with(|| root.clone());
        }
    }
    out
}

/// Whether a claim has its volume.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound") || (phase.is_none() && super::evidence::volume_of(claim).is_some())
}

fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let old = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OLD_CLASS));
    let class = old.or(claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()));
    class.map(String::as_str).filter(|class| !class.is_empty())
}

/// Why a claim has no volume; none where it waits for its first consumer to be scheduled.
pub(super) fn claim_root(
    evidence: &Evidence<'_>,
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
) -> Option<(Root, String)> {
    let unbound = |detail: String| Some((Root::new(StuckCause::ClaimUnbound, key.clone()), detail));
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        return unbound("its volume was deleted (phase Lost)".into());
    }
    let class = class_of(claim);
    let found = class.and_then(|class| evidence.objects.find::<StorageClass>("", class));
    let selected =
        claim.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(SELECTED_NODE));
    let waits = found.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    let events = || evidence.warnings(key, claim.metadata.uid.as_deref());
    let failed = events().find(|event| event.reason == "ProvisioningFailed");
    if let Some(class) = class.filter(|_| found.is_none()) {
        let reported = failed.is_some_and(|event| event.message.contains("not found"));
        if reported || (evidence.was_read("StorageClass") && !evidence.objects.has_none("StorageClass")) {
            let root = Root::new(StuckCause::MissingReference, ObjectKey::cluster("StorageClass", class));
            return Some((root, String::new()));
        }
    }
    if let (Some(event), Some(class)) = (failed, found)
        && class.provisioner != "kubernetes.io/no-provisioner"
    {
        let driver = ObjectKey::cluster("CSIDriver", &class.provisioner);
        return Some((Root::new(StuckCause::DriverFailing, driver), event.message.to_owned()));
    }
    if waits && !selected {
        return None;
    }
    let reported = events().next().map(|event| event.message.to_owned());
    unbound(reported.unwrap_or_else(|| match class {
        Some(class) => format!("no volume of class {class} was provisioned or fits"),
        None => "it has no class, and no volume fits".into(),
    }))
}
