//! The defaults of the objects that have a template of pods.

use k8s_openapi::api::apps::v1::{
    DaemonSet, Deployment, ReplicaSet, RollingUpdateDaemonSet, RollingUpdateDeployment,
    RollingUpdateStatefulSetStrategy, StatefulSet,
};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::storage::claim_spec;
use super::{pod, set};
use crate::settings::Settings;

fn template(template: &mut PodTemplateSpec) {
    pod::spec(template.spec.get_or_insert_default());
}

pub(super) fn replica_set(set: &mut ReplicaSet) {
    let spec = set.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    template(spec.template.get_or_insert_default());
}

pub(super) fn deployment(deployment: &mut Deployment) {
    let spec = deployment.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    let strategy = spec.strategy.get_or_insert_default();
    set(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let quarter = || IntOrString::String("25%".into());
        let RollingUpdateDeployment { max_surge, max_unavailable } = strategy.rolling_update.get_or_insert_default();
        max_unavailable.get_or_insert_with(quarter);
        max_surge.get_or_insert_with(quarter);
    }
    spec.revision_history_limit.get_or_insert(10);
    spec.progress_deadline_seconds.get_or_insert(600);
    template(&mut spec.template);
}

pub(super) fn daemon_set(daemon_set: &mut DaemonSet) {
    let spec = daemon_set.spec.get_or_insert_default();
    let strategy = spec.update_strategy.get_or_insert_default();
    set(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let RollingUpdateDaemonSet { max_surge, max_unavailable } = strategy.rolling_update.get_or_insert_default();
        max_unavailable.get_or_insert(IntOrString::Int(1));
        max_surge.get_or_insert(IntOrString::Int(0));
    }
    spec.revision_history_limit.get_or_insert(10);
    template(&mut spec.template);
}

pub(super) fn stateful_set(stateful_set: &mut StatefulSet, settings: &Settings) {
    let spec = stateful_set.spec.get_or_insert_default();
    set(&mut spec.pod_management_policy, "OrderedReady");
    spec.service_name.get_or_insert_default();
    let strategy = spec.update_strategy.get_or_insert_default();
    // An explicit type without a rollingUpdate block stays without one.
    if strategy.type_.as_ref().is_none_or(String::is_empty) {
        strategy.type_ = Some("RollingUpdate".into());
        strategy.rolling_update.get_or_insert_default();
    }
    if strategy.type_.as_deref() == Some("RollingUpdate")
        && let Some(RollingUpdateStatefulSetStrategy { max_unavailable, partition }) = &mut strategy.rolling_update
    {
        partition.get_or_insert(0);
        // The gate MaxUnavailableStatefulSet was on in these releases only.
        if settings.since(35) && !settings.since(36) && settings.patch < 4 {
            max_unavailable.get_or_insert(IntOrString::Int(1));
        }
    }
    let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_default();
    set(&mut retention.when_deleted, "Retain");
    set(&mut retention.when_scaled, "Retain");
    spec.replicas.get_or_insert(1);
    spec.revision_history_limit.get_or_insert(10);
    template(&mut spec.template);
    for claim in spec.volume_claim_templates.iter_mut().flatten() {
        claim_spec(claim.spec.get_or_insert_default());
        set(&mut claim.status.get_or_insert_default().phase, "Pending");
    }
}

pub(super) fn replication_controller(controller: &mut ReplicationController) {
    let spec = controller.spec.get_or_insert_default();
    let labels = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.clone());
    if let Some(labels) = labels {
        if spec.selector.as_ref().is_none_or(|selector| selector.is_empty()) {
            spec.selector = Some(labels.clone());
        }
        if controller.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            controller.metadata.labels = Some(labels);
        }
    }
    spec.replicas.get_or_insert(1);
    spec.template.iter_mut().for_each(template);
}

pub(super) fn job(job: &mut Job) {
    let spec = job.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    let per_index = spec.backoff_limit_per_index.is_some();
    spec.backoff_limit.get_or_insert(if per_index { i32::MAX } else { 6 });
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    if let Some(labels) = labels.filter(|_| job.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty())) {
        job.metadata.labels = Some(labels.clone());
    }
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".into());
    spec.suspend.get_or_insert(false);
    let waits_for_end = spec.pod_failure_policy.is_some();
    let replacement = if waits_for_end { "Failed" } else { "TerminatingOrFailed" };
    spec.pod_replacement_policy.get_or_insert_with(|| replacement.into());
    spec.manual_selector.get_or_insert(false);
    job_spec(spec);
}

/// What a Job and the template of a CronJob have in common.
fn job_spec(spec: &mut JobSpec) {
    template(&mut spec.template);
    let rules = spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        set(&mut pattern.status, "True");
    }
}

pub(super) fn cron_job(cron_job: &mut CronJob) {
    let spec = &mut cron_job.spec;
    set(&mut spec.concurrency_policy, "Allow");
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
    job_spec(spec.job_template.spec.get_or_insert_default());
}
