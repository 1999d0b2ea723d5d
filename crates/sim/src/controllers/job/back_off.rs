//! When a failed pod of a Job is replaced (`backoff_utils.go`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use stead_model::times::deletion;

use crate::pods::condition;
use crate::settings::ControllerTimers;

/// The failures of a Job since a pod of it last succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BackOffRecord {
    failures: u32,
    last: Option<Timestamp>,
}

impl BackOffRecord {
    /// The record after some more pods have ended.
    pub(super) fn after(self, succeeded: &[&Pod], failed: &[&Pod]) -> BackOffRecord {
        let Some(success) = succeeded.iter().map(|pod| finished_at(pod)).max() else {
            let failures = self.failures.saturating_add(u32::try_from(failed.len()).unwrap_or(u32::MAX));
            return BackOffRecord { failures, last: failed.iter().map(|pod| finished_at(pod)).max().or(self.last) };
        };
        let later: Vec<Timestamp> = failed.iter().map(|pod| finished_at(pod)).filter(|at| *at > success).collect();
        BackOffRecord { failures: u32::try_from(later.len()).unwrap_or(u32::MAX), last: later.into_iter().max() }
    }

    /// The record with as many failures as were counted.
    pub(super) fn at_least(self, failures: i32) -> BackOffRecord {
        BackOffRecord { failures: self.failures.max(u32::try_from(failures).unwrap_or_default()), ..self }
    }

    /// How long until the next pod is created.
    pub(super) fn left(self, timers: &ControllerTimers, now: Timestamp) -> SignedDuration {
        match self.last {
            Some(last) => left(timers, self.failures, last, now),
            None => SignedDuration::ZERO,
        }
    }
}

/// How long until a pod is created after so many failures.
pub(super) fn left(timers: &ControllerTimers, failures: u32, last: Timestamp, now: Timestamp) -> SignedDuration {
    if failures == 0 {
        return SignedDuration::ZERO;
    }
    let factor = 1_i32.checked_shl(failures - 1).filter(|factor| *factor > 0);
    let delay = factor.and_then(|factor| timers.job_backoff.checked_mul(factor)).unwrap_or(timers.job_backoff_max);
    (delay.min(timers.job_backoff_max) - now.duration_since(last)).max(SignedDuration::ZERO)
}

/// When a pod ended: when its last container did, else when it stopped being ready, else when its deletion was requested.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let not_ready = || condition(pod, "Ready").filter(|ready| ready.status == "False")?.last_transition_time.as_ref();
    let created = || pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    containers_finished_at(pod)
        .or_else(|| not_ready().map(|time| time.0))
        .or_else(|| deletion(&pod.metadata).map(|deletion| deletion.requested))
        .unwrap_or_else(created)
}

/// When the last container ended; none if one has not. Sidecars end after the other containers.
fn containers_finished_at(pod: &Pod) -> Option<Timestamp> {
    let ended = |status: &ContainerStatus| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|at| at.0);
    let status = pod.status.as_ref()?;
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> =
        init.filter(|container| container.restart_policy.as_deref() == Some("Always")).map(|it| it.name.as_str()).collect();
    let is_sidecar = |status: &&ContainerStatus| sidecars.contains(&status.name.as_str());
    let containers = status.container_statuses.iter().flatten();
    let times = containers.chain(status.init_container_statuses.iter().flatten().filter(is_sidecar)).map(ended);
    times.collect::<Option<Vec<Timestamp>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p", "creationTimestamp": at(1) },
            "spec": { "containers": [], "initContainers": [{ "name": "s", "restartPolicy": "Always" }] },
            "status": status }))
        .expect("a pod")
    }

    fn ended(second: i64) -> Pod {
        pod(json!({ "containerStatuses": [container("c", Some(second))] }))
    }

    fn container(name: &str, finished: Option<i64>) -> Value {
        let state = match finished {
            Some(second) => json!({ "terminated": { "exitCode": 1, "finishedAt": at(second) } }),
            None => json!({ "running": {} }),
        };
        json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
    }

    #[test]
    fn the_end_of_a_pod() {
        let not_ready = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at(9) }]);
        let two = json!([container("c", Some(5)), container("d", Some(7))]);
        let running = json!([container("c", Some(5)), container("d", None)]);
        for (status, expected) in [
            (json!({ "containerStatuses": two, "conditions": not_ready }), 7),
            (json!({ "containerStatuses": two, "initContainerStatuses": [container("s", Some(8))] }), 8),
            (json!({ "containerStatuses": running, "conditions": not_ready }), 9),
            (json!({ "conditions": not_ready }), 9),
            (json!({}), 1),
        ] {
            assert_eq!(finished_at(&pod(status.clone())), at(expected), "{status}");
        }
        let mut deleted = pod(json!({}));
        deleted.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(60)));
        deleted.metadata.deletion_grace_period_seconds = Some(30);
        assert_eq!(finished_at(&deleted), at(30));
    }

    #[test]
    fn failures_are_counted_since_the_last_success() {
        let before = BackOffRecord { failures: 2, last: Some(at(10)) };
        for (succeeded, failed, expected) in [
            (vec![], vec![], (2, Some(10))),
            (vec![], vec![30, 20], (4, Some(30))),
            (vec![40], vec![], (0, None)),
            (vec![40, 50], vec![45, 55, 60], (2, Some(60))),
            (vec![50], vec![50, 30], (0, None)),
        ] {
            let pods = |seconds: &[i64]| seconds.iter().map(|second| ended(*second)).collect::<Vec<Pod>>();
            let (good, bad) = (pods(&succeeded), pods(&failed));
            let record = before.after(&good.iter().collect::<Vec<_>>(), &bad.iter().collect::<Vec<_>>());
            let expected = BackOffRecord { failures: expected.0, last: expected.1.map(at) };
            assert_eq!(record, expected, "{succeeded:?} {failed:?}");
        }
    }

    #[test]
    fn the_delay_doubles_up_to_ten_minutes() {
        let timers = Settings::default().timers;
        for (failures, passed, expected) in
            [(0, 0, 0), (1, 0, 10), (2, 0, 20), (4, 0, 80), (4, 50, 30), (4, 90, 0), (7, 0, 600), (40, 0, 600)]
        {
            assert_eq!(left(&timers, failures, at(0), at(passed)).as_secs(), expected, "{failures} {passed}");
        }
    }
}
