//! One look at a CronJob: what it deletes, what its status says, and whether it starts a Job.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use stead_model::controller_of;
use stead_model::times::seconds;

use super::super::job_end::end_of;
use super::super::pod_control::is_namespace_terminating;
use super::schedule::{Schedule, ScheduleError};
use super::{SCHEDULED, StartedJob, due, parse, since, wait};
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::controller_reference;
use crate::step::{Context, DeleteOptions, DeletePropagation, Write};

/// More missed times than this are reported.
const MANY_MISSED: i64 = 100;

/// What a look at a CronJob leads to.
pub(super) enum Decision {
    /// Nothing until it changes.
    Nothing,
    /// Another look.
    Wait(SignedDuration),
    /// A Job is created.
    Start(StartedJob),
}

/// One look at a CronJob.
pub(super) struct Look<'a> {
    cx: &'a Context<'a>,
    key: &'a SimKey,
    cron_job: &'a Arc<CronJob>,
    jobs: Vec<&'a Arc<Job>>,
    status: CronJobStatus,
    /// Whether the status is written.
    changed: bool,
    pub(super) writes: Vec<Write>,
}

impl<'a> Look<'a> {
    pub(super) fn new(cx: &'a Context<'a>, key: &'a SimKey, cron_job: &'a Arc<CronJob>) -> Look<'a> {
        // The name of the owner is enough: the Jobs of an earlier CronJob of this name are included.
        let is_own = |job: &&Arc<Job>| controller_of(&job.metadata).is_some_and(|owner| *owner.name == *key.name);
        Look {
            cx,
            key,
            cron_job,
            jobs: cx.store.all_in::<Job>(&key.namespace).filter(is_own).collect(),
            status: cron_job.status.clone().unwrap_or_default(),
            changed: false,
            writes: Vec::new(),
        }
    }

    fn report(&mut self, warning: bool, reason: &'static str, message: String) {
        let note = EventNote { warning, ..EventNote::normal(self.key, reason, message) };
        self.writes.push(Write::Event(note));
    }

    /// Deletes the oldest finished Jobs over the limits (`cleanupFinishedJobs`).
    pub(super) fn clean_up(&mut self) {
        let spec = &self.cron_job.spec;
        for (end, limit) in [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)] {
            let Some(limit) = limit else { continue };
            let has_ended = |job: &&Arc<Job>| end_of(job).is_some_and(|condition| condition.type_ == end);
            let mut ended: Vec<&Arc<Job>> = self.jobs.iter().copied().filter(has_ended).collect();
            // One without a start comes last.
            ended.sort_by_key(|job| {
                let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
                (start.is_none(), start, job.metadata.name.clone())
            });
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
            ended.into_iter().take(surplus).for_each(|job| self.delete(job));
        }
    }

    /// Deletes a Job. Its pods follow.
    fn delete(&mut self, job: &Job) {
        let key = SimKey::of(ObjectKind::Job, &job.metadata);
        let message = format!("Deleted job {}", key.name);
        let propagation = DeletePropagation::Background;
        self.writes.push(Write::Delete(key, DeleteOptions { propagation, ..DeleteOptions::default() }));
        self.report(false, "SuccessfulDelete", message);
        self.forget_active(job.metadata.uid.as_deref());
        self.changed = true;
    }

    fn forget_active(&mut self, uid: Option<&str>) {
        self.status.active.iter_mut().for_each(|active| active.retain(|job| job.uid.as_deref() != uid));
        self.status.active.take_if(|active| active.is_empty());
    }

    /// Compares the list of active Jobs with the Jobs.
    pub(super) fn compare_active(&mut self) {
        for job in self.jobs.clone() {
            let (uid, name) = (&job.metadata.uid, job.metadata.name.clone().unwrap_or_default());
            let is_listed = self.status.active.iter().flatten().any(|active| active.uid == *uid);
            let Some(end) = end_of(job) else {
                if !is_listed {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.report(true, "UnexpectedJob", message);
                }
                continue;
            };
            if is_listed {
                self.forget_active(uid.as_deref());
                let message = format!("Saw completed job: {name}, condition: {}", end.type_);
                self.report(false, "SawCompletedJob", message);
                self.changed = true;
            }
            if end.type_ == "Complete" {
                self.count_success(job.status.as_ref().and_then(|status| status.completion_time.clone()));
            }
        }
        let is_missing = |active: &&ObjectReference| {
            let (namespace, name) = (active.namespace.as_deref(), active.name.as_deref());
            let is_own = self.jobs.iter().any(|job| job.metadata.uid == active.uid);
            let job = self.cx.store.get::<Job>(namespace.unwrap_or_default(), name.unwrap_or_default());
            !is_own && job.is_none()
        };
        let missing: Vec<ObjectReference> =
            self.status.active.iter().flatten().filter(is_missing).cloned().collect();
        for job in missing {
            let message = format!("Active job went missing: {}", job.name.unwrap_or_default());
            self.report(false, "MissingJob", message);
            self.forget_active(job.uid.as_deref());
            self.changed = true;
        }
    }

    fn count_success(&mut self, completed: Option<Time>) {
        let last = self.status.last_successful_time.as_ref().map(|time| time.0);
        if completed.as_ref().map(|time| time.0) > last {
            self.status.last_successful_time = completed;
            self.changed = true;
        }
    }

    /// Whether a Job has to be started now (the second half of `syncCronJob`).
    pub(super) fn decide(&mut self) -> Decision {
        let (cron_job, now) = (self.cron_job, self.cx.now);
        if cron_job.metadata.deletion_timestamp.is_some() || cron_job.spec.suspend == Some(true) {
            return Decision::Nothing;
        }
        let Some(schedule) = self.schedule() else { return Decision::Nothing };
        let deadline = cron_job.spec.starting_deadline_seconds.map(seconds);
        // Nothing is started that was due before the deadline.
        let since = deadline.map_or(since(cron_job), |deadline| since(cron_job).max(now - deadline));
        let passed = match due::passed(&schedule, since, now) {
            Ok(passed) => passed,
            Err(error) => {
                let message = format!("invalid schedule: {} : {error}", cron_job.spec.schedule);
                self.report(true, "InvalidSchedule", message);
                return Decision::Nothing;
            }
        };
        let waits = wait(cron_job, &schedule, now).map_or(Decision::Nothing, Decision::Wait);
        let Some(scheduled) = passed.latest else { return waits };
        if passed.missed > MANY_MISSED {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.report(true, "TooManyMissedTimes", message.into());
        }
        if deadline.is_some_and(|deadline| scheduled + deadline < now) {
            let time = scheduled.to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S %z");
            self.report(true, "MissSchedule", format!("Missed scheduled time to start a job: {time}"));
            return waits;
        }
        let name = format!("{}-{}", self.key.name, scheduled.as_second() / 60);
        if self.may_start(&name, scheduled) { self.start(name, scheduled) } else { waits }
    }

    /// The schedule. What is wrong with it is reported.
    fn schedule(&mut self) -> Option<Schedule> {
        let text = &self.cron_job.spec.schedule;
        if text.contains("TZ") {
            let link = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            let message = "is not officially supported, see";
            let message = format!("CRON_TZ or TZ used in schedule {text:?} {message} {link} for more details");
            self.report(true, "UnsupportedSchedule", message);
        }
        match parse(&self.cron_job.spec) {
            Ok(schedule) => Some(schedule),
            Err(error @ ScheduleError::ZoneNotModelled(_)) => {
                self.report(true, "TimeZoneNotModelled", error.to_string());
                None
            }
            Err(error) => {
                self.report(true, "UnparseableSchedule", format!("unparseable schedule: {text:?} : {error}"));
                None
            }
        }
    }

    /// Whether the Job of this name is not there yet and may run now. Jobs that it replaces are deleted.
    fn may_start(&mut self, name: &str, scheduled: Timestamp) -> bool {
        let active = self.status.active.clone().unwrap_or_default();
        let is_active = active.iter().any(|job| job.name.as_deref() == Some(name));
        if is_active || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == scheduled) {
            return false;
        }
        match self.cron_job.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.report(false, "JobAlreadyActive", message.into());
                false
            }
            Some("Replace") => {
                for job in active {
                    let (namespace, name) = (job.namespace.unwrap_or_default(), job.name.unwrap_or_default());
                    if let Some(job) = self.cx.store.get::<Job>(&namespace, &name) {
                        self.delete(job);
                    }
                }
                true
            }
            _ => true,
        }
    }

    /// Creates a Job. One that is there already may be ours.
    fn start(&mut self, name: String, scheduled: Timestamp) -> Decision {
        if is_namespace_terminating(self.cx.store, &self.key.namespace) {
            return Decision::Nothing;
        }
        let uid = self.cron_job.metadata.uid.as_deref().unwrap_or_default();
        match self.cx.store.get::<Job>(&self.key.namespace, &name) {
            Some(job) => {
                let is_own = controller_of(&job.metadata).is_some_and(|owner| owner.uid == uid);
                let is_listed = self.status.active.iter().flatten().any(|active| active.uid == job.metadata.uid);
                if !is_own || is_listed {
                    return Decision::Nothing;
                }
            }
            None => {
                self.writes.push(Write::Create(new_job(self.cron_job, &name, scheduled).into()));
                self.report(false, "SuccessfulCreate", format!("Created job {name}"));
            }
        }
        Decision::Start(StartedJob { name, scheduled, status: self.status.clone() })
    }

    pub(super) fn write_status(&mut self) {
        if !self.changed {
            return;
        }
        let mut cron_job = CronJob::clone(self.cron_job);
        cron_job.status = Some(self.status.clone());
        self.writes.push(Write::Status(cron_job.into()));
    }
}

/// The Job of a time of the schedule (`getJobFromTemplate2`).
fn new_job(cron_job: &Arc<CronJob>, name: &str, scheduled: Timestamp) -> Job {
    let template = &cron_job.spec.job_template;
    let metadata = template.metadata.as_ref();
    let mut annotations = metadata.and_then(|metadata| metadata.annotations.clone()).unwrap_or_default();
    annotations.insert(SCHEDULED.into(), scheduled.to_string());
    Job {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: cron_job.metadata.namespace.clone(),
            labels: metadata.and_then(|metadata| metadata.labels.clone()),
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(&SimObject::CronJob(Arc::clone(cron_job)))]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
