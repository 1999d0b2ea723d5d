//! Every way out of an outage: when the pod would be Ready, where, and what can go wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use stead_placement::Cluster;

use super::course::{Course, PATIENCE};
use super::detaching::holders;
use super::node::health;
use super::risk::{commands, risk};
use super::rollout::is_recreate;
use super::timers::Clock;
use super::way::{Outcome, Step, Way};
use crate::suggested_command::SuggestedCommand;
use stead_model::{
    ModelError, OUT_OF_SERVICE, ObjectKey, Objects, PodView, PodVolume, VolumeAttachmentView, deployment_of,
    pod_volumes, replacement_of, same_workload,
};

/// What a way leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The way.
    pub way: Way,
    /// When the pod, or the one in its place, would be Ready; none for never.
    pub ready_at: Option<Timestamp>,
    /// Where it may go, the likeliest first.
    pub nodes: Vec<String>,
    /// What can go wrong.
    pub risk: String,
    /// What to type.
    pub commands: Vec<SuggestedCommand>,
    /// The moments on the way; the last is Ready, or what never comes.
    pub steps: Vec<Step>,
    /// Why it cannot be told whether the pod would ever be Ready; then there is no time, and it is not never either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What a pod's trouble is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scene {
    /// The node that is silent or gone.
    pub(crate) node: Option<String>,
    /// The pods on it that are in the way, and those that a kubelet should have ended; the pod itself, where it is one of
    /// them.
    pub(crate) lost: BTreeSet<ObjectKey>,
    /// Pods of the same Deployment that a rolling update keeps until the new one is Ready, which waits for them.
    pub(crate) locked: BTreeSet<ObjectKey>,
    /// The Deployment of those.
    pub(crate) deployment: Option<String>,
    /// Whether a volume of the pod is held elsewhere, or its driver fails to attach it.
    pub(crate) held: bool,
}

impl Scene {
    /// What a pod's trouble is about.
    pub(crate) fn of(objects: &Objects, clock: &Clock, pod: PodView) -> Scene {
        let mut scene = Scene::default();
        if let Some(node) = pod.node().filter(|n| is_lost(objects, clock, n)) {
            scene.node = Some(node.to_owned());
            scene.lost.insert(pod.key().clone());
            return scene;
        }
        let overdue = |pod: &PodView| pod.deletion_due().is_some_and(|due| due < clock.now);
        if pod.is_terminating() {
            scene.lost.extend(overdue(&pod).then(|| pod.key().clone()));
            return scene;
        }
        let volumes = pod_volumes(objects, pod);
        scene.held = volumes.iter().filter(|v| v.needs_attach).any(|v| {
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                v.attachments.iter().partition(|a| Some(a.node.as_str()) == pod.node());
            let refused = here.iter().any(|a| a.attach_error.is_some());
            !here.iter().any(|a| a.attached) && (refused || (!v.shared && !elsewhere.is_empty()))
        });
        let held = volumes.iter().filter(|v| v.is_exclusive());
        for (volume, there) in held.flat_map(|v| v.attachments.iter().map(move |a| (v, a.node.as_str()))) {
            if Some(there) == pod.node() {
                continue;
            }
            let by: Vec<PodView> = holders(objects, volume, there).filter(|h| h.key() != pod.key()).collect();
            if is_lost(objects, clock, there) {
                scene.node = Some(there.to_owned());
                scene.lost.extend(by.iter().map(|h| h.key().clone()));
                continue;
            }
            scene.lost.extend(by.iter().filter(|h| overdue(h)).map(|h| h.key().clone()));
            if let Some(name) = rolling(objects, pod) {
                let ours = by.iter().filter(|h| !h.is_terminating() && same_workload(objects, **h, pod));
                let others = ours.filter(|h| !h.is_sibling(pod)).map(|h| h.key().clone());
                scene.locked.extend(others);
                scene.deployment = (!scene.locked.is_empty()).then(|| name.to_owned()).or(scene.deployment);
            }
        }
        if scene.node.is_none() && pod.node().is_none() {
            // One that finds no node may wait for the return of the one that its predecessor is on.
            let before = objects.pods_of_same_workload(pod).filter(|p| p.is_terminating());
            for old in before.filter(|p| p.node().is_some_and(|n| is_lost(objects, clock, n))) {
                scene.node = scene.node.or_else(|| old.node().map(str::to_owned));
                scene.lost.extend((scene.node.as_deref() == old.node()).then(|| old.key().clone()));
            }
            // Or for that of one which alone has its volume.
            scene.node = scene.node.or_else(|| volumes.iter().find_map(|v| out_of_reach(objects, clock, v)));
        }
        scene
    }

    /// The options that apply, the safest first.
    pub(crate) fn ways(&self, objects: &Objects, clock: &Clock) -> Vec<Way> {
        let node = self.node.as_deref().and_then(|n| health(objects, n));
        let silent = node.as_ref().is_some_and(|n| n.is_unreachable(clock.leases));
        let tainted = node.is_some_and(|n| n.taint(OUT_OF_SERVICE).is_some());
        let all = [
            (Way::DoNothing, true),
            (Way::NodeReturns, silent),
            (Way::RecreateStrategy, self.deployment.is_some()),
            (Way::OutOfService, silent && !tainted),
            (Way::DeleteNode, silent),
            (Way::ForceDeletePod, !self.lost.is_empty()),
        ];
        all.into_iter().filter(|(_, applies)| *applies).map(|(way, _)| way).collect()
    }
}

/// Whether nothing is heard of a node, or it is not even there.
pub(crate) fn is_lost(objects: &Objects, clock: &Clock, node: &str) -> bool {
    health(objects, node).is_none_or(|n| n.is_unreachable(clock.leases))
}

/// A node that can use a volume, where nothing is heard of any that can.
fn out_of_reach(objects: &Objects, clock: &Clock, volume: &PodVolume) -> Option<String> {
    let nodes = volume.nodes(objects);
    let first = nodes.first().filter(|_| nodes.iter().all(|n| is_lost(objects, clock, n)))?;
    Some((*first).to_owned())
}

/// The pod's Deployment, where it starts new pods before it ends old ones.
fn rolling<'a>(objects: &'a Objects, pod: PodView<'a>) -> Option<&'a str> {
    let (name, object) = deployment_of(objects, pod)?;
    (!object.is_some_and(is_recreate)).then_some(name)
}

/// The node to which a volume of a pod cannot be attached though Kubernetes knows of nothing in the way, and what the driver
/// says: it goes on trying, but only somebody at the storage itself can help.
fn refused(objects: &Objects, clock: &Clock, pod: PodView) -> Option<(String, String)> {
    let long = |a: &VolumeAttachmentView| a.created.is_none_or(|at| clock.now.duration_since(at) > PATIENCE);
    pod_volumes(objects, pod).iter().find_map(|volume| match volume.attachments.as_slice() {
        [here] if !here.attached && Some(here.node.as_str()) == pod.node() && long(here) => {
            let (error, name) = (here.attach_error.as_ref()?, volume.name());
            let why = format!("volume {name} is not attached to {}: its driver reports {error:?}", here.node);
            Some((here.node.clone(), why))
        }
        _ => None,
    })
}

/// What each way leads to, for a pod. `cluster` is what the objects make.
pub(crate) fn forecasts(
    objects: &Objects,
    clock: &Clock,
    cluster: &Cluster,
    pod: PodView,
    scene: &Scene,
) -> Result<Vec<Forecast>, ModelError> {
    let refused = refused(objects, clock, replacement_of(objects, pod).unwrap_or(pod));
    let mut out = Vec::new();
    for way in scene.ways(objects, clock) {
        let targets = match way {
            Way::ForceDeletePod => scene.lost.clone(),
            Way::RecreateStrategy => scene.locked.clone(),
            _ => BTreeSet::new(),
        };
        let course = Course::new(objects, clock, cluster, way, scene.node.as_deref(), targets)?;
        let outcome = match (course.outcome(pod), &refused) {
            (outcome, Some((node, why))) if outcome.ready_at.is_some() && outcome.nodes == [node.as_str()] => {
                Outcome::default().never(why)
            }
            (outcome, _) => outcome,
        };
        let mut risk = risk(&course, scene, &[pod]);
        risk.extend(outcome.doubt.map(|doubt| format!("; {doubt}")));
        out.push(Forecast {
            way,
            ready_at: outcome.ready_at,
            nodes: outcome.nodes,
            risk,
            // Nobody should do what does not bring the pod back.
            commands: outcome.ready_at.map(|_| commands(way, scene, pod.namespace())).unwrap_or_default(),
            steps: outcome.steps,
            unknown: outcome.unknown,
        });
    }
    Ok(out)
}
