//! The pv-protection controller (`pkg/controller/volume/pvprotection`): keeps a volume that is being deleted while it is
//! bound.

use crate::api::VOLUME_PROTECTION;
use crate::object::{ObjectKind, SimObject};
use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

use super::claim_protection::Finalizer;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeProtection {}

impl Controller for VolumeProtection {
    const COMPONENT: &'static str = "pv-protection-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        if change.key.kind != ObjectKind::PersistentVolume {
            return;
        }
        let waits = |object: &SimObject| Finalizer::of(object, VOLUME_PROTECTION) != Finalizer::Settled;
        if change.after.as_ref().is_some_and(waits) {
            wakes.now(change.key.clone());
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(object @ SimObject::PersistentVolume(volume)) = cx.store.object(key) else { return Step::none() };
        let finalizer = Finalizer::of(object, VOLUME_PROTECTION);
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if finalizer == Finalizer::Holds && phase == Some("Bound") {
            return Step::none();
        }
        finalizer.settle(object, VOLUME_PROTECTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choices, Settings, Simulation, World};
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    /// The cases of `TestPVProtectionController` that differ in the result: what is left of the volume.
    #[test]
    fn a_bound_volume_stays() {
        for (phase, deleted, finalizers, left) in [
            ("Bound", true, vec![VOLUME_PROTECTION], Some(vec![VOLUME_PROTECTION])),
            ("Released", true, vec![VOLUME_PROTECTION], None),
            ("Available", true, vec![VOLUME_PROTECTION, "other"], Some(vec!["other"])),
            ("Available", false, vec!["other"], Some(vec!["other", VOLUME_PROTECTION])),
        ] {
            let deletion = deleted.then_some("2026-01-01T00:00:00Z");
            let uid = (phase == "Bound").then_some("u");
            let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": { "name": "v", "uid": "1", "finalizers": finalizers, "deletionTimestamp": deletion },
                "spec": { "claimRef": { "namespace": "n", "name": "c", "uid": uid } }, "status": { "phase": phase } });
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c",
                "namespace": "n", "uid": uid, "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
                "spec": { "volumeName": "v" } });
            let objects = [volume, claim].map(|value| SimObject::from_json(&value).expect("an object"));
            let (settings, choices) = (Settings::default().only_storage(), Choices::seeded(1));
            // A claim that does not exist would release the volume.
            let objects = objects.into_iter().take(if phase == "Bound" { 2 } else { 1 });
            let mut sim =
                Simulation::resume(Timestamp::UNIX_EPOCH, settings, choices, objects, World::default());
            sim.run_for(SignedDuration::from_secs(1)).expect("a run");
            let key = crate::SimKey::new(ObjectKind::PersistentVolume, "", "v");
            let found = sim.store().object(&key).map(|object| object.metadata().finalizers.clone().unwrap_or_default());
            assert_eq!(found.as_deref(), left.map(|left| left.iter().map(ToString::to_string).collect::<Vec<_>>()).as_deref(), "{phase} {deleted}");
        }
    }
}
