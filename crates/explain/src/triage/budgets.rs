//! Budgets that keep a drain from finishing.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use stead_model::{ObjectKey, PodOutline, PodView};
use stead_semantics::{Labels, Selector};

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

/// A budget that allows no eviction.
struct ExhaustedBudget<'a> {
    key: &'a ObjectKey,
    selector: Selector,
}

impl ExhaustedBudget<'_> {
    fn covers(&self, pod: PodView<'_>) -> bool {
        let labels: Labels = pod.metadata().labels.clone().unwrap_or_default().into_iter().collect();
        self.key.namespace == pod.namespace() && self.selector.matches(&labels)
    }
}

/// Assigns the budgets that allow no eviction of a pod on a cordoned node: a drain of the node does not finish.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    if evidence.cordoned.is_empty() {
        return;
    }
    let budgets = exhausted(evidence);
    if budgets.is_empty() {
        return;
    }
    let on_cordoned = |pod: &PodOutline| pod.node().is_some_and(|node| evidence.cordoned.contains(node));
    // What a dead node keeps is explained by the node.
    let evicted = evidence
        .objects
        .pods_where(on_cordoned)
        .filter(|pod| is_evicted(*pod) && pod.node().is_some_and(|node| !evidence.faults.contains_key(node)));
    for pod in evicted {
        let Some(budget) = budgets.iter().find(|budget| budget.covers(pod)) else { continue };
        // A budget that is exhausted because its pods are stuck is explained by them.
        let root = stuck_pod(evidence, roots, budget);
        let root = root.unwrap_or_else(|| Root::new(StuckCause::BudgetBlocks, budget.key.clone()));
        let node = pod.node().unwrap_or_default();
        roots.assign(budget.key, root, &format!("pod {} on cordoned node {node} cannot be evicted", pod.name()));
    }
}

fn exhausted<'a>(evidence: &Evidence<'a>) -> Vec<ExhaustedBudget<'a>> {
    let used_up = |budget: &PodDisruptionBudget| {
        let status = budget.status.as_ref();
        let number = |of: fn(&k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus) -> Option<i32>| {
            status.and_then(of).unwrap_or_default()
        };
        // Counts of zero are left out of a minimal status, but the controller writes all of them.
        let expects = status.is_some_and(|s| s.expected_pods.is_none_or(|expected| expected > 0));
        expects && number(|s| s.disruptions_allowed) <= 0
    };
    let budgets = evidence.objects.all::<PodDisruptionBudget>().filter(|(_, budget)| used_up(budget));
    let compiled = budgets.filter_map(|(key, budget)| {
        let selector = budget.spec.as_ref()?.selector.as_ref();
        Some(ExhaustedBudget { key, selector: Selector::from_label_selector(selector).ok()? })
    });
    compiled.collect()
}

/// Whether a drain evicts a pod.
fn is_evicted(pod: PodView<'_>) -> bool {
    let of_daemon_set = pod.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    !pod.has_ended() && !pod.is_terminating() && !pod.is_mirror() && !of_daemon_set
}

/// The root of a stuck pod that a budget counts.
fn stuck_pod(evidence: &Evidence<'_>, roots: &Roots, budget: &ExhaustedBudget<'_>) -> Option<Root> {
    let mut pods = roots.assigned().filter(|(key, _)| key.kind == "Pod" && key.namespace == budget.key.namespace);
    pods.find_map(|(key, root)| {
        let pod = evidence.objects.pod(key).ok().flatten()?;
        budget.covers(pod).then(|| root.clone())
    })
}
