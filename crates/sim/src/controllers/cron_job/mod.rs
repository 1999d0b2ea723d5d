//! The CronJob controller (`pkg/controller/cronjob`).

mod due;
mod look;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stead_model::fork::Sorted;

use super::delayed::Delayed;
use super::ownership::controller;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey};
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use look::{Decision, Look};
use schedule::{Schedule, ScheduleError, is_utc};

/// The annotation of a Job with the time that it was scheduled for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

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
