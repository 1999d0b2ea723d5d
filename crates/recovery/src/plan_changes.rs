//! How a plan follows from an earlier one of the same boot, and from evidence for some pods only.

use std::collections::BTreeSet;

use stead_model::{NodeHealth, Objects};

use crate::plan::{PlanError, has_attached_volume, left_alone, uid};
use crate::record::{AddedTolerations, Evidence, PlannedPod, RecoveryPlan};
use crate::tolerations::{self, tolerates_forever};

/// A plan that is made after another one of the same boot: what was released stays released. The volumes of released pods
/// are volumes of the node, unless another pod uses them by now. While the earlier plan is being carried out (`in_progress`),
/// a pod with added tolerations keeps them to the end.
pub(crate) fn carry_over(
    mut plan: RecoveryPlan,
    before: &RecoveryPlan,
    released: impl Iterator<Item = PlannedPod>,
    in_progress: bool,
) -> RecoveryPlan {
    plan.pods.extend(released.map(|pod| PlannedPod { released_earlier: true, volumes: Vec::new(), ..pod }));
    for known in before.left_alone.iter().filter(|known| known.uid.is_some() && known.added_tolerations.is_some()) {
        let is_it = |pod: &PlannedPod| in_progress && Some(&pod.uid) == known.uid.as_ref() && !pod.terminating;
        let planned = plan.pods.iter().position(is_it);
        if let Some(pod) = planned.map(|at| plan.pods.remove(at)) {
            for other in &mut plan.pods {
                other.volumes.retain(|volume| !pod.volumes.contains(volume));
            }
            plan.left_alone.push(known.clone());
        } else if let Some(left) = plan.left_alone.iter_mut().find(|left| left.uid == known.uid) {
            let newest = left.added_tolerations.take().or(known.added_tolerations.clone());
            let after = newest.map(|added| added.after).unwrap_or_default();
            left.added_tolerations = known.added_tolerations.clone().map(|added| AddedTolerations { after, ..added });
            left.why.clone_from(&known.why);
        }
    }
    plan
}

/// The plan for a recovery whose evidence covers some pods only: the other pods stay. An error if that is not possible.
pub(crate) fn restrict_to_evidence(
    objects: &Objects,
    node: &NodeHealth<'_>,
    plan: RecoveryPlan,
    evidence: &Evidence,
) -> Result<RecoveryPlan, PlanError> {
    if evidence.pods.is_none() {
        return Ok(plan);
    }
    let not_proven = |what: String| PlanError::NotProven { what, kind: evidence.kind };
    let taints = tolerations::evicting_taints(node);
    let (proven, others): (Vec<_>, Vec<_>) = plan.pods.into_iter().partition(|pod| evidence.covers(&pod.uid));
    let mut plan = RecoveryPlan { pods: proven, ..plan };
    for pod in objects.pods_on(node.name()) {
        let what = format!("pod {}", pod.full_name());
        if others.iter().any(|other| other.uid == uid(pod)) {
            if pod.is_terminating() {
                return Err(not_proven(what));
            }
            let why = format!("the evidence ({:?}) does not prove that it has stopped", evidence.kind);
            plan.left_alone.push(left_alone(pod, why, tolerations::needed(pod, &taints)));
        }
        // The taint evicts pods that belong to the node, and nothing can keep them.
        let kept = plan
            .left_alone
            .iter()
            .any(|left| left.uid.as_deref() == Some(uid(pod)) && left.added_tolerations.is_none());
        let evicted = kept && !tolerates_forever(pod.tolerations(), &taints) && !pod.has_ended();
        if evicted && has_attached_volume(objects, pod) {
            return Err(not_proven(what));
        }
    }
    let kept: BTreeSet<String> = others.iter().flat_map(|pod| pod.volumes.clone()).collect();
    plan.pods.iter_mut().for_each(|pod| pod.volumes.retain(|volume| !kept.contains(volume)));
    match plan.volumes.first() {
        Some(volume) => Err(not_proven(format!("whatever uses volume {volume}"))),
        None => Ok(plan),
    }
}
