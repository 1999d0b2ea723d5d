//! Why a pod is never Ready, from what the cluster has come to at the end of a run.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use stead_forecast::{Outlook, Run, StartFailure};
use stead_model::{
    Objects, PodController, PodView, PodVolume, WorkloadView, deployment_of, not_recreated, pod_volumes,
};

use super::eviction::{self, Brake};
use super::forecast::{Attempt, is_recreate};
use super::holders::holders;
use super::node::health;
use super::way::Way;

/// A run in which a pod is never Ready.
pub(super) struct Ending<'a> {
    attempt: &'a Attempt<'a>,
    run: &'a Run,
    /// The pod that was asked about, as it was read.
    pod: PodView<'a>,
    /// The objects at the end.
    end: &'a Objects,
}

/// Why the pod of an outlook is never Ready.
pub(super) fn why_never(attempt: &Attempt, run: &Run, outlook: &Outlook, pod: PodView) -> String {
    let end = run.end_of(pod);
    let ending = Ending { attempt, run, pod, end: &end };
    let last = outlook.pod.as_ref().and_then(|key| end.pod(key).ok().flatten());
    match last {
        Some(last) if !last.is_terminating() && !last.has_ended() => ending.why_not_ready(last),
        last => ending.why_not_replaced(last),
    }
}

impl Ending<'_> {
    fn objects(&self) -> &Objects {
        self.attempt.objects
    }

    /// A pod that stays, and is not Ready.
    fn why_not_ready(&self, pod: PodView) -> String {
        let Some(node) = pod.node() else {
            let scheduled = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
            let message = scheduled.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
            return match message {
                "" => "no node can run it".to_owned(),
                message => format!("no node can run it: {message}"),
            };
        };
        if !self.run.is_connected(node) || !self.run.has_node(node) {
            // Pods of a dump may have no UIDs.
            let is_same = |read: PodView| read.uid().is_none_or(|uid| pod.uid() == Some(uid));
            let is_new = self.objects().pod(pod.key()).ok().flatten().is_none_or(|read| !is_same(read));
            return match is_new {
                true => format!("it is scheduled to {node}, which is {}", self.word(node)),
                false => self.why_it_stays(pod),
            };
        }
        // In the words of the cluster: the simulation only repeats that it fails.
        let read = self.objects().pod(pod.key()).ok().flatten();
        if let Some(why) = read.and_then(|read| failure(StartFailure::of_containers(read), read.name())) {
            return why;
        }
        if let Some(why) = self.why_volumes_are_missing(pod, read.unwrap_or(pod)) {
            return why;
        }
        let reported = read.and_then(|read| failure(StartFailure::of(self.objects(), read), read.name()));
        reported.unwrap_or_else(|| format!("pod {} does not become Ready on {node}", pod.name()))
    }

    /// What keeps the volumes of a pod from its node.
    fn why_volumes_are_missing(&self, pod: PodView, read: PodView) -> Option<String> {
        let volumes = pod_volumes(self.end, pod);
        let held = volumes.iter().filter(|volume| volume.is_exclusive()).find_map(|volume| {
            let elsewhere = volume.attachments.iter().find(|found| Some(found.node.as_str()) != pod.node())?;
            Some(self.why_it_stays_attached(pod, volume, &elsewhere.node))
        });
        held.or_else(|| {
            let read = pod_volumes(self.objects(), read);
            volumes.iter().chain(&read).find_map(|volume| {
                let here = |node: &str| Some(node) == pod.node();
                let found = volume.attachments.iter().find(|found| here(&found.node) && !found.attached)?;
                let error = found.attach_error.as_ref()?;
                Some(format!(
                    "volume {} is not attached to {}: its driver reports {error:?}",
                    volume.name(),
                    found.node
                ))
            })
        })
    }

    fn why_it_stays_attached(&self, pod: PodView, volume: &PodVolume, node: &str) -> String {
        let name = volume.name();
        let read = pod_volumes(self.objects(), self.pod);
        let attachments = volume.attachments.iter().chain(read.iter().flat_map(|volume| &volume.attachments));
        let mut errors = attachments.filter(|found| found.node == node).filter_map(|found| found.detach_error.as_ref());
        if let Some(error) = errors.next() {
            return format!("volume {name} is not detached from {node}: its driver reports {error:?}");
        }
        if let Some(holder) = holders(self.end, volume, node).find(|holder| holder.key() != pod.key()) {
            let why = self.why_it_stays(holder);
            return format!("volume {name} stays attached to {node}, because pod {} uses it: {why}", holder.name());
        }
        match self.run.is_connected(node) {
            true => {
                format!("volume {name} stays attached to {node}: its kubelet has not reported that it is unmounted")
            }
            false => format!(
                "volume {name} stays attached to {node}: it is still mounted there, and force-detach is disabled"
            ),
        }
    }

    /// Nobody has created a pod in the place of the last one, which may still be there.
    fn why_not_replaced(&self, last: Option<PodView>) -> String {
        let (objects, pod, name) = (self.objects(), self.pod, self.pod.name());
        if let Some(why) = not_recreated(objects, pod) {
            return format!("pod {name} will not be recreated: {why}");
        }
        let maker = PodController::of(objects, pod);
        match maker {
            PodController::None => return format!("pod {name} will not be recreated (no controller)"),
            PodController::Kubelet => return format!("pod {name} is a static pod: it runs on its own node only"),
            PodController::DaemonSet => {
                if let Some(node) = pod.node().filter(|node| !self.run.is_connected(node) || !self.run.has_node(node)) {
                    return format!("a DaemonSet's pod runs on its own node only, and that is {}", self.word(node));
                }
            }
            PodController::ReplicaSet { set: Some(set) } if !self.is_wanted(set) => return self.why_no_rollout(),
            PodController::Job { .. } if has_failed(self.end, pod) => {
                return "its Job has failed too often and ends".to_owned();
            }
            _ => {}
        }
        if let Some(last) = last {
            return self.why_it_stays(last);
        }
        let before = self.end.pods().filter(|other| other.is_sibling(pod) && other.ordinal() < pod.ordinal());
        match before.into_iter().find(|other| !other.is_ready() || other.is_terminating()) {
            Some(other) if maker.is_ordered() => {
                format!("its StatefulSet creates it only when pod {} is Ready, which never happens", other.name())
            }
            _ => format!("pod {name} is not recreated"),
        }
    }

    /// Whether a ReplicaSet wanted more pods when the pod was asked about.
    fn is_wanted(&self, set: WorkloadView) -> bool {
        let replicas = set.replicas().and_then(|replicas| usize::try_from(replicas).ok()).unwrap_or_default();
        let others = self.objects().pods_of_same_workload(self.pod);
        let counts = |other: &PodView| {
            other.is_sibling(self.pod)
                && other.name() != self.pod.name()
                && !other.is_terminating()
                && !other.has_ended()
        };
        others.filter(counts).count() < replicas
    }

    /// Why the Deployment of a ReplicaSet that wants no more pods creates none either.
    fn why_no_rollout(&self) -> String {
        let deployment = deployment_of(self.objects(), self.pod).and_then(|(_, deployment)| deployment);
        let is_old = |pod: &PodView| match PodController::of(self.end, *pod) {
            PodController::ReplicaSet { set: Some(set) } => set.replicas() == Some(0) && !pod.has_ended(),
            _ => false,
        };
        let old = deployment.filter(|deployment| is_recreate(deployment)).and_then(|_| self.end.pods().find(is_old));
        match old {
            Some(old) => format!(
                "its Deployment creates the next pod only when all old ones have ended, and {}",
                self.why_it_stays(old)
            ),
            None => format!("pod {} will not be recreated: its ReplicaSet wants no more pods", self.pod.name()),
        }
    }

    /// Why a pod that is in the way is still there at the end.
    fn why_it_stays(&self, pod: PodView) -> String {
        let (name, node) = (pod.name(), pod.node().unwrap_or_default());
        let maker = PodController::of(self.end, pod);
        let by_force = self.attempt.way == Way::ForceDeletePod && self.attempt.scene.lost.contains(pod.key());
        if by_force && matches!(maker, PodController::Job { job } if only_failed(job)) && pod.is_tracked_by_job() {
            return format!(
                "the object of pod {name} stays: its Job replaces only failed pods, and this one is not reported as failed"
            );
        }
        let held: Vec<&str> = pod.blocking_finalizers().collect();
        if !held.is_empty() && (by_force || !pod.needs_volumes()) {
            return format!("the object of pod {name} stays: finalizer {} is not removed", held.join(", "));
        }
        let is_alive = self.run.is_connected(node) && self.run.has_node(node);
        if !pod.is_terminating() {
            let standing = health(self.objects(), node);
            let brake = standing.and_then(|node| eviction::brake(self.objects(), self.attempt.clock, &node));
            return match brake {
                _ if is_alive => format!("pod {name} is not being deleted"),
                Some(Brake::AllDown) => {
                    "no node is ready, so Kubernetes evicts no pods: it assumes that the control plane is at fault"
                        .to_owned()
                }
                Some(Brake::ZoneDisturbed) => {
                    format!("most nodes of the zone of {node} are not ready, so Kubernetes evicts no pods there")
                }
                Some(Brake::NoRate) => "the eviction rate of the cluster is 0, so Kubernetes evicts no pods".to_owned(),
                None => format!("pod {name} tolerates the taints of {node} forever"),
            };
        }
        let who = if is_alive { "has not ended it" } else { "cannot confirm that it has ended" };
        let rule = match maker {
            PodController::StatefulSet { .. } if pod.name() == self.pod.name() => {
                ", and a StatefulSet never has two pods of one name"
            }
            _ => "",
        };
        format!("the object of pod {name} stays: the kubelet of {node} {who}{rule}")
    }

    /// How a lost node is, in a word.
    fn word(&self, node: &str) -> &'static str {
        if self.run.has_node(node) { "unreachable" } else { "gone" }
    }
}

/// Why a pod does not start, in words.
fn failure(failure: Option<StartFailure>, pod: &str) -> Option<String> {
    Some(match failure? {
        StartFailure::Container { name, reason, message } => {
            let message = message.map(|message| format!(": {message:?}")).unwrap_or_default();
            format!("container {name} of pod {pod} does not start: {reason}{message}")
        }
        StartFailure::Event { by, reason, message } => {
            format!("pod {pod} does not start: {by} reports {reason}: {message:?}")
        }
    })
}

fn spec(job: Option<&Job>) -> Option<&JobSpec> {
    job?.spec.as_ref()
}

/// Whether the Job of a pod has failed, or is about to.
fn has_failed(objects: &Objects, pod: PodView) -> bool {
    let job = pod.controller().and_then(|owner| objects.find::<Job>(pod.namespace(), &owner.name));
    let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|found| matches!(found.type_.as_str(), "Failed" | "FailureTarget") && found.status == "True")
}

/// Whether a Job replaces only pods that have failed, and not yet those that are being deleted (onlyReplaceFailedPods).
fn only_failed(job: Option<&Job>) -> bool {
    match spec(job).and_then(|spec| spec.pod_replacement_policy.as_deref()) {
        Some(policy) => policy == "Failed",
        None => spec(job).is_some_and(|spec| spec.pod_failure_policy.is_some()),
    }
}
