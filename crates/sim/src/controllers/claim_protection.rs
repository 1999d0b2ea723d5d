//! The pvc-protection controller (`pkg/controller/volume/pvcprotection`): keeps a claim that is being deleted as long as a
//! scheduled pod uses it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use stead_model::claim_of;

use crate::api::CLAIM_PROTECTION;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use crate::volumes::{claim_keys, is_ephemeral_claim_of, is_pod_terminated};

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimProtection {}

/// What has to be done to the finalizer of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finalizer {
    /// The object is not being deleted and has no finalizer.
    Missing,
    /// The object is being deleted and waits for the finalizer.
    Holds,
    /// Nothing.
    Settled,
}

impl Finalizer {
    /// `IsDeletionCandidate` and `NeedToAddFinalizer` of `pkg/controller/util/protectionutil`.
    pub(super) fn of(object: &SimObject, finalizer: &str) -> Finalizer {
        let listed = object.metadata().finalizers.iter().flatten().any(|other| other == finalizer);
        match (object.is_terminating(), listed) {
            (false, false) => Finalizer::Missing,
            (true, true) => Finalizer::Holds,
            _ => Finalizer::Settled,
        }
    }

    /// The object with or without the finalizer.
    pub(super) fn settle(self, object: &SimObject, finalizer: &str) -> Step {
        let mut object = object.clone();
        let finalizers = object.metadata_mut().finalizers.get_or_insert_default();
        match self {
            Finalizer::Missing => finalizers.push(finalizer.to_owned()),
            Finalizer::Holds => finalizers.retain(|other| other != finalizer),
            Finalizer::Settled => return Step::none(),
        }
        Step::writes(vec![Write::Replace(object)])
    }
}

/// Whether a pod keeps a claim (`podUsesPVCForDeletion`). Only scheduled pods do; those that have ended too, but not for
/// a generic ephemeral volume once the kubelet is done with them.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let is_shut_down = pods::is_terminating(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    pods::node_of(pod).is_some()
        && volumes.iter().any(|volume| {
            let named = claim_of(volume, name).is_some_and(|(used, _)| Some(used) == claim.metadata.name);
            let ephemeral = volume.persistent_volume_claim.is_none();
            named && (!ephemeral || (!is_shut_down && is_ephemeral_claim_of(claim, pod)))
        })
}

impl Controller for ClaimProtection {
    const COMPONENT: &'static str = "pvc-protection-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let waits = |object: &SimObject| Finalizer::of(object, CLAIM_PROTECTION) != Finalizer::Settled;
        match change.key.kind {
            ObjectKind::PersistentVolumeClaim if change.after.as_ref().is_some_and(waits) => {
                wakes.now(change.key.clone());
            }
            ObjectKind::Pod => {
                let SimObject::Pod(pod) = change.latest() else { return };
                // Other pods cannot free a claim.
                if change.after.is_none() || pods::node_of(pod).is_none() || is_pod_terminated(pod) {
                    let waiting = claim_keys(pod).filter(|key| cx.store.object(key).is_some_and(waits));
                    waiting.for_each(|key| wakes.now(key));
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(object @ SimObject::PersistentVolumeClaim(claim)) = cx.store.object(key) else { return Step::none() };
        let finalizer = Finalizer::of(object, CLAIM_PROTECTION);
        if finalizer == Finalizer::Holds && is_used(cx, key, claim) {
            return Step::none();
        }
        finalizer.settle(object, CLAIM_PROTECTION)
    }
}

fn is_used(cx: &Context<'_>, key: &SimKey, claim: &Arc<PersistentVolumeClaim>) -> bool {
    let users = cx.store.pods_using(&key.namespace, &key.name);
    users.filter_map(|pod| cx.store.at::<Pod>(pod)).any(|pod| uses(pod, claim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choices, DeleteOptions, Settings, Simulation};
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    fn object(value: Value) -> SimObject {
        SimObject::from_json(&value).expect("an object")
    }

    fn pod(node: Option<&str>, volume: Value, grace: Option<i64>) -> SimObject {
        let deletion = grace.map(|_| "2026-01-01T00:00:00Z");
        object(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": deletion,
                "deletionGracePeriodSeconds": grace, "finalizers": ["example.org/hold"] },
            "spec": { "nodeName": node, "containers": [], "volumes": [volume] } }))
    }

    /// The cases of `TestPVCProtectionController` that differ in the result.
    #[test]
    fn a_claim_stays_while_a_scheduled_pod_uses_it() {
        let by_name = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "p-v" } });
        let other = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "other" } });
        let ephemeral = json!({ "name": "v", "ephemeral": {} });
        for (case, pods, owner, stays) in [
            ("no pod", vec![], None, false),
            ("unscheduled", vec![pod(None, by_name.clone(), None)], None, false),
            ("scheduled", vec![pod(Some("a"), by_name.clone(), None)], None, true),
            ("force-deleted, still there", vec![pod(Some("a"), by_name.clone(), Some(0))], None, true),
            ("other claim", vec![pod(Some("a"), other, None)], None, false),
            ("ephemeral", vec![pod(Some("a"), ephemeral.clone(), None)], Some("u"), true),
            ("ephemeral of another pod", vec![pod(Some("a"), ephemeral.clone(), None)], Some("x"), false),
            ("ephemeral, terminating", vec![pod(Some("a"), ephemeral.clone(), Some(30))], Some("u"), true),
            ("ephemeral, shut down", vec![pod(Some("a"), ephemeral.clone(), Some(0))], Some("u"), false),
        ] {
            let owners = owner.map(|uid| {
                json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true }])
            });
            let claim = object(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": "p-v", "namespace": "n", "uid": "c", "ownerReferences": owners,
                    "finalizers": [CLAIM_PROTECTION], "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {} }));
            let objects = pods.into_iter().chain([claim.clone()]);
            let mut sim = Simulation::resume(
                Timestamp::UNIX_EPOCH,
                Settings::default().only_storage(),
                Choices::seeded(1),
                objects,
                crate::World::default(),
            );
            sim.run_for(SignedDuration::from_secs(1)).expect("a run");
            // The ephemeral volume controller may have created another one.
            let left = sim.store().object(&claim.key()).filter(|left| left.uid() == claim.uid());
            assert_eq!(left.is_some(), stays, "{case}");
        }
    }

    #[test]
    fn a_claim_goes_when_its_last_pod_goes() {
        let mut sim = Simulation::new(Timestamp::UNIX_EPOCH, Settings::default().only_storage(), Choices::seeded(1));
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "c", "namespace": "n" }, "spec": { "storageClassName": "" } });
        let claim = sim.request(Write::Create(object(claim))).expect("created").expect("an object");
        let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
        let mut user = pod(Some("a"), volume, None);
        user.metadata_mut().finalizers = None;
        let user = sim.request(Write::Create(user)).expect("created").expect("an object");
        sim.request(Write::delete(&claim)).expect("deleted");
        sim.run_for(SignedDuration::from_secs(60)).expect("a run");
        assert!(sim.store().object(&claim.key()).is_some_and(SimObject::is_terminating));
        let now = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        sim.request(Write::Delete(user.key(), now)).expect("deleted");
        sim.run_for(SignedDuration::from_secs(1)).expect("a run");
        assert!(sim.store().object(&claim.key()).is_none());
    }
}
