//! Claims without a volume.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::{Evidence, volume_of};
use super::nodes;
use super::roots::{Root, Roots};

/// The node that kube-scheduler has chosen for the volume.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The class of claims from before the field `storageClassName`.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The provisioner of classes whose volumes people create.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

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
        match (claim_root(evidence, key, claim, consumer.is_some()), consumer) {
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
    phase == Some("Bound") || (phase.is_none() && volume_of(claim).is_some())
}

/// The class of a claim; none where it has none.
fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let old = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OLD_CLASS));
    let class = old.or(claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()));
    class.map(String::as_str).filter(|class| !class.is_empty())
}

/// Why a claim has no volume; none where it waits for its first consumer to be scheduled. `has_consumer`: a pod waits for it.
pub(super) fn claim_root(
    evidence: &Evidence<'_>,
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
    has_consumer: bool,
) -> Option<(Root, String)> {
    let unbound = |detail: String| Some((Root::new(StuckCause::ClaimUnbound, key.clone()), detail));
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        return unbound("its volume was deleted (phase Lost)".into());
    }
    let class = class_of(claim);
    let found = class.and_then(|class| evidence.objects.find::<StorageClass>("", class));
    let failed = evidence.warnings(key, claim.metadata.uid.as_deref()).find(|e| e.reason == "ProvisioningFailed");
    if let Some(class) = class.filter(|_| found.is_none()) {
        let reported = failed.is_some_and(|event| event.message.contains("not found"));
        let missing = reported || (evidence.was_read("StorageClass") && !has_class(evidence, class));
        // A class that does not exist still joins claims with volumes that people create.
        if missing && !has_volumes(evidence, class) {
            let root = Root::new(StuckCause::MissingReference, ObjectKey::cluster("StorageClass", class));
            return Some((root, String::new()));
        }
    }
    let provisioner = found.map(|class| class.provisioner.as_str()).filter(|name| *name != NO_PROVISIONER);
    if let (Some(event), Some(provisioner)) = (failed, provisioner) {
        let driver = ObjectKey::cluster("CSIDriver", provisioner);
        return Some((Root::new(StuckCause::DriverFailing, driver), event.message.to_owned()));
    }
    let waits = found.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    let selected = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SELECTED_NODE));
    if let Some((node, fault)) = selected.and_then(|node| Some((node, evidence.fault_of(node)?))) {
        // Only this node may get the volume, until the provisioner or a person removes the annotation.
        return Some((nodes::root(node, fault), String::new()));
    }
    if waits && selected.is_none() {
        let none_fits = provisioner.is_none() && has_consumer && !has_free_volume(evidence, class);
        return none_fits.then(|| unbound(no_volume(class, None))).flatten();
    }
    unbound(no_volume(class, provisioner))
}

fn no_volume(class: Option<&str>, provisioner: Option<&str>) -> String {
    match (class, provisioner) {
        (Some(class), Some(driver)) => format!("driver {driver} has provisioned no volume of class {class}"),
        (Some(class), None) => format!("no volume of class {class} is available"),
        (None, _) => "it has no class, and no volume without a class is available".into(),
    }
}

fn has_class(evidence: &Evidence<'_>, class: &str) -> bool {
    evidence.objects.contains(&ObjectKey::cluster("StorageClass", class))
}

/// Whether there are volumes of a class.
fn has_volumes(evidence: &Evidence<'_>, class: &str) -> bool {
    evidence.objects.all::<PersistentVolume>().any(|(_, volume)| has_class_name(volume, class))
}

/// Whether a volume of a class has no claim.
fn has_free_volume(evidence: &Evidence<'_>, class: Option<&str>) -> bool {
    let free = |volume: &PersistentVolume| volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
    let mut volumes = evidence.objects.all::<PersistentVolume>();
    volumes.any(|(_, volume)| free(volume) && has_class_name(volume, class.unwrap_or_default()))
}

fn has_class_name(volume: &PersistentVolume, class: &str) -> bool {
    volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default() == class
}
