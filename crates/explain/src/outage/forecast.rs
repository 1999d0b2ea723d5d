//! Every way out of an outage: when the pod would be Ready, where, and what can go wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use stead_placement::Cluster;

use super::course::Course;
use super::detaching::holders;
use super::makers::{deployment, same_workload};
use super::node::{NodeStanding, OUT_OF_SERVICE};
use super::pod::PodSeen;
use super::timers::Clock;
use super::volumes::volumes_of;
use super::way::{Step, Way};
use crate::objects::{ObjectError, ObjectKey, Objects};

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
    pub commands: Vec<String>,
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
    /// The pods on it that are in the way; the pod itself, where it is one of them.
    pub(crate) lost: BTreeSet<ObjectKey>,
    /// Pods of the same Deployment that a rolling update keeps until the new one is Ready, which waits for them.
    pub(crate) locked: BTreeSet<ObjectKey>,
    /// The Deployment of those.
    pub(crate) deployment: Option<String>,
}

impl Scene {
    /// What a pod's trouble is about.
    pub(crate) fn of(objects: &Objects, clock: &Clock, pod: PodSeen) -> Scene {
        let mut scene = Scene::default();
        if let Some(node) = pod.node().filter(|n| is_lost(objects, clock, n)) {
            scene.node = Some(node.to_owned());
            scene.lost.insert(pod.key());
            return scene;
        }
        if pod.due().is_some() {
            let overdue = pod.due().is_some_and(|due| due < clock.now);
            scene.lost.extend(overdue.then(|| pod.key()));
            return scene;
        }
        let volumes = volumes_of(objects, pod.namespace(), pod.0);
        let held = volumes.iter().filter(|v| v.attached && !v.shared);
        for (volume, there) in held.flat_map(|v| v.attachments.iter().map(move |a| (v, a.node.as_str()))) {
            if Some(there) == pod.node() {
                continue;
            }
            let by: Vec<PodSeen> = holders(objects, volume, there).filter(|h| h.key() != pod.key()).collect();
            if is_lost(objects, clock, there) {
                scene.node = Some(there.to_owned());
                scene.lost.extend(by.iter().map(|h| h.key()));
            } else if let Some(name) = rolling(objects, pod) {
                let ours = by.iter().filter(|h| h.due().is_none() && same_workload(objects, **h, pod));
                let others = ours.filter(|h| h.owner() != pod.owner()).map(|h| h.key());
                scene.locked.extend(others);
                scene.deployment = (!scene.locked.is_empty()).then(|| name.to_owned()).or(scene.deployment);
            }
        }
        if scene.node.is_none() && pod.node().is_none() {
            // One that finds no node may wait for the return of the one that its predecessor is on.
            let all = objects.of_kind("Pod").map(|(_, p)| PodSeen(p));
            let before = all.filter(|p| p.due().is_some() && same_workload(objects, *p, pod));
            for old in before.filter(|p| p.node().is_some_and(|n| is_lost(objects, clock, n))) {
                scene.node = scene.node.or_else(|| old.node().map(str::to_owned));
                scene.lost.extend((scene.node.as_deref() == old.node()).then(|| old.key()));
            }
        }
        scene
    }

    /// The ways that apply.
    pub(crate) fn ways(&self, objects: &Objects, clock: &Clock) -> Vec<Way> {
        let node = self.node.as_deref().and_then(|n| NodeStanding::find(objects, n));
        let silent = node.as_ref().is_some_and(|n| n.is_silent(clock.leases));
        let tainted = node.is_some_and(|n| n.taint(OUT_OF_SERVICE).is_some());
        let all = [
            (Way::DoNothing, true),
            (Way::NodeReturns, silent),
            (Way::ForceDeletePod, !self.lost.is_empty()),
            (Way::DeleteNode, silent),
            (Way::OutOfService, silent && !tainted),
            (Way::RecreateStrategy, self.deployment.is_some()),
        ];
        all.into_iter().filter(|(_, applies)| *applies).map(|(way, _)| way).collect()
    }
}

/// Whether nothing is heard of a node, or it is not even there.
pub(crate) fn is_lost(objects: &Objects, clock: &Clock, node: &str) -> bool {
    NodeStanding::find(objects, node).is_none_or(|n| n.is_silent(clock.leases))
}

/// The pod's Deployment, where it starts new pods before it ends old ones.
fn rolling<'a>(objects: &'a Objects, pod: PodSeen<'a>) -> Option<&'a str> {
    let (name, object) = deployment(objects, pod)?;
    object.is_none_or(|d| d["spec"]["strategy"]["type"] != "Recreate").then_some(name)
}

/// What each way leads to, for a pod. `cluster` is what the objects make.
pub(crate) fn forecasts(
    objects: &Objects,
    clock: &Clock,
    cluster: &Cluster,
    pod: PodSeen,
    scene: &Scene,
) -> Result<Vec<Forecast>, ObjectError> {
    let attached = volumes_of(objects, pod.namespace(), pod.0).iter().any(|v| v.attached && !v.shared);
    let mut out = Vec::new();
    for way in scene.ways(objects, clock) {
        let targets = match way {
            Way::ForceDeletePod => scene.lost.clone(),
            Way::RecreateStrategy => scene.locked.clone(),
            _ => BTreeSet::new(),
        };
        let course = Course::new(objects, clock, cluster, way, scene.node.as_deref(), targets)?;
        let outcome = course.outcome(pod);
        out.push(Forecast {
            way,
            ready_at: outcome.ready_at,
            nodes: outcome.nodes,
            risk: risk(way, scene, attached),
            commands: commands(way, scene, pod.namespace()),
            steps: outcome.steps,
            unknown: outcome.unknown,
        });
    }
    Ok(out)
}

/// What can go wrong on a way.
pub(crate) fn risk(way: Way, scene: &Scene, attached: bool) -> String {
    let node = scene.node.as_deref().unwrap_or("its node");
    match way {
        Way::DoNothing => "nothing is lost that is not lost already; the service is without this pod meanwhile".into(),
        Way::NodeReturns => format!(
            "none: the kubelet of {node} ends what was deleted, and the rest goes on; a machine that starts anew takes \
             its time for that first"
        ),
        Way::ForceDeletePod if scene.node.is_none() => {
            "Kubernetes forgets the pod while its kubelet may still run it: two of them may be there for a while".into()
        }
        Way::ForceDeletePod => {
            let volume = if attached {
                "; the volume is then detached by force, whether or not that machine still writes to it"
            } else {
                ""
            };
            format!(
                "Kubernetes forgets the pod without knowing that it has ended: if {node} is not off, two of them run{volume}"
            )
        }
        Way::DeleteNode => format!(
            "all pods of {node} are given up without knowing that they have ended: if the machine is not off, two of \
             each run; its labels and taints are lost, and a kubelet that lives registers it anew"
        ),
        Way::OutOfService => format!(
            "only if {node} is known to be off: all its pods are given up, and volumes are detached at once; a machine \
             that still runs would write to a volume that another one has. The taint has to go before the node is used again"
        ),
        Way::RecreateStrategy => "each later update stops the service while the pod is replaced".into(),
    }
}

/// What to type for a way.
pub(crate) fn commands(way: Way, scene: &Scene, namespace: &str) -> Vec<String> {
    let node = scene.node.as_deref().unwrap_or_default();
    match way {
        Way::DoNothing | Way::NodeReturns => Vec::new(),
        Way::ForceDeletePod => scene
            .lost
            .iter()
            .map(|p| format!("kubectl -n {} delete pod {} --force --grace-period=0", p.namespace, p.name))
            .collect(),
        Way::DeleteNode => vec![format!("kubectl delete node {node}")],
        Way::OutOfService => vec![
            format!("stead recover node/{node} --confirm-off \"REASON\""),
            format!("# or by hand: kubectl taint node {node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"),
            format!("# and before the node is used again: kubectl taint node {node} {OUT_OF_SERVICE}:NoExecute-"),
        ],
        Way::RecreateStrategy => {
            let name = scene.deployment.as_deref().unwrap_or_default();
            let patch = r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#;
            vec![format!("kubectl -n {namespace} patch deployment {name} -p '{patch}'")]
        }
    }
}
