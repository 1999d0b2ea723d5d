//! Every way out of an outage: when the pod would be Ready, where, and what can go wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde::Serialize;
use stead_forecast::{Forecaster, Intervention, Outlook, Run};
use stead_model::{
    ModelError, OUT_OF_SERVICE, ObjectKey, Objects, PodView, PodVolume, deployment_of, pod_volumes, same_workload,
};
use stead_placement::Cluster;

use super::holders::holders;
use super::never::why_never;
use super::node::health;
use super::risk::{commands, risk};
use super::timers::Clock;
use super::way::{Outcome, Step, Way};
use crate::suggested_command::SuggestedCommand;

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

/// Whether a Deployment ends old pods before it starts new ones.
pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

/// An option that is tried.
pub(super) struct Attempt<'a> {
    pub(super) objects: &'a Objects,
    pub(super) clock: &'a Clock,
    pub(super) scene: &'a Scene,
    pub(super) way: Way,
}

impl Attempt<'_> {
    /// What the option changes. `namespace` is that of the Deployment.
    pub(super) fn intervention(&self, namespace: &str) -> Intervention {
        let node = || self.scene.node.clone().unwrap_or_default();
        match self.way {
            Way::DoNothing => Intervention::Nothing,
            Way::NodeReturns => Intervention::ReturnNode(node()),
            Way::ForceDeletePod => Intervention::ForceDelete(self.scene.lost.clone()),
            Way::DeleteNode => Intervention::DeleteNode(node()),
            Way::OutOfService => Intervention::OutOfService(node()),
            Way::RecreateStrategy => {
                Intervention::Recreate(namespace.to_owned(), self.scene.deployment.clone().unwrap_or_default())
            }
        }
    }

    /// What becomes of one of the pods of a run, in words.
    pub(super) fn outcome(&self, run: &Run, outlook: &Outlook, pod: PodView) -> Outcome {
        Outcome::of(outlook, self.clock.now, || why_never(self, run, outlook, pod))
    }
}

/// What becomes of a cluster, as it is now, and with each option.
pub(crate) struct Future<'a> {
    forecaster: Forecaster<'a>,
    /// What happens if nobody does anything.
    pub(crate) undisturbed: Run,
}

impl<'a> Future<'a> {
    /// What becomes of these pods. `cluster` is what the objects make.
    pub(crate) fn of(
        objects: &'a Objects,
        clock: &Clock,
        cluster: &Cluster,
        pods: &[PodView],
    ) -> Result<Future<'a>, ModelError> {
        let forecaster = Forecaster::new(objects, clock, cluster, pods)?;
        let undisturbed = forecaster.run(&Intervention::Nothing, pods);
        Ok(Future { forecaster, undisturbed })
    }

    /// What becomes of the same pods with an option.
    pub(super) fn with(&self, intervention: &Intervention, pods: &[PodView]) -> Run {
        self.forecaster.run(intervention, pods)
    }

    /// When the deletion of a pod is requested if nobody does anything, or was.
    pub(crate) fn evicted(&self, pod: PodView) -> Option<Timestamp> {
        pod.deletion_requested().or_else(|| self.undisturbed.deleted.get(pod.key()).copied())
    }
}

/// What each way leads to, for a pod.
pub(crate) fn forecasts(
    objects: &Objects,
    clock: &Clock,
    future: &Future,
    pod: PodView,
    scene: &Scene,
) -> Vec<Forecast> {
    let forecast = |way| {
        let attempt = Attempt { objects, clock, scene, way };
        let tried = (way != Way::DoNothing).then(|| future.with(&attempt.intervention(pod.namespace()), &[pod]));
        let run = tried.as_ref().unwrap_or(&future.undisturbed);
        let outlook = run.outlooks.first()?;
        let outcome = attempt.outcome(run, outlook, pod);
        let mut risk = risk(&attempt, run, &[pod]);
        risk.extend(outcome.doubt.map(|doubt| format!("; {doubt}")));
        Some(Forecast {
            way,
            ready_at: outcome.ready_at,
            nodes: outcome.nodes,
            risk,
            // Nobody should do what does not bring the pod back.
            commands: outcome.ready_at.map(|_| commands(way, scene, pod.namespace())).unwrap_or_default(),
            steps: outcome.steps,
            unknown: outcome.unknown,
        })
    };
    scene.ways(objects, clock).into_iter().filter_map(forecast).collect()
}
