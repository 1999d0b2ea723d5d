//! The TTL-after-finished controller (`pkg/controller/ttlafterfinished`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use stead_model::times::seconds;

use super::job_end::end_of;
use crate::step::{Context, Controller, DeleteOptions, DeletePropagation, Item, Step, Wakes, Write};
use crate::store::Change;

/// What the component has in memory: nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobTtl {}

impl Controller for JobTtl {
    const COMPONENT: &'static str = "ttl-after-finished-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        if let (_, Some(job)) = change.of::<Job>()
            && expires_at(job).is_some()
        {
            wakes.now(change.key.clone());
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(job) = cx.store.at::<Job>(key) else { return Step::none() };
        let Some(expires) = expires_at(job) else { return Step::none() };
        let left = expires.duration_since(cx.now);
        if left > SignedDuration::ZERO {
            return Step::again(left);
        }
        let options = DeleteOptions {
            uid: job.metadata.uid.clone(),
            propagation: DeletePropagation::Foreground,
            ..DeleteOptions::default()
        };
        Step::writes(vec![Write::Delete(key.clone(), options)])
    }
}

/// When a Job is deleted: a while after its end. None if it has no end or no TTL, or is being deleted.
fn expires_at(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let end = end_of(job)?.last_transition_time.as_ref()?.0;
    job.metadata.deletion_timestamp.is_none().then(|| end + seconds(i64::from(ttl)))
}

#[cfg(test)]
mod tests {
    use super::super::alone::{Alone, START};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_finished_job_is_deleted_after_its_time() {
        for (ttl, end, deleted_at) in [
            (Some(10), Some("Complete"), Some(10)),
            (Some(0), Some("Failed"), Some(0)),
            (Some(10), None, None),
            (Some(10), Some("Suspended"), None),
            (None, Some("Complete"), None),
        ] {
            let mut cluster: Alone<JobTtl> = Alone::new();
            let key = cluster.create(json!({ "apiVersion": "batch/v1", "kind": "Job",
                "metadata": { "name": "j", "namespace": "n", "finalizers": ["test/held"] },
                "spec": { "ttlSecondsAfterFinished": ttl, "template": {} } }));
            let mut job = Job::clone(cluster.store().at::<Job>(&key).expect("a Job"));
            let since = crate::api::whole_seconds(START);
            let conditions = end.map(|end| json!([{ "type": end, "status": "True", "lastTransitionTime": since }]));
            job.status = Some(serde_json::from_value(json!({ "conditions": conditions })).expect("a status"));
            cluster.request(Write::Status(job.into())).expect("changed");
            let is_deleted = |cluster: &Alone<JobTtl>| !cluster.json(&key, "/metadata/deletionTimestamp").is_null();
            if let Some(seconds) = deleted_at {
                cluster.run(seconds * 1_000 - 10);
                assert!(!is_deleted(&cluster) || seconds == 0, "{ttl:?} {end:?}");
                cluster.run(20);
                let finalizers = cluster.json(&key, "/metadata/finalizers");
                assert_eq!(finalizers, json!(["test/held", "foregroundDeletion"]), "{ttl:?} {end:?}");
            }
            cluster.run(60_000);
            assert_eq!(is_deleted(&cluster), deleted_at.is_some(), "{ttl:?} {end:?}");
            assert_eq!(cluster.next_at(), None);
        }
    }
}
