//! The node is back without a restart: what it ran before may still run.

use crate::close::close;
use crate::guard::Guard;
use crate::next_step::{NextStep, Wait};
use crate::progress;
use crate::recovery::Recovery;
use crate::refusal::Refusal;

/// Ends the recovery when the kubelet runs only pods of its own and has no released volume mounted.
pub(crate) fn check(recovery: &Recovery<'_>, released: bool) -> Result<NextStep, Refusal> {
    let Recovery { view, record, node, .. } = recovery;
    let name = node.name();
    if !view.guards.hold(Guard::RunningPods) {
        return close(recovery, &format!("node {name} is back"), released);
    }
    let Some(running) = view.running else {
        let wait = recovery.node_wait("back without a restart: asking its kubelet which pods it runs");
        return recovery.wait(vec![wait]).map(NextStep::asking_running);
    };
    // A pod with an object that nobody deletes is the node's own again. All others may be pods that were released.
    let left = progress::running_without_object(view.objects, name, running);
    if !left.is_empty() {
        let wait = |uid: &str| {
            let pod = record.spec.plan.pod(uid);
            let what = pod.map_or_else(|| "a deleted pod".into(), |pod| format!("pod {}", pod.full_name()));
            Wait { what, how: format!("UID {uid} still runs on node {name}, which is back") }
        };
        return recovery.wait(left.into_iter().map(wait).collect()).map(NextStep::asking_running);
    }
    let volumes = progress::released_but_in_use(view.objects, node, Some(&record.spec.plan));
    if !volumes.is_empty() && view.guards.hold(Guard::VolumesInUse) {
        return recovery.wait(vec![recovery.node_wait(still_mounted(&volumes))]).map(NextStep::asking_running);
    }
    close(recovery, &format!("node {name} is back and runs no released pod"), released)
}

/// What is waited for while released volumes are mounted.
pub(crate) fn still_mounted(volumes: &[String]) -> String {
    format!("released volumes are still mounted (status.volumesInUse): {}", volumes.join(", "))
}
