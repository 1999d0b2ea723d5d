//! The condition of disruption budgets (`k8s.io/component-helpers/apps/poddisruptionbudget`), which the disruption
//! controller and the eviction of pods set.

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::whole_seconds;

/// The type of the condition.
pub(crate) const ALLOWED: &str = "DisruptionAllowed";
/// The reason if the number of pods could not be computed.
pub(crate) const SYNC_FAILED: &str = "SyncFailed";

/// The status and the reason that the condition has to have.
fn expected(status: &PodDisruptionBudgetStatus) -> (&'static str, &'static str) {
    if status.disruptions_allowed.unwrap_or(0) > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") }
}

/// Sets the condition by the number of disruptions that are allowed (`UpdateDisruptionAllowedCondition`).
pub(crate) fn update_condition(status: &mut PodDisruptionBudgetStatus, now: Timestamp) {
    let (value, reason) = expected(status);
    set_condition(status, value, reason, "", now);
}

/// Sets the condition. The time of its last change is kept if its status stays the same (`SetStatusCondition`).
pub(crate) fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let observed_generation = status.observed_generation;
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.iter_mut().find(|condition| condition.type_ == ALLOWED);
    let since =
        before.as_ref().filter(|before| before.status == value).map(|before| before.last_transition_time.clone());
    let new = Condition {
        type_: ALLOWED.into(),
        status: value.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: since.unwrap_or_else(|| whole_seconds(now)),
        observed_generation,
    };
    match before {
        Some(before) => *before = new,
        None => conditions.push(new),
    }
}

/// Whether the condition is what it has to be (`ConditionsAreUpToDate`).
pub(crate) fn is_condition_current(budget: &PodDisruptionBudget) -> bool {
    let Some(status) = &budget.status else { return false };
    let (value, reason) = expected(status);
    let is_current = |condition: &Condition| condition.status == value && condition.reason == reason;
    status.observed_generation.unwrap_or(0) == budget.metadata.generation.unwrap_or(0)
        && status.conditions.iter().flatten().find(|condition| condition.type_ == ALLOWED).is_some_and(is_current)
}
