//! The CronJob controller (`pkg/controller/cronjob`).

mod due;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_model::times::seconds;

use super::delayed::Delayed;
use super::job_end::end_of;
use super::ownership::controller;
use super::pod_control::is_namespace_terminating;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::controller_reference;
use crate::step::{Context, Controller, DeleteOptions, Item, Step, Wakes, Write};
use crate::store::Change;
use schedule::{Schedule, ScheduleError, is_utc};

/// The annotation of a Job with the time that it was scheduled for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// More missed times than this are reported.
const MANY_MISSED: i64 = 100;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct CronJobs {
    delayed: Delayed,
    /// Jobs that were created in this step: the status refers to them with the UID that the API server gave them.
    started: Sorted<SimKey, StartedJob>,
}

/// A Job that was just created.
#[derive(Debug, Clone)]
struct StartedJob {
    name: String,
    scheduled: Timestamp,
    /// The status of the CronJob, without the Job.
    status: CronJobStatus,
}

impl Controller for CronJobs {
    const COMPONENT: &'static str = "cronjob-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::CronJob => self.cron_job_changed(cx, change, wakes),
            ObjectKind::Job => {
                let versions = [&change.before, &change.after].into_iter().flatten();
                let owners: BTreeSet<SimKey> = versions
                    .filter_map(|job| controller::<CronJob>(cx.store, job.metadata()))
                    .map(|owner| SimKey::of(ObjectKind::CronJob, &owner.metadata))
                    .collect();
                owners.into_iter().for_each(|key| wakes.now(key));
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        self.delayed.begin(key, cx.now);
        let started = self.started.remove(|other| other.cmp(key));
        let Some(cron_job) = cx.store.at::<CronJob>(key) else { return Step::none() };
        if let Some(started) = started {
            return self.record(cx, key, cron_job, started);
        }
        let mut look = Look::new(cx, key, cron_job);
        look.clean_up();
        look.compare_active();
        let decision = look.decide();
        let mut again = None;
        match decision {
            Decision::Nothing => {}
            Decision::Wait(wait) => self.delayed.add(key, cx.now + wait),
            Decision::Start(started) => {
                self.started.insert(key.clone(), started);
                again = Some(SignedDuration::ZERO);
            }
        }
        if again.is_none() {
            look.write_status();
        }
        Step::writes(look.writes).and_again(again.or_else(|| self.delayed.left(key, cx.now)))
    }

    fn refused(&mut self, _cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let Item::Object(key) = item else { return Vec::new() };
        self.started.remove(|other| other.cmp(key));
        let note = match write {
            Write::Create(_) => EventNote::warning(key, "FailedCreate", format!("Error creating job: {error}")),
            Write::Delete(..) => EventNote::warning(key, "FailedDelete", format!("Deleted job: {error}")),
            _ => return Vec::new(),
        };
        vec![Write::Event(note)]
    }
}

impl CronJobs {
    fn cron_job_changed(&mut self, cx: &Context<'_>, change: &Change, wakes: &mut Wakes) {
        let key = &change.key;
        match change.of::<CronJob>() {
            // Another schedule counts from its next time on.
            (Some(before), Some(after))
                if (&before.spec.schedule, &before.spec.time_zone) != (&after.spec.schedule, &after.spec.time_zone) =>
            {
                let wait = parse(&after.spec).ok().and_then(|schedule| wait(after, &schedule, cx.now));
                if let Some(wait) = wait {
                    self.delayed.add(key, cx.now + wait);
                    wakes.after(key.clone(), wait);
                }
            }
            (Some(_), None) => self.delayed.forget(key),
            _ => wakes.now(key.clone()),
        }
    }

    /// Writes the status with a Job that was created.
    fn record(&mut self, cx: &Context<'_>, key: &SimKey, cron_job: &Arc<CronJob>, started: StartedJob) -> Step {
        let mut cron_job = CronJob::clone(cron_job);
        cron_job.metadata.resource_version = None;
        let status = cron_job.status.insert(started.status);
        if let Some(job) = cx.store.get::<Job>(&key.namespace, &started.name) {
            status.active.get_or_insert_default().push(reference(job));
            status.last_schedule_time = Some(Time(started.scheduled));
        }
        if let Some(wait) = parse(&cron_job.spec).ok().and_then(|schedule| wait(&cron_job, &schedule, cx.now)) {
            self.delayed.add(key, cx.now + wait);
        }
        Step::writes(vec![Write::Status(cron_job.into())]).and_again(self.delayed.left(key, cx.now))
    }
}

/// What a look at a CronJob leads to.
enum Decision {
    /// Nothing until it changes.
    Nothing,
    /// Another look.
    Wait(SignedDuration),
    /// A Job is created.
    Start(StartedJob),
}

/// One look at a CronJob.
struct Look<'a> {
    cx: &'a Context<'a>,
    key: &'a SimKey,
    cron_job: &'a Arc<CronJob>,
    jobs: Vec<&'a Arc<Job>>,
    status: CronJobStatus,
    /// Whether the status is written.
    changed: bool,
    writes: Vec<Write>,
}

impl<'a> Look<'a> {
    fn new(cx: &'a Context<'a>, key: &'a SimKey, cron_job: &'a Arc<CronJob>) -> Look<'a> {
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
    fn clean_up(&mut self) {
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
        self.writes.push(Write::Delete(key, DeleteOptions::default()));
        self.report(false, "SuccessfulDelete", message);
        self.forget_active(job.metadata.uid.as_deref());
        self.changed = true;
    }

    fn forget_active(&mut self, uid: Option<&str>) {
        self.status.active.iter_mut().for_each(|active| active.retain(|job| job.uid.as_deref() != uid));
        self.status.active.take_if(|active| active.is_empty());
    }

    /// Compares the list of active Jobs with the Jobs.
    fn compare_active(&mut self) {
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
    fn decide(&mut self) -> Decision {
        let (cron_job, spec) = (Arc::clone(self.cron_job), &self.cron_job.spec);
        if cron_job.metadata.deletion_timestamp.is_some() || spec.suspend == Some(true) {
            return Decision::Nothing;
        }
        if spec.schedule.contains("TZ") {
            let link = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            let text = &spec.schedule;
            let message = format!("CRON_TZ or TZ used in schedule {text:?} is not officially supported, see {link} for more details");
            self.report(true, "UnsupportedSchedule", message);
        }
        let schedule = match parse(spec) {
            Ok(schedule) => schedule,
            Err(error @ ScheduleError::ZoneNotModelled(_)) => {
                self.report(true, "TimeZoneNotModelled", error.to_string());
                return Decision::Nothing;
            }
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.report(true, "UnparseableSchedule", message);
                return Decision::Nothing;
            }
        };
        let now = self.cx.now;
        let deadline = spec.starting_deadline_seconds.map(seconds);
        // Nothing is started that was due before the deadline.
        let since = deadline.map_or(since(&cron_job), |deadline| since(&cron_job).max(now - deadline));
        let passed = match due::passed(&schedule, since, now) {
            Ok(passed) => passed,
            Err(error) => {
                self.report(true, "InvalidSchedule", format!("invalid schedule: {} : {error}", spec.schedule));
                return Decision::Nothing;
            }
        };
        let waits = wait(&cron_job, &schedule, now).map_or(Decision::Nothing, Decision::Wait);
        let Some(scheduled) = passed.latest else { return waits };
        if passed.missed > MANY_MISSED {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.report(true, "TooManyMissedTimes", message.into());
        }
        if deadline.is_some_and(|deadline| scheduled + deadline < now) {
            let time = scheduled.to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S %z");
            self.report(true, "MissSchedule", format!("Missed scheduled time to start a job: {time}"));
            return waits;
        }
        let name = format!("{}-{}", self.key.name, scheduled.as_second() / 60);
        let active = self.status.active.as_deref().unwrap_or_default();
        let is_active = active.iter().any(|job| job.name.as_deref() == Some(&name));
        if is_active || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == scheduled) {
            return waits;
        }
        if spec.concurrency_policy.as_deref() == Some("Forbid") && !active.is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.report(false, "JobAlreadyActive", message.into());
            return waits;
        }
        if spec.concurrency_policy.as_deref() == Some("Replace") {
            let namespace = |job: &ObjectReference| job.namespace.clone().unwrap_or_default();
            let find = |job: &ObjectReference| {
                self.cx.store.get::<Job>(&namespace(job), job.name.as_deref().unwrap_or_default())
            };
            let replaced: Vec<&Arc<Job>> = active.iter().filter_map(find).collect();
            replaced.into_iter().for_each(|job| self.delete(job));
        }
        self.start(name, scheduled)
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

    fn write_status(&mut self) {
        if !self.changed {
            return;
        }
        let mut cron_job = CronJob::clone(self.cron_job);
        cron_job.status = Some(self.status.clone());
        self.writes.push(Write::Status(cron_job.into()));
    }
}

/// The schedule of a CronJob. A time zone in the schedule itself comes before the field.
fn parse(spec: &CronJobSpec) -> Result<Schedule, ScheduleError> {
    match spec.time_zone.as_deref() {
        Some(zone) if !spec.schedule.contains("TZ") && !is_utc(zone) => Err(ScheduleError::ZoneNotModelled(zone.into())),
        _ => Schedule::parse(&spec.schedule),
    }
}

/// From when on the times of the schedule count.
fn since(cron_job: &CronJob) -> Timestamp {
    let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    last.or(cron_job.metadata.creation_timestamp.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn wait(cron_job: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<SignedDuration> {
    due::wait(schedule, since(cron_job), now)
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

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}
