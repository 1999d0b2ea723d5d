//! The pods of a workload, of a claim and of a disruption budget.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use stead_model::{ObjectKey, Objects, PodView, claim_of};
use stead_semantics::labels::Selector;

/// The pods that a workload controls, directly or through other workloads.
pub(super) fn pods_of_workload<'a>(objects: &'a Objects, key: &'a ObjectKey) -> Vec<PodView<'a>> {
    let controls = |pod: &PodView<'_>| objects.controllers(pod.key()).contains(key);
    objects.pods_in(&key.namespace).filter(controls).collect()
}

/// The pods that use a claim.
pub(super) fn pods_of_claim<'a>(objects: &'a Objects, claim: &'a ObjectKey) -> impl Iterator<Item = PodView<'a>> {
    objects.pods_in(&claim.namespace).filter(move |pod| claims_of(*pod).any(|name| name == claim.name))
}

/// The pods that a budget covers.
pub(super) fn pods_of_budget<'a>(objects: &'a Objects, key: &'a ObjectKey) -> impl Iterator<Item = PodView<'a>> {
    let budget = objects.get::<PodDisruptionBudget>(key).ok().flatten();
    let selector = budget.and_then(|b| b.spec.as_ref()?.selector.as_ref());
    let selector = Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing());
    objects.pods_in(&key.namespace).filter(move |pod| {
        !pod.has_ended() && pod.metadata().labels.as_ref().is_some_and(|labels| selector.matches(labels))
    })
}

fn claims_of(pod: PodView<'_>) -> impl Iterator<Item = String> {
    pod.volumes().iter().filter_map(move |volume| claim_of(volume, pod.name())).map(|(name, _)| name)
}
