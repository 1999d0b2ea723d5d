//! The ephemeral volume controller (`pkg/controller/volume/ephemeral`): creates the claims of generic ephemeral volumes.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::claim_of;

use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use crate::volumes::is_ephemeral_claim_of;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct EphemeralVolumes {
    /// How often in a row a pod failed because a claim of the name belongs to somebody else.
    failures: BTreeMap<SimKey, u32>,
}

fn has_ephemeral_volumes(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    !pods::is_terminating(pod) && volumes.iter().any(|volume| volume.ephemeral.is_some())
}

fn failed(key: &SimKey, volume: &str, problem: &str) -> Write {
    Write::Event(EventNote::warning(key, "FailedBinding", format!("ephemeral volume {volume}: {problem}")))
}

impl Controller for EphemeralVolumes {
    const COMPONENT: &'static str = "ephemeral_volume";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match (change.key.kind, &change.before, &change.after) {
            (ObjectKind::Pod, None, Some(SimObject::Pod(pod))) if has_ephemeral_volumes(pod) => {
                wakes.now(change.key.clone());
            }
            (ObjectKind::Pod, Some(_), None) => {
                self.failures.remove(&change.key);
            }
            (ObjectKind::PersistentVolumeClaim, Some(_), None) => {
                for key in cx.store.pods_using(&change.key.namespace, &change.key.name) {
                    if cx.store.at::<Pod>(key).is_some_and(|pod| has_ephemeral_volumes(pod)) {
                        wakes.now(key.clone());
                    }
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(pod) = cx.store.at::<Pod>(key).filter(|pod| has_ephemeral_volumes(pod)) else { return Step::none() };
        let mut writes = Vec::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(source) = &volume.ephemeral else { continue };
            let Some((name, _)) = claim_of(volume, &key.name) else { continue };
            if let Some(claim) = cx.store.get::<PersistentVolumeClaim>(&key.namespace, &name) {
                if is_ephemeral_claim_of(claim, pod) {
                    continue;
                }
                let (namespace, pod) = (&key.namespace, &key.name);
                let problem =
                    format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)");
                writes.push(failed(key, &volume.name, &problem));
                return Step::writes(writes).and_again(Some(self.back_off(cx, key)));
            }
            let template = source.volume_claim_template.as_ref();
            let metadata = template.and_then(|template| template.metadata.as_ref());
            writes.push(Write::Create(SimObject::from(PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(name),
                    namespace: pod.metadata.namespace.clone(),
                    owner_references: Some(vec![pods::controller_reference(&SimObject::Pod(pod.clone()))]),
                    annotations: metadata.and_then(|metadata| metadata.annotations.clone()),
                    labels: metadata.and_then(|metadata| metadata.labels.clone()),
                    ..ObjectMeta::default()
                },
                spec: template.map(|template| template.spec.clone()),
                status: None,
            })));
        }
        self.failures.remove(key);
        Step::writes(writes)
    }

    fn refused(&mut self, cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let (Item::Object(key), Write::Create(claim)) = (item, write) else { return Vec::new() };
        let claim = claim.metadata().name.as_deref().unwrap_or_default();
        let volumes = cx.store.at::<Pod>(key).and_then(|pod| pod.spec.as_ref()?.volumes.as_deref()).unwrap_or_default();
        let volume = volumes.iter().find(|volume| claim_of(volume, &key.name).is_some_and(|(name, _)| name == claim));
        let problem = format!("create PVC {claim}: {error}");
        volume.map(|volume| failed(key, &volume.name, &problem)).into_iter().collect()
    }
}

impl EphemeralVolumes {
    /// The delay of the work queue after an error.
    fn back_off(&mut self, cx: &Context<'_>, key: &SimKey) -> SignedDuration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures += 1;
        let timers = &cx.settings.timers;
        let factor = 1_i32.checked_shl(*failures - 1).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
        timers.retry.checked_mul(factor).unwrap_or(timers.retry_max).min(timers.retry_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choices, Settings, Simulation};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    fn simulation(objects: &[Value]) -> Simulation {
        let mut sim = Simulation::new(Timestamp::UNIX_EPOCH, Settings::default().only_storage(), Choices::seeded(1));
        for value in objects {
            sim.request(Write::Create(SimObject::from_json(value).expect("an object"))).expect("created");
        }
        sim
    }

    fn pod() -> Value {
        let template = json!({ "metadata": { "labels": { "a": "b" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "s" } });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" },
            "spec": { "containers": [], "volumes": [{ "name": "tmp", "ephemeral": { "volumeClaimTemplate": template } }] } })
    }

    #[test]
    fn a_claim_is_created_for_the_pod_and_again_if_it_is_deleted() {
        let mut sim = simulation(&[pod()]);
        let second = SignedDuration::from_secs(1);
        sim.run_for(second).expect("a run");
        let claim = sim.store().get::<PersistentVolumeClaim>("n", "p-tmp").expect("a claim").clone();
        let owner = &claim.metadata.owner_references.as_ref().expect("owners")[0];
        let owned = (owner.kind.as_str(), owner.name.as_str(), owner.controller, owner.block_owner_deletion);
        assert_eq!(owned, ("Pod", "p", Some(true), Some(true)));
        assert_eq!(claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()), Some("s"));
        sim.request(Write::delete(&SimObject::PersistentVolumeClaim(claim.clone()))).expect("deleted");
        sim.run_for(second).expect("a run");
        let again = sim.store().get::<PersistentVolumeClaim>("n", "p-tmp").expect("a claim");
        assert_ne!(again.metadata.uid, claim.metadata.uid);
    }

    #[test]
    fn a_claim_of_somebody_else_is_reported() {
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "p-tmp", "namespace": "n" }, "spec": { "storageClassName": "" } });
        let mut sim = simulation(&[claim, pod()]);
        sim.run_for(SignedDuration::from_millis(500)).expect("a run");
        let key = SimKey::pod("n", "p");
        let events: Vec<_> = sim.events().about(&key).map(|event| (event.note.message.clone(), event.count)).collect();
        let message = "ephemeral volume tmp: PVC n/p-tmp was not created for pod n/p (pod is not owner)";
        // After 0, 5, 15, 35, 75, 155 and 315 ms.
        assert_eq!(events, [(message.to_owned(), 7)]);
    }
}
