//! What to do about a volume (`syncVolume`): its phase, and what happens to it after its claim is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};

use super::binding::Writes;
use super::matching::modes_differ;
use super::{VolumeBinder, bound_uid, claim_of_reference, claim_reference};
use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::step::{Context, DeleteOptions, Step, Write};
use crate::volumes::{PROVISIONED_BY, annotation, volume_name};

/// The annotation of a volume that a CSI driver took over from a former in-tree driver.
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

impl VolumeBinder {
    pub(super) fn sync_volume(&self, cx: &mut Context<'_>, key: &SimKey, volume: &Arc<PersistentVolume>) -> Step {
        let mut writes = Writes::default();
        let mut volume = PersistentVolume::clone(volume);
        let bound = claim_reference(&volume).and_then(|reference| {
            bound_uid(reference).map(|uid| (claim_of_reference(reference), uid.to_owned()))
        });
        let Some((claim_key, uid)) = bound else {
            // Unused, or reserved for a claim that is not bound to it yet.
            writes.set_phase(&mut volume, "Available", "", cx.now);
            return Step::writes(writes.0);
        };
        let claim = cx.store.at::<PersistentVolumeClaim>(&claim_key);
        // Another claim of the same name means that the claim of this volume is gone.
        let claim = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid.as_str()));
        let mut again = None;
        match claim.map(|claim| (claim, volume_name(claim))) {
            None => release(cx, key, &mut volume, &mut writes),
            Some((claim, None)) => {
                if modes_differ(claim, &volume) {
                    let (volume, claim) = (&key.name, &claim_key.name);
                    let message = format!(
                        "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{claim}\" due to \
                         incompatible volumeMode."
                    );
                    writes.event(EventNote::warning(key, "VolumeMismatch", message));
                    let message = format!(
                        "Cannot bind PersistentVolume \"{volume}\" to requested PersistentVolumeClaim due to \
                         incompatible volumeMode."
                    );
                    writes.event(EventNote::warning(&claim_key, "VolumeMismatch", message));
                    again = self.next_resync(cx);
                }
                // The claim is in its own queue.
            }
            Some((_, Some(name))) if *name == *key.name => {
                writes.set_phase(&mut volume, "Bound", "", cx.now);
            }
            Some(_) => {
                let created_for_it = annotation(&volume.metadata, PROVISIONED_BY).is_some();
                if created_for_it && reclaim_policy(&volume) == "Delete" {
                    release(cx, key, &mut volume, &mut writes);
                } else {
                    writes.unbind(&volume, cx.now);
                }
            }
        }
        Step::writes(writes.0).and_again(again)
    }
}

fn reclaim_policy(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
}

/// Marks a volume as Released, and starts what its reclaim policy says (`reclaimVolume`). The volumes of CSI drivers and
/// external provisioners are deleted by these.
fn release(cx: &Context<'_>, key: &SimKey, volume: &mut PersistentVolume, writes: &mut Writes) {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if !matches!(phase, Some("Released" | "Failed")) {
        writes.set_phase(volume, "Released", "", cx.now);
    }
    if annotation(&volume.metadata, MIGRATED_TO).is_some_and(|driver| !driver.is_empty()) {
        return;
    }
    let external = annotation(&volume.metadata, PROVISIONED_BY).filter(|name| !name.is_empty());
    let spec = volume.spec.clone().unwrap_or_default();
    let (reason, message) = match reclaim_policy(volume) {
        "Retain" => return,
        "Delete" if external.is_some_and(|name| !name.starts_with("kubernetes.io/")) => return,
        "Delete" if spec.csi.is_some() => return,
        "Delete" if external.is_none() && is_deletable_path(&spec) => {
            writes.0.push(Write::Delete(key.clone(), DeleteOptions::default()));
            return;
        }
        "Delete" => {
            let problem = match external {
                Some(name) => format!("no volume plugin matched name: {name}"),
                None => deleter_problem(&key.name, &spec),
            };
            ("VolumeFailedDelete", problem)
        }
        // Recycling runs pods of its own and is deprecated.
        "Recycle" if spec.nfs.is_some() || spec.host_path.is_some() => return,
        "Recycle" => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".into()),
        _ => ("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy".into()),
    };
    if writes.set_phase(volume, "Failed", &message, cx.now) {
        writes.event(EventNote::warning(key, reason, message));
    }
}

/// Whether a volume is a directory that kube-controller-manager deletes itself.
fn is_deletable_path(spec: &PersistentVolumeSpec) -> bool {
    let path = spec.host_path.as_ref().and_then(|source| source.path.split_once("/tmp/"));
    path.is_some_and(|(_, rest)| !rest.is_empty())
}

/// Why kube-controller-manager itself cannot delete a volume that no provisioner is responsible for.
fn deleter_problem(name: &str, spec: &PersistentVolumeSpec) -> String {
    let problem = match (&spec.host_path, &spec.nfs) {
        (Some(source), _) => {
            return format!("host_path deleter only supports /tmp/.+ but received provided {}", source.path);
        }
        (None, Some(_)) => "no deletable volume plugin matched",
        (None, None) => "no volume plugin matched",
    };
    format!("error getting deleter volume plugin for volume \"{name}\": {problem}")
}
