//! What to do about a claim (`syncClaim`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

use super::binding::{BIND_COMPLETED, BOUND_BY_CONTROLLER, Writes};
use super::matching::{is_bound_to, mismatch};
use super::{VolumeBinder, bound_uid, claim_reference};
use crate::api::default_class;
use crate::choices::Question;
use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::pods;
use crate::step::{Context, Step};
use crate::volumes::{
    BETA_PROVISIONER, PROVISIONER, SELECTED_NODE, annotation, asked_class, class_of_claim, is_pod_terminated,
    volume_name,
};

impl VolumeBinder {
    pub(super) fn sync_claim(
        &mut self,
        cx: &mut Context<'_>,
        key: &SimKey,
        claim: &Arc<PersistentVolumeClaim>,
    ) -> Step {
        let mut writes = Writes::default();
        let is_late = Question::LateClaim { claim: format!("{}/{}", key.namespace, key.name) };
        let late = cx.choices.take_recorded(&is_late);
        let was_unused = self.unused.remove(key) && late.is_none();
        if late.as_deref() == Some("selected") {
            return Step::again(cx.settings.timers.reaction * 50);
        }
        let pending = if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
            sync_bound(cx, key, claim, &mut writes);
            false
        } else if let Some(name) = volume_name(claim) {
            sync_named(cx, key, claim, name, &mut writes)
        } else {
            self.sync_unbound(cx, key, claim, was_unused, &mut writes)
        };
        Step::writes(writes.0).and_again(self.next_resync(cx).filter(|_| pending))
    }

    /// A claim that leaves the choice of the volume to the controller. Gives whether it stays pending.
    fn sync_unbound(
        &self,
        cx: &mut Context<'_>,
        key: &SimKey,
        claim: &Arc<PersistentVolumeClaim>,
        was_unused: bool,
        writes: &mut Writes,
    ) -> bool {
        let store = cx.store;
        let class = store.get::<StorageClass>("", class_of_claim(claim));
        let delayed = class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        if let Some(volume) = self.best_match(cx, key, claim, delayed) {
            writes.bind(cx.settings, cx.now, volume, key, claim);
            return false;
        }
        if asked_class(claim).is_none()
            && let Some(class) = default_class(store)
        {
            let mut claim = PersistentVolumeClaim::clone(claim);
            claim.spec.get_or_insert_default().storage_class_name = class.metadata.name.clone();
            writes.replace(claim);
            return true;
        }
        let selected = annotation(&claim.metadata, SELECTED_NODE).is_some();
        if delayed && (was_unused || !selected) {
            let waiting = if was_unused { Vec::new() } else { unscheduled_pods(cx, key) };
            writes.event(waiting_note(key, &waiting));
        }
        if delayed && !selected {
            writes.set_unbound(claim, "Pending");
        } else if !class_of_claim(claim).is_empty() {
            provision(key, claim, class, writes);
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            writes.event(EventNote::normal(key, "FailedBinding", message));
            writes.set_unbound(claim, "Pending");
        }
        true
    }
}

/// The pods that use a claim and are not scheduled (`findNonScheduledPodsByPVC`).
fn unscheduled_pods(cx: &Context<'_>, key: &SimKey) -> Vec<String> {
    let users = cx.store.pods_using(&key.namespace, &key.name);
    let pods = users.filter_map(|pod| cx.store.at::<Pod>(pod));
    let waiting = pods.filter(|pod| pods::node_of(pod).is_none() && !is_pod_terminated(pod));
    waiting.filter_map(|pod| pod.metadata.name.clone()).collect()
}

/// The event of a claim that waits for its first consumer.
fn waiting_note(key: &SimKey, pods: &[String]) -> EventNote {
    match pods {
        [] => {
            let message = "waiting for first consumer to be created before binding";
            EventNote::normal(key, "WaitForFirstConsumer", message)
        }
        [pod] => EventNote::normal(key, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => {
            let message = format!("waiting for pods {} to be scheduled", pods.join(","));
            EventNote::normal(key, "WaitForPodScheduled", message)
        }
    }
}

/// The CSI driver that took over a former in-tree provisioner (`k8s.io/csi-translation-lib`).
fn migrated_provisioner(name: &str) -> Option<&'static str> {
    Some(match name {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        _ => return None,
    })
}

/// Asks the provisioner of a class for a volume (`provisionClaim`).
fn provision(key: &SimKey, claim: &PersistentVolumeClaim, class: Option<&Arc<StorageClass>>, writes: &mut Writes) {
    let failed = |message: String| EventNote::warning(key, "ProvisioningFailed", message);
    let Some(class) = class else {
        let class = class_of_claim(claim);
        writes.event(failed(format!("storageclass.storage.k8s.io \"{class}\" not found")));
        return;
    };
    let name = migrated_provisioner(&class.provisioner).unwrap_or(&class.provisioner);
    if name.starts_with("kubernetes.io/") {
        writes.event(failed(format!("no volume plugin matched name: {name}")));
        return;
    }
    if annotation(&claim.metadata, PROVISIONER) != Some(name) {
        let mut claim = claim.clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        for annotation in [PROVISIONER, BETA_PROVISIONER] {
            annotations.insert(annotation.into(), name.into());
        }
        writes.replace(claim);
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{name}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    writes.event(EventNote::normal(key, "ExternalProvisioning", message));
}

/// A claim that names its volume and was not bound yet. Gives whether it stays pending.
fn sync_named(
    cx: &Context<'_>,
    key: &SimKey,
    claim: &Arc<PersistentVolumeClaim>,
    name: &str,
    writes: &mut Writes,
) -> bool {
    let Some(volume) = cx.store.get::<PersistentVolume>("", name) else {
        writes.set_unbound(claim, "Pending");
        return true;
    };
    let problem = match claim_reference(volume) {
        None => mismatch(cx, claim, volume).map(|problem| {
            let message = format!("Cannot bind to requested volume \"{name}\": {problem}");
            EventNote::warning(key, "VolumeMismatch", message)
        }),
        Some(reference) if is_bound_to(reference, key, claim) => None,
        Some(_) => {
            let message = format!("volume \"{name}\" already bound to a different claim.");
            Some(EventNote::warning(key, "FailedBinding", message))
        }
    };
    let Some(note) = problem else {
        writes.bind(cx.settings, cx.now, volume, key, claim);
        return false;
    };
    writes.event(note);
    if annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none() || claim_reference(volume).is_none() {
        writes.set_unbound(claim, "Pending");
    }
    true
}

/// A claim that was bound once (`syncBoundClaim`).
fn sync_bound(cx: &Context<'_>, key: &SimKey, claim: &Arc<PersistentVolumeClaim>, writes: &mut Writes) {
    let lost = "ClaimLost";
    let (reason, message) = match volume_name(claim) {
        None => (lost, "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"),
        Some(name) => match cx.store.get::<PersistentVolume>("", name) {
            None => (lost, "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
            Some(volume) => {
                let reference = claim_reference(volume);
                let ours = |uid: Option<&str>| uid == claim.metadata.uid.as_deref();
                if reference.is_none_or(|reference| ours(bound_uid(reference))) {
                    writes.bind(cx.settings, cx.now, volume, key, claim);
                    return;
                }
                ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
            }
        },
    };
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Lost") {
        writes.set_unbound(claim, "Lost");
        writes.event(EventNote::warning(key, reason, message));
    }
}
