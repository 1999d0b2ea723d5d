//! What can go wrong on a way, and what to type for it.

use super::course::{Course, Life};
use super::detaching::held_name;
use super::forecast::Scene;
use super::makers::Maker;
use super::node::{NodeStanding, OUT_OF_SERVICE};
use super::pod::PodSeen;
use super::volumes::{HeldVolume, volumes_of};
use super::way::Way;
use crate::explanation::some;
use stead_model::Objects;

/// What can go wrong on a way that is taken for these pods.
pub(crate) fn risk(course: &Course, scene: &Scene, pods: &[PodSeen]) -> String {
    let node = scene.node.as_deref().unwrap_or("its node");
    let attached = || pods.iter().any(|p| exclusive(course.objects, *p).next().is_some());
    match course.way {
        Way::DoNothing => match torn(course, pods).as_slice() {
            [] => "nothing is lost that is not lost already; the service is without this pod meanwhile".into(),
            torn => format!(
                "volumes are detached by force ({}): a machine that is not off, but only out of reach, loses them while \
                 it writes; the service is without this pod meanwhile",
                some(torn)
            ),
        },
        Way::NodeReturns if course.out_of_service(node) => format!(
            "volumes are detached from {node} while it has them mounted, as long as it has the taint {OUT_OF_SERVICE}: \
             that has to go before the machine is back"
        ),
        Way::NodeReturns => format!(
            "none: the kubelet of {node} ends what was deleted, and the rest goes on; a machine that starts anew takes \
             its time for that first"
        ),
        Way::ForceDeletePod if scene.node.is_none() => {
            let volume =
                if attached() { ", and its volume is free only when that kubelet has unmounted it" } else { "" };
            format!(
                "Kubernetes forgets the pod while its kubelet may still run it: two of them may be there for a \
                 while{volume}{}",
                for_good(course, scene)
            )
        }
        Way::ForceDeletePod => {
            let volume = if attached() {
                "; the volume is then detached by force, whether or not that machine still writes to it"
            } else {
                ""
            };
            format!(
                "Kubernetes forgets the pod without knowing that it has ended: if {node} is not off, two of them \
                 run{volume}{}",
                for_good(course, scene)
            )
        }
        Way::DeleteNode => format!(
            "all pods of {node} are given up without knowing that they have ended: if the machine is not off, two of \
             each run; its labels and taints are lost, and a kubelet that lives registers it anew{}",
            for_good(course, scene)
        ),
        Way::OutOfService => format!(
            "only if {node} is known to be off: all its pods are given up, and volumes are detached at once; a machine \
             that still runs would write to a volume that another one has. The taint has to go before the node is used \
             again{}",
            for_good(course, scene)
        ),
        Way::RecreateStrategy => "each later update stops the service while the pod is replaced".into(),
    }
}

/// A pod's volumes that one node may have at a time.
fn exclusive(objects: &Objects, pod: PodSeen) -> impl Iterator<Item = HeldVolume> {
    volumes_of(objects, pod.namespace(), pod.0).into_iter().filter(|v| v.attached && !v.shared)
}

/// Whether a node may have a volume mounted: as its kubelet said last, or nobody knows.
pub(crate) fn may_be_mounted(objects: &Objects, volume: &HeldVolume, node: &str) -> bool {
    NodeStanding::find(objects, node)
        .is_none_or(|n| volume.unique_name.as_ref().is_none_or(|u| n.volumes_in_use.contains(u)))
}

/// The volumes that are taken from machines which may be on and write to them.
fn torn(course: &Course, pods: &[PodSeen]) -> Vec<String> {
    let mut out = Vec::new();
    for pod in pods {
        for volume in exclusive(course.objects, *pod) {
            let lost = volume.attachments.iter().filter(|a| course.life(&a.node) != Life::Alive);
            let taken = lost.filter(|a| {
                may_be_mounted(course.objects, &volume, &a.node) && course.detached(*pod, &volume, a).is_ok()
            });
            out.extend(taken.map(|a| format!("{} from {}", held_name(&volume), a.node)));
        }
    }
    out.dedup();
    out
}

/// The pods that the way ends and nobody makes anew, in words.
fn for_good(course: &Course, scene: &Scene) -> String {
    let all = course.objects.raw_of_kind("Pod").map(|(key, p)| (key, PodSeen(p)));
    let theirs = all.filter(|(key, p)| match course.way {
        Way::ForceDeletePod => scene.lost.contains(*key),
        _ => p.node() == scene.node.as_deref() && !p.ended(),
    });
    let gone = theirs.filter(|(_, p)| Maker::of(course.objects, *p) == Maker::Nobody && course.fate(*p).gone.is_some());
    let names: Vec<String> = gone.map(|(_, p)| format!("{}/{}", p.namespace(), p.name())).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; gone for good, with no controller to make it anew: {}", some(names)),
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
