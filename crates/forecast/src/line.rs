//! A pod and those that replace it, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use stead_model::{Objects, PodController, PodView, claim_of, controller_of, replacement_of};
use stead_sim::{Change, SimKey, SimType, Simulation, Store};

use crate::outlook::Milestone;

/// So often a replacement may fail in the same way before it is clear that the next will, too.
const SAME_AGAIN: usize = 8;

/// Who creates the next pod.
#[derive(Debug, Clone)]
struct Origin {
    owner: Option<OwnerReference>,
    /// The UID of the Deployment above.
    deployment: Option<String>,
    /// Whether the next pod has the name of this one.
    keeps_name: bool,
    /// The node that the pod belongs to.
    own_node: Option<String>,
}

/// A pod and those that replace it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The first pod.
    pub(crate) first: SimKey,
    origin: Origin,
    /// The pod that is followed, with its UID; none while the next is awaited.
    pub(crate) current: Option<(SimKey, Arc<str>)>,
    /// The last pod, even if it is on its way out.
    last: SimKey,
    pub(crate) milestones: Vec<(Timestamp, Milestone)>,
    /// When it became Ready.
    pub(crate) ready: Option<Timestamp>,
    /// When the run began.
    began: Timestamp,
    /// Since when the next pod is awaited.
    pub(crate) awaited: Option<Timestamp>,
    /// How many replacements were created.
    pub(crate) replacements: usize,
    /// When the replacements were created since anything else has changed that may help: the last ones.
    in_a_row: VecDeque<Timestamp>,
    /// Whether the current pod was created during the run.
    pub(crate) is_new: bool,
    /// Whether the current pod was put on a node that nothing is heard of.
    pub(crate) is_stranded: bool,
}

fn uid_of(pod: &Pod) -> Arc<str> {
    pod.metadata.uid.as_deref().unwrap_or_default().into()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

fn is_leaving(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the kubelet of a node is heard of.
pub(crate) fn is_connected(simulation: &Simulation, node: &str) -> bool {
    let machine = simulation.world().machine(node);
    machine.is_some_and(|machine| machine.state.reports() && machine.lease_phase <= simulation.now())
}

/// The PersistentVolumes of a pod.
pub(crate) fn volumes(store: &Store, pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let used = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = used.filter_map(|volume| claim_of(volume, name)).map(|(claim, _)| claim);
    let bound = claims.filter_map(|claim| store.get::<PersistentVolumeClaim>(namespace, &claim));
    bound.filter_map(|claim| claim.spec.as_ref()?.volume_name.clone()).collect()
}

impl Line {
    /// Follows a pod from now on.
    pub(crate) fn of(objects: &Objects, simulation: &Simulation, pod: PodView<'_>) -> Line {
        let controller = PodController::of(objects, pod);
        let first = SimKey::pod(pod.namespace(), pod.name());
        let store = simulation.store();
        let stored = store.at::<Pod>(&first);
        let owner = stored.and_then(|pod| controller_of(&pod.metadata)).or(pod.controller()).cloned();
        let set = owner.as_ref().and_then(|owner| store.get::<ReplicaSet>(pod.namespace(), &owner.name));
        let deployment = set.and_then(|set| controller_of(&set.metadata)).map(|owner| owner.uid.clone());
        let mut line = Line {
            origin: Origin {
                owner,
                deployment,
                keeps_name: controller.keeps_name(),
                own_node: pod.node().filter(|_| controller.stays_on_node()).map(str::to_owned),
            },
            current: None,
            last: first.clone(),
            first,
            milestones: Vec::new(),
            ready: None,
            began: simulation.now(),
            awaited: Some(simulation.now()),
            replacements: 0,
            in_a_row: VecDeque::new(),
            is_new: false,
            is_stranded: false,
        };
        let leaving = pod.is_terminating() || pod.has_ended();
        let next = if leaving { replacement_of(objects, pod) } else { Some(pod) };
        if let Some(next) = next {
            if leaving {
                let at = next.created().unwrap_or(simulation.now());
                line.milestones.push((at, Milestone::ReplacedBefore(next.name().to_owned())));
            }
            let key = SimKey::pod(next.namespace(), next.name());
            let uid = store.at::<Pod>(&key).map_or_else(|| next.uid().unwrap_or_default().into(), |pod| uid_of(pod));
            line.follow(key, uid);
        } else if let Some(requested) = pod.deletion_requested() {
            line.milestones.push((requested, Milestone::DeletionRequested(pod.name().to_owned())));
        }
        line
    }

    fn follow(&mut self, pod: SimKey, uid: Arc<str>) {
        self.last = pod.clone();
        self.current = Some((pod, uid));
        self.awaited = None;
        self.is_stranded = false;
    }

    /// The pod that is followed, if it exists.
    pub(crate) fn pod<'a>(&self, store: &'a Store) -> Option<&'a Arc<Pod>> {
        let (key, uid) = self.current.as_ref()?;
        store.at::<Pod>(key).filter(|pod| pod.metadata.uid.as_deref().unwrap_or_default() == &**uid)
    }

    /// The last pod of the line that exists, even if it is on its way out.
    pub(crate) fn last_pod(&self, store: &Store) -> Option<SimKey> {
        self.pod(store).map(|_| self.last.clone()).or_else(|| store.object(&self.last).map(|_| self.last.clone()))
    }

    /// The controller that creates the next pod.
    pub(crate) fn owner(&self) -> Option<&OwnerReference> {
        self.origin.owner.as_ref()
    }

    /// The pods of the same StatefulSet before the one that is awaited.
    pub(crate) fn predecessors<'a>(&'a self, store: &'a Store) -> impl Iterator<Item = &'a Arc<Pod>> {
        let owner = self.origin.owner.as_ref().filter(|owner| owner.kind == "StatefulSet");
        let own = ordinal(&self.first.name);
        let pods = owner.into_iter().flat_map(|owner| store.all_owned_by::<Pod>(&owner.uid));
        pods.filter(move |pod| ordinal(pod.metadata.name.as_deref().unwrap_or_default()) < own)
    }

    /// Whether the same happens to one replacement after the other.
    pub(crate) fn goes_in_circles(&self) -> bool {
        self.in_a_row.len() >= SAME_AGAIN
    }

    /// Whether that happened within this time until now.
    pub(crate) fn circles_since(&self, now: Timestamp, time: SignedDuration) -> bool {
        let first = self.in_a_row.front().filter(|_| self.goes_in_circles());
        first.is_some_and(|first| now.duration_since(*first) <= time)
    }

    /// Something has changed that may help the next replacement.
    pub(crate) fn count_anew(&mut self) {
        self.in_a_row.clear();
    }

    /// Whether a change is one of the pod that is followed, or of the last one.
    pub(crate) fn is_about(&self, change: &Change) -> bool {
        change.key == self.last || self.current.as_ref().is_some_and(|(key, _)| *key == change.key)
    }

    /// Whether a new pod is the one that is awaited.
    pub(crate) fn takes(&self, store: &Store, new: &Pod) -> bool {
        if self.awaited.is_none()
            || self.first.namespace.as_ref() != new.metadata.namespace.as_deref().unwrap_or_default()
        {
            return false;
        }
        let (Some(owner), Some(theirs)) = (&self.origin.owner, controller_of(&new.metadata)) else { return false };
        if let Some(node) = &self.origin.own_node {
            return owner.uid == theirs.uid && target_node(new) == Some(node.as_str());
        }
        if self.origin.keeps_name {
            return owner.uid == theirs.uid && new.metadata.name.as_deref() == Some(&*self.first.name);
        }
        let deployment = || {
            let set = store.get::<ReplicaSet>(&self.first.namespace, &theirs.name)?;
            controller_of(&set.metadata).map(|owner| owner.uid.clone())
        };
        owner.uid == theirs.uid || (self.origin.deployment.is_some() && deployment() == self.origin.deployment)
    }

    /// A new pod takes the place.
    pub(crate) fn replaced(&mut self, new: &Pod, at: Timestamp) {
        let key = SimKey::of(Pod::OBJECT_KIND, &new.metadata);
        self.milestones.push((at, Milestone::Created { again: self.replacements > 0 }));
        self.replacements += 1;
        self.in_a_row.push_back(at);
        if self.in_a_row.len() > SAME_AGAIN {
            self.in_a_row.pop_front();
        }
        self.is_new = true;
        self.follow(key, uid_of(new));
    }

    /// A pod of the line has changed.
    pub(crate) fn pod_changed(&mut self, simulation: &Simulation, change: &Change, at: Timestamp) {
        let (before, after) = change.of::<Pod>();
        if change.key == self.last && after.is_none() && self.awaited.is_some() && self.current.is_none() {
            self.milestones.push((at, Milestone::Gone(change.key.name.to_string())));
        }
        let followed =
            |pod: &Arc<Pod>| self.current.as_ref().is_some_and(|(key, uid)| *key == change.key && *uid == uid_of(pod));
        let Some(before) = before.filter(|pod| followed(pod)) else { return };
        let name = change.key.name.to_string();
        let Some(after) = after else {
            self.await_next(at);
            self.milestones.push((at, Milestone::Gone(name)));
            return;
        };
        if !is_leaving(before) && is_leaving(after) {
            let deleted = after.metadata.deletion_timestamp.is_some();
            if self.is_stranded && deleted {
                self.milestones.push((at, Milestone::EvictedThere));
            } else if deleted {
                self.milestones.push((at, Milestone::DeletionRequested(name)));
            }
            return self.await_next(at);
        }
        if let (None, Some(node)) = (node_of(before), node_of(after)) {
            self.is_stranded = !is_connected(simulation, node);
            let milestone = match self.is_stranded {
                true => Milestone::ScheduledToUnreachable(node.to_owned()),
                false => Milestone::Scheduled,
            };
            self.milestones.push((at, milestone));
        }
    }

    fn await_next(&mut self, at: Timestamp) {
        self.current = None;
        self.awaited = Some(at);
    }

    /// A volume was detached from a node.
    pub(crate) fn detached(&mut self, store: &Store, attachment: &VolumeAttachment, at: Timestamp) {
        let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() else { return };
        let pod = self.pod(store).or_else(|| store.at::<Pod>(&self.last));
        let node = &attachment.spec.node_name;
        if let Some(pod) = pod.filter(|pod| node_of(pod) != Some(node))
            && volumes(store, pod).iter().any(|own| own == volume)
        {
            self.milestones.push((at, Milestone::Detached { volume: volume.to_owned(), node: node.clone() }));
        }
    }

    /// Notes that the pod is Ready, if it is.
    pub(crate) fn check_ready(&mut self, simulation: &Simulation, returned: Option<&str>) {
        let Some(pod) = self.pod(simulation.store()).filter(|pod| !is_leaving(pod)) else { return };
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True");
        let Some(ready) = ready else { return };
        let Some(node) = node_of(pod).filter(|node| is_connected(simulation, node)) else { return };
        if simulation.store().get::<Node>("", node).is_none() {
            return;
        }
        if !self.is_new && returned == Some(node) {
            self.milestones.push((simulation.now(), Milestone::StillRuns(node.to_owned())));
        }
        // Before the run began, only the condition knows; it is exact to the second.
        let since = ready.last_transition_time.as_ref().map(|time| time.0).filter(|since| *since < self.began);
        self.ready = Some(since.filter(|_| simulation.now() == self.began).unwrap_or_else(|| simulation.now()));
    }
}

/// The ordinal of a StatefulSet's pod.
fn ordinal(name: &str) -> Option<u32> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// The node that a DaemonSet has made a pod for.
fn target_node(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == "metadata.name");
    named.next()?.values.as_ref()?.first().map(String::as_str)
}
