//! Quotas that do not allow another pod of a workload.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use stead_model::ObjectKey;
use stead_semantics::Quantity;

use super::evidence::Evidence;

/// The quota that does not allow another pod of a workload, and which resource is used up. Quotas with scopes are left out:
/// which pods they count depends on more than the pod's requests.
pub(super) fn exhausted(evidence: &Evidence<'_>, workload: &ObjectKey) -> Option<(ObjectKey, String)> {
    let found = evidence.objects.workload(workload).ok().flatten()?;
    let spec = found.template().and_then(|template| template.spec.clone()).unwrap_or_default();
    let mut quotas = evidence.objects.all_in::<ResourceQuota>(&workload.namespace);
    quotas.find_map(|(key, quota)| Some((key.clone(), exceeded(quota, &spec)?)))
}

fn exceeded(quota: &ResourceQuota, pod: &PodSpec) -> Option<String> {
    let limits = quota.spec.as_ref()?;
    let scoped = limits.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) || limits.scope_selector.is_some();
    let status = quota.status.as_ref()?;
    let hard = status.hard.as_ref().or(limits.hard.as_ref()).filter(|_| !scoped)?;
    let quantity = |of: Option<&BTreeMap<String, QuantityText>>, name: &str| {
        of.and_then(|of| Quantity::parse(&of.get(name)?.0).ok())
    };
    hard.keys().find_map(|name| {
        let limit = quantity(Some(hard), name)?;
        let used = quantity(status.used.as_ref(), name)?;
        let free = limit.sub(&used);
        let too_much = free.sub(&needed(pod, name)?).signum() < 0;
        let text = |of: Option<&BTreeMap<String, QuantityText>>| of.and_then(|of| of.get(name)).map(|q| q.0.clone());
        too_much.then(|| {
            format!(
                "{name}: {} of {} used",
                text(status.used.as_ref()).unwrap_or_default(),
                text(Some(hard)).unwrap_or_default()
            )
        })
    })
}

/// How much of a quota's resource a pod needs; none for a resource that pods do not use.
fn needed(pod: &PodSpec, resource: &str) -> Option<Quantity> {
    let one = || Quantity::parse("1").ok();
    let (limits, name) = match resource {
        "pods" | "count/pods" => return one(),
        "cpu" | "memory" | "ephemeral-storage" => (false, resource),
        _ => match resource.split_once('.') {
            Some(("requests", "storage")) => return None,
            Some(("requests", name)) if !name.contains('/') => (false, name),
            Some(("limits", name)) => (true, name),
            _ => return None,
        },
    };
    let of = |container: &k8s_openapi::api::core::v1::Container| {
        let resources = container.resources.as_ref()?;
        let asked = resources.requests.as_ref().filter(|_| !limits).and_then(|asked| asked.get(name));
        Quantity::parse(&asked.or_else(|| resources.limits.as_ref()?.get(name))?.0).ok()
    };
    let zero = Quantity::parse("0").ok()?;
    Some(pod.containers.iter().filter_map(of).fold(zero, |sum, more| sum.add(&more)))
}
