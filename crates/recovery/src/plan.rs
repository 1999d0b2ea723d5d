//! Which pods and volumes a recovery releases from a node, and what it leaves alone.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use stead_model::{
    ModelError, NodeHealth, OUT_OF_SERVICE, Objects, PodController, PodView, PodVolume, attachments_on, pod_volumes,
};

use crate::annotation::{self, RecoveryAnnotation};
use crate::policy::RecoveryPolicy;
use crate::record::{AddedTolerations, EvidenceKind, LeftAlone, PlannedPod, RecoveryPlan, ReplacementTarget};
use crate::record_size::LISTED_ENDED_PODS;
use crate::replacement::Replacements;
use crate::tolerations::{self, tolerates_forever};

/// The prefixes of the taints by which Kubernetes and clouds report the state of a node.
const STATE_TAINTS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is no such node.
    #[error("node {0}: not found")]
    NoSuchNode(String),
    /// An object is malformed.
    #[error(transparent)]
    Malformed(#[from] ModelError),
    /// A pod would be removed whose replacement no node can run.
    #[error(
        "pod {pod}: it is Terminating, so that the taint would remove it at once, and no node can run its replacement: {why}; \
         make room first, or allow it (allowPending)"
    )]
    NoNodeForReplacement {
        /// The pod.
        pod: String,
        /// Why no node can run its replacement.
        why: String,
    },
    /// The evidence does not prove that something has stopped which the taint would remove.
    #[error("{what}: the evidence ({kind:?}) does not prove that it has stopped, and the taint would remove it")]
    NotProven {
        /// What.
        what: String,
        /// The kind of the evidence.
        kind: EvidenceKind,
    },
}

/// What a recovery of the node would do: every pod on it is either released or left alone.
pub fn plan(objects: &Objects, node: &str, policy: &RecoveryPolicy) -> Result<RecoveryPlan, PlanError> {
    let health = objects.node_health(node)?.ok_or_else(|| PlanError::NoSuchNode(node.into()))?;
    let plan = Planner { objects, node: &health, policy, taints: tolerations::evicting_taints(&health) }.plan()?;
    // A plan that leaves out a malformed pod would be wrong.
    objects.check()?;
    Ok(plan)
}

struct Planner<'a> {
    objects: &'a Objects,
    node: &'a NodeHealth<'a>,
    policy: &'a RecoveryPolicy,
    /// The taints that evict pods once the node is out of service.
    taints: Vec<Taint>,
}

impl Planner<'_> {
    fn plan(self) -> Result<RecoveryPlan, PlanError> {
        let mut plan = RecoveryPlan::default();
        let (own, mut candidates): (Vec<PodView<'_>>, Vec<PodView<'_>>) =
            self.objects.pods_on(self.node.name()).partition(|pod| why_not_concerned(self.objects, *pod).is_some());
        self.leave_own_pods(own, &mut plan);
        candidates.sort_by_key(|pod| (urgency(*pod), pod.namespace(), pod.name()));
        let mut replacements = Replacements::new(self.objects, self.node);
        for pod in candidates {
            let volumes = pod_volumes(self.objects, pod);
            let tolerates = tolerates_forever(pod.tolerations(), &[annotation::taint()]);
            let (target, feasible_nodes) = match self.why_stays(&volumes, tolerates) {
                Some(why) => (ReplacementTarget::NoNode(why), 0),
                None => replacements.target(pod)?,
            };
            if let ReplacementTarget::NoNode(why) = &target {
                if !pod.is_terminating() {
                    plan.left_alone.push(left_alone(pod, why.clone(), tolerations::needed(pod, &self.taints)));
                    continue;
                }
                if !self.policy.allow_pending {
                    return Err(PlanError::NoNodeForReplacement { pod: pod.full_name(), why: why.clone() });
                }
            }
            plan.pods.push(PlannedPod { target, feasible_nodes, tolerates, ..planned(pod, &volumes) });
        }
        self.add_volumes(&mut plan);
        self.name_foreign_taints(&mut plan);
        Ok(plan)
    }

    /// Pods that belong to the node, or have ended, are left alone.
    fn leave_own_pods(&self, pods: Vec<PodView<'_>>, plan: &mut RecoveryPlan) {
        let mut ended: usize = 0;
        for pod in pods {
            let Some(why) = why_not_concerned(self.objects, pod) else { continue };
            let mut left = left_alone(pod, why, None);
            // A DaemonSet decides by its template whether a pod may stay on a node (NodeShouldRunDaemonPod in
            // pkg/controller/daemon): tolerations of the pod do not keep it. Its attached volumes are detached with it.
            if !left.expendable && !tolerates_forever(pod.tolerations(), &self.taints) {
                left.why += "; the taint evicts it, and it is recreated when the taint is removed";
                left.expendable = !has_attached_volume(self.objects, pod);
            }
            ended += usize::from(pod.has_ended());
            if !pod.has_ended() || ended <= LISTED_ENDED_PODS {
                plan.left_alone.push(left);
            }
        }
        if let Some(more) = ended.checked_sub(LISTED_ENDED_PODS).filter(|more| *more > 0) {
            plan.left_alone.push(LeftAlone {
                what: format!("{more} more pods"),
                why: "they have ended".into(),
                expendable: true,
                ..LeftAlone::default()
            });
        }
    }

    /// Why a pod stays on the node, whatever the other nodes can run.
    fn why_stays(&self, volumes: &[PodVolume], tolerates: bool) -> Option<String> {
        if let Some(local) = volumes.iter().find(|volume| volume.is_local()) {
            let volume = local.volume.as_deref().unwrap_or("<none>");
            return Some(format!("claim {}: its volume {volume} exists on this node only", local.claim));
        }
        match (tolerates, self.policy.include_tolerating) {
            (true, false) => Some(format!("it tolerates {OUT_OF_SERVICE}")),
            (true, true) if !volumes.is_empty() => {
                Some(format!("it tolerates {OUT_OF_SERVICE}, so that its replacement could be scheduled to this node"))
            }
            _ => None,
        }
    }

    /// Which volumes are released: those of planned pods unless a pod that stays uses them too, and those that no pod on the
    /// node uses.
    fn add_volumes(&self, plan: &mut RecoveryPlan) {
        let planned: BTreeSet<&str> = plan.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let others = self.objects.pods_on(self.node.name()).filter(|pod| !planned.contains(uid(*pod)));
        let stays = others.filter(|pod| !pod.has_ended() && !pod.is_terminating());
        let used = stays.flat_map(|pod| pod_volumes(self.objects, pod));
        let kept: BTreeSet<String> = used.filter_map(|volume| volume.volume).collect();
        plan.pods.iter_mut().for_each(|pod| pod.volumes.retain(|volume| !kept.contains(volume)));
        let attachments = attachments_on(self.objects, self.node.name());
        let attached: BTreeSet<String> = attachments.into_iter().filter_map(|attachment| attachment.volume).collect();
        let released: BTreeSet<&String> = plan.pods.iter().flat_map(|pod| &pod.volumes).collect();
        let unused = attached.iter().filter(|volume| !released.contains(volume) && !kept.contains(*volume));
        plan.volumes = unused.cloned().collect();
    }

    /// Taints of others are not changed.
    fn name_foreign_taints(&self, plan: &mut RecoveryPlan) {
        let annotated = RecoveryAnnotation::of(self.node).is_some();
        for taint in self.node.taints() {
            let out_of_service = taint.key == OUT_OF_SERVICE;
            let of_state = STATE_TAINTS.iter().any(|prefix| taint.key.starts_with(prefix));
            let why = match (out_of_service, of_state) {
                (true, _) if annotated => continue,
                (true, _) => "somebody else applied it: Stead uses it, and does not remove it",
                (false, true) => continue,
                (false, false) => "Stead did not apply it",
            };
            let what = format!("taint {}", taint.key);
            plan.left_alone.push(LeftAlone { what, why: why.into(), ..LeftAlone::default() });
        }
    }
}

/// Why a recovery does not concern a pod: it belongs to the node, or has ended and blocks no replacement.
fn why_not_concerned(objects: &Objects, pod: PodView<'_>) -> Option<String> {
    let controller = PodController::of(objects, pod);
    if pod.is_mirror() || controller == PodController::Kubelet {
        return Some("static pod: it starts and stops with the machine".into());
    }
    if controller == PodController::DaemonSet {
        let set = pod.controller().map(|owner| owner.name.as_str()).unwrap_or_default();
        return Some(format!("it belongs to the node (DaemonSet {set})"));
    }
    // Its object cannot be removed without the node's kubelet, and these controllers create no other pod before.
    let blocks_replacement =
        pod.is_terminating() && matches!(controller, PodController::StatefulSet { .. } | PodController::Other { .. });
    (pod.has_ended() && !blocks_replacement).then(|| "it has ended".into())
}

/// What is released first: pods that others need to get their volumes, then pods of higher priority.
fn urgency(pod: PodView<'_>) -> (bool, i32) {
    let spec = pod.spec();
    let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
    let critical = class.is_some_and(|class| class.starts_with("system-"));
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let attaches = containers.iter().any(|container| {
        let texts = [container.name.as_str(), container.image.as_deref().unwrap_or_default()];
        texts.iter().any(|text| text.contains("csi-attacher") || text.contains("csi-provisioner"))
    });
    (!(critical || attaches), -pod.priority())
}

/// A planned pod whose target is not known yet.
fn planned(pod: PodView<'_>, volumes: &[PodVolume]) -> PlannedPod {
    PlannedPod {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        uid: uid(pod).into(),
        owner: pod.controller().map(|owner| format!("{}/{}", owner.kind, owner.name)),
        volumes: volumes.iter().filter(|v| v.needs_attach).filter_map(|v| v.volume.clone()).collect(),
        terminating: pod.is_terminating(),
        target: ReplacementTarget::NotRecreated,
        feasible_nodes: 0,
        tolerates: false,
        released_earlier: false,
    }
}

/// A pod that is left alone.
pub(crate) fn left_alone(pod: PodView<'_>, why: String, added_tolerations: Option<AddedTolerations>) -> LeftAlone {
    LeftAlone {
        what: format!("pod {}", pod.full_name()),
        why,
        uid: Some(uid(pod).into()),
        added_tolerations,
        expendable: pod.has_ended() || pod.is_mirror(),
    }
}

/// Whether a pod has a volume that is attached to its node.
pub(crate) fn has_attached_volume(objects: &Objects, pod: PodView<'_>) -> bool {
    pod_volumes(objects, pod).iter().any(|volume| volume.needs_attach)
}

/// The UID of a pod, which every pod of an API server has.
pub(crate) fn uid(pod: PodView<'_>) -> &str {
    pod.uid().unwrap_or_default()
}
