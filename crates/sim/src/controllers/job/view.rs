//! A Job and its pods at one moment, and what one look at them has found out (`syncJobCtx`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::back_off::{BackOffRecord, finished_at};
use super::indexes::{Indexes, index_of, indexes_of};
use super::policies::{FailureMeaning, failure_meaning, is_failed};
use crate::api::whole_seconds;
use crate::object::{SimKey, SimObject};
use crate::pods::{has_ended, is_active, is_ready, is_terminating, phase};
use crate::step::Write;

/// The finalizer of pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Whether the finalizer keeps a pod until it is counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// Removes the finalizer of a pod.
pub(super) fn untrack(pod: &Pod) -> Write {
    let mut pod = pod.clone();
    pod.metadata.resource_version = None;
    pod.metadata.finalizers.iter_mut().for_each(|list| list.retain(|finalizer| finalizer != TRACKING));
    pod.metadata.finalizers.take_if(|list| list.is_empty());
    Write::Replace(pod.into())
}

/// The condition of a Job if it is true.
pub(super) fn find_condition<'a>(status: Option<&'a JobStatus>, kind: &str) -> Option<&'a JobCondition> {
    status?.conditions.iter().flatten().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// A condition that holds since now.
pub(super) fn new_condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    JobCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: text(reason),
        message: text(message),
        last_probe_time: Some(whole_seconds(now)),
        last_transition_time: Some(whole_seconds(now)),
    }
}

/// A Job and its pods, and what was found out about them.
pub(super) struct View<'a> {
    pub(super) key: &'a SimKey,
    pub(super) job: &'a Arc<Job>,
    pub(super) spec: &'a JobSpec,
    pub(super) now: Timestamp,
    pub(super) pods: Vec<&'a Arc<Pod>>,
    /// The status as it is written in the end.
    pub(super) status: JobStatus,
    /// The pods that are neither at their end nor being deleted.
    pub(super) active: Vec<&'a Pod>,
    pub(super) ready: i32,
    pub(super) terminating: i32,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The succeeded indexes that the status has.
    pub(super) known_indexes: Indexes,
    /// The same, with the pods that have succeeded since.
    pub(super) succeeded_indexes: Indexes,
    /// Only with a back-off limit for each index.
    pub(super) failed_indexes: Option<Indexes>,
    /// The last failed pod of each index, while its replacement is not there: it carries the number of failures.
    pub(super) replaced: BTreeMap<i32, &'a Pod>,
    pub(super) back_off: BackOffRecord,
    /// How the Job ends, if it does.
    pub(super) finished: Option<JobCondition>,
    /// When to look again.
    pub(super) delays: Vec<SignedDuration>,
    pub(super) writes: Vec<Write>,
}

impl<'a> View<'a> {
    /// Counts the pods of a Job.
    pub(super) fn new(
        key: &'a SimKey,
        job: &'a Arc<Job>,
        spec: &'a JobSpec,
        pods: Vec<&'a Arc<Pod>>,
        back_off: BackOffRecord,
        now: Timestamp,
    ) -> View<'a> {
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        let active: Vec<&Pod> = pods.iter().map(|pod| &***pod).filter(|pod| is_active(pod)).collect();
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let mut view = View {
            ready: count(active.iter().filter(|pod| is_ready(pod)).count()),
            terminating: count(pods.iter().filter(|pod| is_terminating(pod) && !has_ended(pod)).count()),
            key,
            job,
            spec,
            now,
            pods,
            active,
            succeeded: 0,
            failed: 0,
            known_indexes: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            replaced: BTreeMap::new(),
            back_off,
            finished: None,
            delays: Vec::new(),
            writes: Vec::new(),
            status,
        };
        let (good, bad) = (view.uncounted(true), view.uncounted(false));
        let new_good = view.ended(&good, |pod| phase(pod) == "Succeeded");
        let new_bad = view.ended(&bad, |pod| is_failed(pod, spec));
        let counted = new_bad.iter().filter(|pod| failure_meaning(spec, pod) != FailureMeaning::Ignored).count();
        view.succeeded = view.status.succeeded.unwrap_or_default().saturating_add(count(new_good.len() + good.len()));
        view.failed = view.status.failed.unwrap_or_default().saturating_add(count(counted + bad.len()));
        view.back_off = back_off.after(&new_good, &new_bad);
        view
    }

    /// The UIDs of pods that have ended and that the counters of the status do not include yet.
    pub(super) fn uncounted(&self, succeeded: bool) -> BTreeSet<String> {
        let Some(uncounted) = &self.status.uncounted_terminated_pods else { return BTreeSet::new() };
        let list = if succeeded { &uncounted.succeeded } else { &uncounted.failed };
        list.iter().flatten().cloned().collect()
    }

    /// The pods that the status does not know yet, of those that a filter wants (`getValidPodsWithFilter`).
    pub(super) fn ended(&self, known: &BTreeSet<String>, filter: impl Fn(&Pod) -> bool) -> Vec<&'a Pod> {
        let is_new = |pod: &&Pod| is_tracked(pod) && pod.metadata.uid.as_ref().is_none_or(|uid| !known.contains(uid));
        let has_index = |pod: &&Pod| !self.is_indexed() || self.valid_index(pod).is_some();
        self.pods.iter().map(|pod| &***pod).filter(is_new).filter(has_index).filter(|pod| filter(pod)).collect()
    }

    /// Whether the Job has an index for each completion.
    pub(super) fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// The number of completions of an Indexed Job.
    pub(super) fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or_default()
    }

    /// The index of a pod if the Job has it.
    pub(super) fn valid_index(&self, pod: &Pod) -> Option<i32> {
        index_of(pod).filter(|index| *index < self.completions())
    }

    /// Whether failures are limited for each index.
    pub(super) fn has_index_limit(&self) -> bool {
        self.spec.backoff_limit_per_index.is_some()
    }

    /// Whether the Job is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// The Job as an object.
    pub(super) fn object(&self) -> SimObject {
        SimObject::Job(Arc::clone(self.job))
    }

    /// Finds out which indexes have succeeded and failed.
    pub(super) fn count_indexes(&mut self) {
        let completions = self.completions();
        let known = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions);
        let tracked = |filter: &dyn Fn(&Pod) -> bool| {
            let pods = self.pods.iter().map(|pod| &***pod).filter(|pod| is_tracked(pod) && filter(pod));
            pods.filter_map(|pod| self.valid_index(pod)).collect::<BTreeSet<i32>>()
        };
        let succeeded = tracked(&|pod| phase(pod) == "Succeeded");
        let failed = tracked(&|pod| self.has_index_failed(pod));
        self.known_indexes = known(&self.status.completed_indexes);
        self.succeeded_indexes = self.known_indexes.with(&succeeded);
        self.succeeded = self.succeeded_indexes.total();
        if self.has_index_limit() {
            self.failed_indexes = Some(known(&self.status.failed_indexes).with(&failed));
            self.replaced = self.last_failed_pods();
        }
    }

    /// Whether the failure of a pod is the last one that its index may have (`isIndexFailed`).
    fn has_index_failed(&self, pod: &Pod) -> bool {
        if !is_failed(pod, self.spec) {
            return false;
        }
        let is_over = || failures_before(pod).0 >= self.spec.backoff_limit_per_index.unwrap_or_default();
        match failure_meaning(self.spec, pod) {
            FailureMeaning::FailsIndex => true,
            FailureMeaning::Ignored => false,
            FailureMeaning::Counts | FailureMeaning::FailsJob(_) => is_over(),
        }
    }

    /// `getPodsWithDelayedDeletionPerIndex`.
    fn last_failed_pods(&self) -> BTreeMap<i32, &'a Pod> {
        let active = indexes_of(self.active.iter().copied());
        let has_failed = |index: i32| self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index));
        let mut last: BTreeMap<i32, &'a Pod> = BTreeMap::new();
        for pod in self.ended(&BTreeSet::new(), |pod| is_failed(pod, self.spec)) {
            let Some(index) = self.valid_index(pod) else { continue };
            if self.succeeded_indexes.contains(index) || has_failed(index) || active.contains(&index) {
                continue;
            }
            let is_later = |other: &&Pod| {
                all_failures_before(other) <= all_failures_before(pod) && finished_at(pod) >= finished_at(other)
            };
            if last.get(&index).is_none_or(is_later) {
                last.insert(index, pod);
            }
        }
        last
    }

    /// Writes the status as it is now.
    pub(super) fn write_status(&mut self) {
        let mut job = Job::clone(self.job);
        job.metadata.resource_version = None;
        job.status = Some(self.status.clone());
        self.writes.push(Write::Status(job.into()));
    }
}

/// How often the index of a pod had failed when the pod was created: counted failures, and ignored ones.
fn failures_before(pod: &Pod) -> (i32, i32) {
    let number = |name: &str| {
        let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        text.and_then(|text| text.parse::<i32>().ok()).filter(|number| *number >= 0).unwrap_or_default()
    };
    (number(FAILURES), number(IGNORED_FAILURES))
}

/// All failures of the index before the pod.
pub(super) fn all_failures_before(pod: &Pod) -> u32 {
    let (counted, ignored) = failures_before(pod);
    u32::try_from(counted.saturating_add(ignored)).unwrap_or_default()
}

/// The annotations of the pod that replaces another one of its index (`addIndexFailureCountAnnotation`).
pub(super) fn failure_annotations(spec: &JobSpec, replaced: Option<&Pod>) -> Vec<(String, String)> {
    let (mut counted, mut ignored) = replaced.map(failures_before).unwrap_or_default();
    if let Some(pod) = replaced {
        let number = if failure_meaning(spec, pod) == FailureMeaning::Ignored { &mut ignored } else { &mut counted };
        *number += 1;
    }
    let annotations = [(FAILURES, counted), (IGNORED_FAILURES, ignored)];
    let kept = annotations.into_iter().filter(|(name, number)| *name == FAILURES || *number > 0);
    kept.map(|(name, number)| (name.to_owned(), number.to_string())).collect()
}
