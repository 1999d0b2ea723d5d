//! How a Job has ended (`pkg/controller/job/util`).

use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition with which a Job has succeeded or failed (`FinishedCondition`).
pub(super) fn end_of(job: &Job) -> Option<&JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")
}

/// Whether a Job has succeeded or failed.
pub(super) fn is_finished(job: &Job) -> bool {
    end_of(job).is_some()
}
