//! Creation of Jobs and CronJobs: defaults (`pkg/apis/batch/v1/defaults.go`) and the labels and selector of a Job
//! (`generateSelector` of `pkg/registry/batch/job`).

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job, JobSpec, JobStatus, PodFailurePolicy};

use crate::object::SimObject;

/// Completes a Job or CronJob that is created.
pub(super) fn prepare_create(object: &mut SimObject) {
    match object {
        SimObject::Job(job) => prepare_job(Arc::make_mut(job)),
        SimObject::CronJob(cron_job) => prepare_cron_job(Arc::make_mut(cron_job)),
        _ => {}
    }
}

fn prepare_job(job: &mut Job) {
    let spec = job.spec.get_or_insert_default();
    set_defaults(spec);
    if spec.manual_selector == Some(false) {
        let name = job.metadata.name.clone().unwrap_or_default();
        generate_selector(spec, &name, job.metadata.uid.as_deref().unwrap_or_default());
    }
    // Objects are defaulted again when they are read, so the generated labels of the template are among them.
    if job.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
        job.metadata.labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    }
    job.status = Some(JobStatus::default());
}

/// `SetDefaults_Job`.
fn set_defaults(spec: &mut JobSpec) {
    if spec.parallelism.is_none() {
        spec.completions = spec.completions.or(Some(1));
        spec.parallelism = Some(1);
    }
    let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(limit);
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".into());
    spec.suspend.get_or_insert(false);
    let replacement = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
    spec.pod_replacement_policy.get_or_insert_with(|| replacement.into());
    spec.manual_selector.get_or_insert(false);
    spec.pod_failure_policy.iter_mut().for_each(set_policy_defaults);
}

fn set_policy_defaults(policy: &mut PodFailurePolicy) {
    for pattern in policy.rules.iter_mut().flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        pattern.status.get_or_insert_with(|| "True".into());
    }
}

fn generate_selector(spec: &mut JobSpec, name: &str, uid: &str) {
    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    for (label, value) in [
        ("job-name", name),
        ("batch.kubernetes.io/job-name", name),
        ("controller-uid", uid),
        ("batch.kubernetes.io/controller-uid", uid),
    ] {
        labels.entry(label.into()).or_insert_with(|| value.into());
    }
    let selected = spec.selector.get_or_insert_default().match_labels.get_or_insert_default();
    selected.entry("batch.kubernetes.io/controller-uid".into()).or_insert_with(|| uid.into());
}

/// `SetDefaults_CronJob`. The template of its Jobs gets its defaults when a Job is created.
fn prepare_cron_job(cron_job: &mut CronJob) {
    let spec = &mut cron_job.spec;
    spec.concurrency_policy.get_or_insert_with(|| "Allow".into());
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
    cron_job.status = Some(CronJobStatus::default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn created(spec: Value) -> Value {
        let mut job = SimObject::from_json(&json!({ "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "j", "uid": "u" }, "spec": spec }))
        .expect("a Job");
        prepare_create(&mut job);
        job.to_json()
    }

    #[test]
    fn parallelism_and_completions_have_defaults() {
        for (completions, parallelism, expected) in [
            (None, None, (json!(1), json!(1))),
            (Some(5), None, (json!(5), json!(1))),
            (None, Some(5), (Value::Null, json!(5))),
            (Some(3), Some(2), (json!(3), json!(2))),
        ] {
            let job = created(json!({ "completions": completions, "parallelism": parallelism, "template": {} }));
            let spec = &job["spec"];
            assert_eq!((spec["completions"].clone(), spec["parallelism"].clone()), expected);
        }
    }

    #[test]
    fn the_selector_is_generated_unless_it_is_manual() {
        let labels = json!({ "a": "b", "job-name": "j", "batch.kubernetes.io/job-name": "j",
            "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u" });
        let job = created(json!({ "template": { "metadata": { "labels": { "a": "b" } } } }));
        assert_eq!(job["metadata"]["labels"], labels);
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(job["spec"]["selector"], json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } }));
        let manual = json!({ "manualSelector": true, "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } } } });
        let job = created(manual.clone());
        assert_eq!(job["spec"]["template"], manual["template"]);
        assert_eq!(job["spec"]["selector"], manual["selector"]);
    }

    #[test]
    fn the_limits_depend_on_the_policies() {
        let job = created(json!({ "template": {} }));
        assert_eq!(
            (&job["spec"]["backoffLimit"], &job["spec"]["podReplacementPolicy"]),
            (&json!(6), &json!("TerminatingOrFailed"))
        );
        let policy = json!({ "rules": [{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] }] });
        let job = created(json!({ "backoffLimitPerIndex": 1, "podFailurePolicy": policy, "template": {} }));
        assert_eq!(
            (&job["spec"]["backoffLimit"], &job["spec"]["podReplacementPolicy"]),
            (&json!(i32::MAX), &json!("Failed"))
        );
        assert_eq!(job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    }
}
