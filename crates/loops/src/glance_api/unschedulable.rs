//! Pods that cannot be scheduled: the scheduler's reason, and the best fix.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use stead_explain::explain_placement;
use stead_model::{GlanceApi, ObjectKey, Objects, placement_kinds};

use crate::metadata::{is_deleting, label, name, namespace, uid};
use crate::step::World;

/// What is reported about the unschedulable pods of a GlanceAPI.
pub(crate) struct Unschedulable {
    pub(crate) message: String,
    /// The same without a fix, which may change from minute to minute.
    pub(crate) reason: String,
    /// Whether a fix can be found only with the whole cluster.
    pub(crate) wants_cluster: bool,
    /// When to run again: other changes in the cluster may make a fix possible, and do not trigger the loop.
    pub(crate) again: Duration,
}

/// How often a fix is searched while pods cannot be scheduled.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// When to search again if the cluster was read before the pod was pending.
const SEARCH_SOON: Duration = Duration::from_secs(3);

/// None where every pod is scheduled.
pub(crate) fn unschedulable(world: &World<'_>, api: &GlanceApi) -> Option<Unschedulable> {
    let pods: Vec<(&Pod, &str)> = world
        .store
        .all_in::<Pod>(namespace(&api.metadata))
        .filter(|pod| label(&pod.metadata, "owner") == Some(name(&api.metadata)) && is_pending(pod))
        .filter_map(|pod| Some((pod, unschedulable_message(pod)?)))
        .collect();
    let (first, reason) = *pods.first()?;
    let others = match pods.len() {
        1 => String::new(),
        2 => " (and one more pod)".to_owned(),
        n => format!(" (and {} more pods)", n - 1),
    };
    let (pod_name, space) = (name(&first.metadata), namespace(&first.metadata));
    let key = ObjectKey::pod(space, pod_name);
    let fix = world.cluster.and_then(|cluster| {
        let kinds: BTreeSet<String> = placement_kinds().map(|k| k.kind.to_owned()).collect();
        let explanation = explain_placement(cluster, &key, &kinds).ok()?;
        explanation.fixes.into_iter().next().map(|fix| format!(" Possible fix: {}.", fix.text))
    });
    let reason = format!("{pod_name}{others}: {reason}");
    let message = format!("{reason}{} See: stead explain pod/{pod_name} -n {space}", fix.unwrap_or_default());
    let is_in = |cluster: &Objects| {
        let pod: Option<&Pod> = cluster.find(space, pod_name);
        pod.is_some_and(|pod| is_pending(pod) && uid(&pod.metadata) == uid(&first.metadata))
    };
    let again = if world.cluster.is_some_and(is_in) { SEARCH_INTERVAL } else { SEARCH_SOON };
    Some(Unschedulable { message, reason, wants_cluster: world.cluster.is_none(), again })
}

/// Whether a pod has no node yet.
fn is_pending(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_none_or(str::is_empty) && !is_deleting(&pod.metadata)
}

/// The scheduler's message about a pod that it could not schedule.
fn unschedulable_message(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| scheduled.message.as_deref().unwrap_or_default())
}
