//! Budgets that keep a drain from finishing.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use stead_model::{ObjectKey, PodView};
use stead_semantics::{Labels, Selector};

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

/// Assigns the budgets that allow no eviction of the last pods of a cordoned node. A drain evicts the other pods first:
/// while such pods are left, the node was cordoned and is not being drained.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let exhausted = |(_, budget): &(&ObjectKey, &PodDisruptionBudget)| {
        let Some(status) = &budget.status else { return false };
        status.disruptions_allowed.unwrap_or_default() <= 0 && status.expected_pods.unwrap_or_default() > 0
    };
    let budgets: Vec<(&ObjectKey, Selector)> = evidence
        .objects
        .all::<PodDisruptionBudget>()
        .filter(exhausted)
        .filter_map(|(key, budget)| {
            let selector = budget.spec.as_ref()?.selector.as_ref();
            Some((key, Selector::from_label_selector(selector).ok()?))
        })
        .collect();
    if budgets.is_empty() || evidence.cordoned.is_empty() {
        return;
    }
    for node in &evidence.cordoned {
        let pods: Vec<PodView<'_>> = evidence.objects.pods_on(node).filter(|pod| is_evicted(*pod)).collect();
        let guards = |pod: PodView<'_>| {
            let labels: Labels = pod.metadata().labels.clone().unwrap_or_default().into_iter().collect();
            budgets.iter().find(|(key, selector)| key.namespace == pod.namespace() && selector.matches(&labels))
        };
        let guarding: Vec<_> = pods.iter().filter_map(|pod| Some((*pod, guards(*pod)?))).collect();
        if guarding.len() != pods.len() {
            continue;
        }
        for (pod, (budget, _)) in guarding {
            // A budget that is exhausted because its pods are stuck is explained by them.
            let stuck = stuck_pod(evidence, roots, budget, &budgets);
            let root = stuck.unwrap_or_else(|| Root::new(StuckCause::BudgetBlocks, (*budget).clone()));
            roots.assign(
                budget,
                root,
                &format!("node {node} is cordoned, and pod {} cannot be evicted", pod.full_name()),
            );
        }
    }
}

/// Whether a drain evicts a pod.
fn is_evicted(pod: PodView<'_>) -> bool {
    let of_daemon_set = pod.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    !pod.has_ended() && !pod.is_terminating() && !pod.is_mirror() && !of_daemon_set
}

/// The root of a stuck pod that a budget counts.
fn stuck_pod(
    evidence: &Evidence<'_>,
    roots: &Roots,
    budget: &ObjectKey,
    budgets: &[(&ObjectKey, Selector)],
) -> Option<Root> {
    let (_, selector) = budgets.iter().find(|(key, _)| *key == budget)?;
    let mut pods = roots.assigned().filter(|(key, _)| key.kind == "Pod" && key.namespace == budget.namespace);
    pods.find_map(|(key, root)| {
        let pod = evidence.objects.pod(key).ok().flatten()?;
        let labels: Labels = pod.metadata().labels.clone().unwrap_or_default().into_iter().collect();
        selector.matches(&labels).then(|| root.clone())
    })
}
