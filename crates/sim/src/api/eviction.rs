//! The eviction of a pod (`pkg/registry/core/pod/storage/eviction.go`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use stead_semantics::{Labels, Selector};

use super::{ApiServer, Request, whole_seconds};
use crate::budgets::{self, ALLOWED};
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods;
use crate::step::DeleteOptions;
use crate::store::Change;

/// The answer if a budget does not allow an eviction.
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// The answer if two budgets cover a pod.
const TWO_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
/// How many evictions can be under way in one budget.
const MAX_DISRUPTED: usize = 2000;

impl ApiServer {
    /// Evicts a pod: the budget is charged, the pod gets the condition DisruptionTarget, then it is deleted.
    pub(super) fn evict(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        options: &DeleteOptions,
    ) -> Result<Vec<Change>, ApiError> {
        let Some(pod) = self.store.at::<Pod>(key).cloned() else { return Err(ApiError::NotFound(key.clone())) };
        let mut changes = Vec::new();
        if !ignores_budgets(&pod)
            && let Some(budget) = self.budget_of(&pod)?
            && is_charged(&pod, &budget)
        {
            let charged = charge(&budget, key, request)?;
            changes.push(self.commit(&mut SimObject::from(charged)));
        }
        self.mark_and_delete(request, key, &pod, options, &mut changes)?;
        Ok(changes)
    }

    /// The budget that covers a pod.
    fn budget_of(&self, pod: &Pod) -> Result<Option<Arc<PodDisruptionBudget>>, ApiError> {
        let none = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let covers = |budget: &&Arc<PodDisruptionBudget>| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            // A budget with an invalid selector covers nothing.
            Selector::from_label_selector(selector).is_ok_and(|selector| selector.matches(labels))
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = self.store.all_in::<PodDisruptionBudget>(namespace).filter(covers);
        let budget = found.next().cloned();
        if found.next().is_some() {
            return Err(ApiError::Internal { message: TWO_BUDGETS.into() });
        }
        Ok(budget)
    }

    fn mark_and_delete(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        pod: &Arc<Pod>,
        options: &DeleteOptions,
        changes: &mut Vec<Change>,
    ) -> Result<(), ApiError> {
        check(pod, key, options)?;
        let mut marked = Pod::clone(pod);
        let target = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("EvictionByEvictionAPI".into()),
            message: Some("Eviction API: evicting".into()),
            // The status of a pod keeps the generation that a condition was about.
            observed_generation: pods::condition(pod, "DisruptionTarget").and_then(|old| old.observed_generation),
            ..PodCondition::default()
        };
        if pods::set_condition(&mut marked, target, request.now) {
            changes.push(self.commit(&mut SimObject::from(marked)));
        }
        // The version of the request was that of the pod before its condition.
        let options = DeleteOptions { resource_version: None, ..options.clone() };
        changes.extend(self.delete(request, key, &options)?);
        Ok(())
    }
}

/// Whether a pod is not disrupted by its deletion: it has not started, has ended, or is being deleted.
fn ignores_budgets(pod: &Pod) -> bool {
    matches!(pods::phase(pod), "Pending" | "Succeeded" | "Failed") || pods::is_terminating(pod)
}

/// Whether an eviction uses up a disruption of the budget. A pod that is not Ready can go if the policy always allows
/// that, or if enough others are healthy.
fn is_charged(pod: &Pod, budget: &PodDisruptionBudget) -> bool {
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let (current, desired) = budget
        .status
        .as_ref()
        .map_or((0, 0), |status| (status.current_healthy.unwrap_or(0), status.desired_healthy.unwrap_or(0)));
    pods::is_ready(pod) || !(policy == Some("AlwaysAllow") || (current >= desired && desired > 0))
}

/// The budget after one more disruption (`checkAndDecrement`).
fn charge(budget: &PodDisruptionBudget, pod: &SimKey, request: &Request<'_>) -> Result<PodDisruptionBudget, ApiError> {
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    let refused = |cause: String, retry_after: Option<u32>| {
        Err(ApiError::TooManyRequests { message: REFUSED.into(), cause, retry_after })
    };
    let forbidden = |message: &str| {
        let key = SimKey::new(ObjectKind::PodDisruptionBudget, &pod.namespace, name);
        Err(ApiError::Forbidden { key, message: message.into() })
    };
    let status = budget.status.clone().unwrap_or_default();
    if status.observed_generation.unwrap_or(0) < budget.metadata.generation.unwrap_or(0) {
        return refused(format!("The disruption budget {name} is still being processed by the server."), Some(10));
    }
    let allowed = status.disruptions_allowed.unwrap_or(0);
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status.disrupted_pods.as_ref().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return refused(why_not_allowed(name, &status), None);
    }
    let mut charged = budget.clone();
    let status = charged.status.get_or_insert_default();
    status.disruptions_allowed = Some(allowed - 1);
    if allowed == 1 {
        budgets::update_condition(status, request.now);
    }
    status.disrupted_pods.get_or_insert_default().insert(pod.name.to_string(), whole_seconds(request.now));
    Ok(charged)
}

fn why_not_allowed(name: &str, status: &k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus) -> String {
    let (current, desired) = (status.current_healthy.unwrap_or(0), status.desired_healthy.unwrap_or(0));
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == ALLOWED);
    match condition.filter(|condition| condition.status == "False" && !condition.message.is_empty()) {
        Some(failed) if failed.reason == budgets::SYNC_FAILED => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            failed.message
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            condition.reason, condition.message
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Refuses to evict another pod of the same name, or another version.
fn check(pod: &Pod, key: &SimKey, options: &DeleteOptions) -> Result<(), ApiError> {
    let found = &pod.metadata;
    for (what, wanted, found, hint) in [
        ("UID", &options.uid, &found.uid, "The object might have been deleted and then recreated"),
        ("ResourceVersion", &options.resource_version, &found.resource_version, "The object might have been modified"),
    ] {
        if let Some(wanted) = wanted.as_ref().filter(|wanted| found.as_ref() != Some(wanted)) {
            let found = found.as_deref().unwrap_or_default();
            let message = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {hint}"
            );
            return Err(ApiError::ConflictOn { key: key.clone(), subject: "Pod".into(), message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::settings::Settings;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    fn object(value: Value) -> SimObject {
        SimObject::from_json(&value).expect("an object")
    }

    fn pod(phase: &str, ready: bool, deleting: bool) -> SimObject {
        let deletion = deleting.then_some("2026-01-01T00:00:00Z");
        object(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "labels": { "a": "b" }, "deletionTimestamp": deletion,
                "deletionGracePeriodSeconds": deleting.then_some(30) },
            "spec": { "nodeName": "x", "containers": [], "terminationGracePeriodSeconds": 30 },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } }))
    }

    /// A budget with its policy, the observed generation, and how many pods are healthy, have to be, and can be disrupted.
    fn budget(name: &str, policy: Option<&str>, observed: i64, counts: [i32; 3]) -> SimObject {
        let [current, desired, allowed] = counts;
        object(json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": name, "namespace": "n", "generation": 1 },
            "spec": { "selector": { "matchLabels": { "a": "b" } }, "unhealthyPodEvictionPolicy": policy },
            "status": { "observedGeneration": observed, "currentHealthy": current, "desiredHealthy": desired,
                "disruptionsAllowed": allowed, "expectedPods": 3, "conditions": [{ "type": "DisruptionAllowed",
                    "status": "True", "reason": "SufficientPods", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }] } }))
    }

    /// Evicts the pod. Gives the kinds of the changes, or the error with its cause.
    fn evicted(objects: &[SimObject]) -> (ApiServer, Result<Vec<&'static str>, (u16, String)>) {
        let mut server = ApiServer::with_objects(&Settings::default(), objects.iter().cloned());
        let (settings, mut choices) = (Settings::default(), Choices::seeded(1));
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let request = Request { now, settings: &settings, choices: &mut choices };
        let answer = server.evict(&request, &SimKey::pod("n", "p"), &DeleteOptions::default());
        let answer = answer.map(|changes| changes.iter().map(|change| change.key.kind.name()).collect());
        let answer = answer.map_err(|error| match &error {
            ApiError::TooManyRequests { cause, .. } => (error.code(), cause.clone()),
            _ => (error.code(), error.to_string()),
        });
        (server, answer)
    }

    #[test]
    fn budgets_are_asked() {
        let running = pod("Running", true, false);
        let unready = pod("Running", false, false);
        let charged = Ok(vec!["PodDisruptionBudget", "Pod", "Pod"]);
        let free = Ok(vec!["Pod", "Pod"]);
        let refused = |cause: &str| Err((429, cause.to_owned()));
        for (what, objects, expected) in [
            ("no budget", vec![running.clone()], free.clone()),
            ("allowed", vec![running.clone(), budget("b", None, 1, [3, 2, 1])], charged),
            (
                "not allowed",
                vec![running.clone(), budget("b", None, 1, [2, 2, 0])],
                refused("The disruption budget b needs 2 healthy pods and has 2 currently"),
            ),
            (
                "not allowed, though healthy",
                vec![running.clone(), budget("b", None, 1, [3, 2, 0])],
                refused("The disruption budget b does not allow evicting pods currently"),
            ),
            (
                "not observed",
                vec![running.clone(), budget("b", None, 0, [3, 2, 1])],
                refused("The disruption budget b is still being processed by the server."),
            ),
            (
                "two budgets",
                vec![running, budget("b", None, 1, [3, 2, 1]), budget("c", None, 1, [3, 2, 1])],
                Err((500, TWO_BUDGETS.into())),
            ),
            ("unready, budget met", vec![unready.clone(), budget("b", None, 1, [2, 2, 0])], free.clone()),
            (
                "unready, budget not met",
                vec![unready.clone(), budget("b", Some("IfHealthyBudget"), 1, [1, 2, 0])],
                refused("The disruption budget b needs 2 healthy pods and has 1 currently"),
            ),
            (
                "unready, nothing desired",
                vec![unready.clone(), budget("b", None, 1, [0, 0, 0])],
                refused("The disruption budget b needs 0 healthy pods and has 0 currently"),
            ),
            ("unready, always", vec![unready, budget("b", Some("AlwaysAllow"), 1, [1, 2, 0])], free.clone()),
            ("pending", vec![pod("Pending", false, false), budget("b", None, 1, [1, 2, 0])], free.clone()),
            // The pod is marked, deleted at once, and gone: it has ended.
            (
                "ended",
                vec![pod("Failed", false, false), budget("b", None, 1, [1, 2, 0])],
                Ok(vec!["Pod", "Pod", "Pod"]),
            ),
            ("terminating", vec![pod("Running", true, true), budget("b", None, 1, [1, 2, 0])], Ok(vec!["Pod"])),
        ] {
            assert_eq!(evicted(&objects).1, expected, "{what}");
        }
    }

    #[test]
    fn the_last_disruption_closes_the_budget() {
        let (server, answer) = evicted(&[pod("Running", true, false), budget("b", None, 1, [3, 2, 1])]);
        assert!(answer.is_ok());
        let budget = server.store().get::<PodDisruptionBudget>("n", "b").expect("the budget");
        let status = serde_json::to_value(&budget.status).expect("JSON");
        assert_eq!(status["disruptionsAllowed"], 0);
        assert_eq!(status["disruptedPods"], json!({ "p": "2027-01-15T08:00:00Z" }));
        let condition = &status["conditions"][0];
        assert_eq!(
            (condition["status"].as_str(), condition["reason"].as_str()),
            (Some("False"), Some("InsufficientPods"))
        );
        let pod = server.store().get::<Pod>("n", "p").expect("the pod");
        let target = pods::condition(pod, "DisruptionTarget").expect("the condition");
        assert_eq!(
            (target.reason.as_deref(), target.message.as_deref(), pod.metadata.deletion_grace_period_seconds),
            (Some("EvictionByEvictionAPI"), Some("Eviction API: evicting"), Some(30))
        );
    }
}
