//! CronJobs that start no Job.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use stead_model::times::created;
use stead_model::{ObjectKey, controller_of};

use super::evidence::Evidence;
use super::rejections::by_message;
use super::roots::Roots;

/// Assigns the CronJobs whose Job is stuck or rejected.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    for (key, cron) in evidence.objects.all::<CronJob>() {
        if cron.spec.suspend == Some(true) || cron.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let waits_for = awaited_jobs(key, cron).into_iter().find_map(|job| roots.of(&job).cloned());
        if let Some(root) = waits_for {
            roots.assign(key, root, "");
        } else if let Some(message) = rejection(evidence, key, cron) {
            let (root, detail) = by_message(key, message);
            roots.assign(key, root, &detail);
        }
    }
}

/// The active Jobs of a CronJob that starts no other one before they end.
fn awaited_jobs(key: &ObjectKey, cron: &CronJob) -> Vec<ObjectKey> {
    let forbids = cron.spec.concurrency_policy.as_deref() == Some("Forbid");
    let active = cron.status.as_ref().and_then(|status| status.active.as_deref()).unwrap_or_default();
    let names = active.iter().filter(|_| forbids).filter_map(|job| job.name.as_deref());
    names.map(|name| ObjectKey::new("Job", &key.namespace, name)).collect()
}

/// What the API server said when the controller last created a Job (`syncCronJob` in `pkg/controller/cronjob`); none if a
/// Job was created since. A later attempt sets `lastScheduleTime` to the time that the Job was due, which can be before
/// the event.
fn rejection<'a>(evidence: &Evidence<'a>, key: &ObjectKey, cron: &CronJob) -> Option<&'a str> {
    let mut warnings = evidence.warnings(key, cron.metadata.uid.as_deref());
    let event = warnings.find(|event| event.reason == "FailedCreate")?;
    let Some(at) = event.at else { return Some(event.message) };
    let scheduled = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let scheduled_since = scheduled.is_some_and(|scheduled| scheduled.0 > at);
    let is_own =
        |job: &Job| controller_of(&job.metadata).is_some_and(|owner| owner.kind == "CronJob" && owner.name == key.name);
    let mut jobs = evidence.objects.all_in::<Job>(&key.namespace);
    let created_since = jobs.any(|(_, job)| is_own(job) && created(&job.metadata).is_some_and(|time| time >= at));
    (!scheduled_since && !created_since).then_some(event.message)
}
