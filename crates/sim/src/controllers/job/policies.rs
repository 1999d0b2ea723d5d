//! The pod failure policy (`pod_failure_policy.go`) and the success policy (`success_policy.go`) of a Job.

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, SuccessPolicy,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use super::indexes::Indexes;
use crate::pods::{is_terminating, phase};

/// What the failure of a pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailureMeaning {
    /// It counts.
    Counts,
    /// It counts, and the index of the pod has failed.
    FailsIndex,
    /// It does not count.
    Ignored,
    /// The Job has failed, with this message.
    FailsJob(String),
}

/// Whether a pod counts as failed (`isPodFailed`): unless the Job waits for the end of pods that are being deleted, these
/// count at once.
pub(super) fn is_failed(pod: &Pod, spec: &JobSpec) -> bool {
    match phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => is_terminating(pod) && !replaces_only_failed(spec),
    }
}

/// Whether only pods that have ended are replaced (`onlyReplaceFailedPods`).
pub(super) fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

/// What the policy says about the failure of a pod (`matchPodFailurePolicy`).
pub(super) fn failure_meaning(spec: &JobSpec, pod: &Pod) -> FailureMeaning {
    let Some(policy) = &spec.pod_failure_policy else { return FailureMeaning::Counts };
    let Some(status) = &pod.status else { return FailureMeaning::Counts };
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    for (number, rule) in policy.rules.iter().enumerate() {
        let cause = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => failed_container(status, codes).map(|(container, code)| {
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
            }),
            (None, Some(patterns)) => matching_condition(status, patterns)
                .map(|condition| format!("Pod {namespace}/{name} has condition {condition}")),
            (None, None) => None,
        };
        let Some(cause) = cause else { continue };
        match rule.action.as_str() {
            "Ignore" => return FailureMeaning::Ignored,
            "FailIndex" => return FailureMeaning::FailsIndex,
            "Count" => return FailureMeaning::Counts,
            "FailJob" => return FailureMeaning::FailsJob(format!("{cause} matching FailJob rule at index {number}")),
            _ => {}
        }
    }
    FailureMeaning::Counts
}

/// The name and exit code of the first container that ended with a code of the rule.
fn failed_container<'a>(
    status: &'a PodStatus,
    rule: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let matching = |status: &'a ContainerStatus| {
        let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
        let is_named = rule.container_name.as_ref().is_none_or(|name| *name == status.name);
        let matches = match rule.operator.as_str() {
            "In" => rule.values.contains(&code),
            "NotIn" => !rule.values.contains(&code),
            _ => false,
        };
        (is_named && code != 0 && matches).then_some((status.name.as_str(), code))
    };
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.filter_map(matching).next()
}

/// The type of the first condition that matches a pattern.
fn matching_condition<'a>(
    status: &'a PodStatus,
    patterns: &[PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'a str> {
    let mut conditions = status.conditions.iter().flatten();
    let is_meant = |kind: &str, status: &str| {
        let wanted = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
            pattern.type_ == kind && pattern.status.as_deref().unwrap_or("True") == status
        };
        patterns.iter().any(wanted)
    };
    conditions.find(|condition| is_meant(&condition.type_, &condition.status)).map(|condition| condition.type_.as_str())
}

/// The message of the first rule of the success policy that holds (`matchSuccessPolicy`).
pub(super) fn success_message(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    for (number, rule) in policy?.rules.iter().enumerate() {
        let holds = match (&rule.succeeded_indexes, rule.succeeded_count) {
            (Some(wanted), count) => {
                let wanted = Indexes::parse(wanted, completions);
                let common = wanted.common(succeeded);
                wanted.total() > 0 && (common == wanted.total() || count.is_some_and(|count| common >= count))
            }
            (None, Some(count)) => succeeded.total() >= count,
            (None, None) => false,
        };
        if holds {
            return Some(format!("Matched rules at index {number}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n" }, "status": status })).expect("a pod")
    }

    fn spec(rules: &Value) -> JobSpec {
        serde_json::from_value(json!({ "podFailurePolicy": { "rules": rules }, "template": {} })).expect("a spec")
    }

    fn ended(codes: &[(&str, i32)]) -> Value {
        let status = |(name, code): &(&str, i32)| {
            json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": code } } })
        };
        json!({ "phase": "Failed", "containerStatuses": codes.iter().map(status).collect::<Vec<_>>() })
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let codes = |action: &str, operator: &str, values: &[i32], name: Option<&str>| {
            json!({ "action": action, "onExitCodes": { "operator": operator, "values": values, "containerName": name } })
        };
        let conditions = |action: &str, kind: &str, status: Option<&str>| {
            json!({ "action": action, "onPodConditions": [{ "type": kind, "status": status }] })
        };
        let disrupted = json!({ "phase": "Failed", "conditions": [{ "type": "DisruptionTarget", "status": "True" }] });
        let fails = |message: &str| FailureMeaning::FailsJob(message.into());
        for (rules, status, expected) in [
            (json!([]), ended(&[("main", 2)]), FailureMeaning::Counts),
            (
                json!([codes("FailJob", "In", &[1, 2], None)]),
                ended(&[("main", 2)]),
                fails("Container main for pod n/p failed with exit code 2 matching FailJob rule at index 0"),
            ),
            (json!([codes("FailJob", "In", &[1], None)]), ended(&[("main", 2)]), FailureMeaning::Counts),
            (json!([codes("Ignore", "NotIn", &[1], None)]), ended(&[("main", 2)]), FailureMeaning::Ignored),
            // Success is no failure, whatever the rule says.
            (json!([codes("Ignore", "NotIn", &[1], None)]), ended(&[("main", 0)]), FailureMeaning::Counts),
            (json!([codes("Ignore", "In", &[2], Some("side"))]), ended(&[("main", 2)]), FailureMeaning::Counts),
            (
                json!([codes("Count", "In", &[3], None), codes("FailIndex", "In", &[2], Some("main"))]),
                ended(&[("side", 1), ("main", 2)]),
                FailureMeaning::FailsIndex,
            ),
            (json!([conditions("Ignore", "DisruptionTarget", None)]), disrupted.clone(), FailureMeaning::Ignored),
            (
                json!([conditions("Ignore", "DisruptionTarget", Some("False")), conditions("FailJob", "DisruptionTarget", None)]),
                disrupted,
                fails("Pod n/p has condition DisruptionTarget matching FailJob rule at index 1"),
            ),
        ] {
            assert_eq!(failure_meaning(&spec(&rules), &pod(status.clone())), expected, "{rules} {status}");
        }
    }

    #[test]
    fn a_pod_that_is_being_deleted_has_failed_unless_only_ended_pods_are_replaced() {
        let deleted = |phase: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
                "status": { "phase": phase } }))
            .expect("a pod")
        };
        for (policy, phase, expected) in [
            ("TerminatingOrFailed", "Running", true),
            ("TerminatingOrFailed", "Succeeded", false),
            ("TerminatingOrFailed", "Failed", true),
            ("Failed", "Running", false),
            ("Failed", "Failed", true),
        ] {
            let spec = serde_json::from_value(json!({ "podReplacementPolicy": policy, "template": {} })).expect("a spec");
            assert_eq!(is_failed(&deleted(phase), &spec), expected, "{policy} {phase}");
        }
    }

    #[test]
    fn a_success_policy_names_indexes_or_a_number() {
        for (rule, succeeded, expected) in [
            (json!({ "succeededIndexes": "0-2" }), "0-1", false),
            (json!({ "succeededIndexes": "0-2" }), "0-2", true),
            (json!({ "succeededIndexes": "0-4,6-8", "succeededCount": 3 }), "0-1,6", true),
            (json!({ "succeededIndexes": "0-4,6-8", "succeededCount": 3 }), "0-1,5,9", false),
            (json!({ "succeededCount": 3 }), "1,5,9", true),
            (json!({ "succeededCount": 3 }), "1,5", false),
            (json!({ "succeededIndexes": "" }), "1,5", false),
        ] {
            let policy: SuccessPolicy = serde_json::from_value(json!({ "rules": [rule] })).expect("a policy");
            let message = success_message(Some(&policy), 10, &Indexes::parse(succeeded, 10));
            assert_eq!(message, expected.then(|| "Matched rules at index 0".to_owned()), "{rule} {succeeded}");
        }
    }
}
