//! What can go wrong on a way, and what to type for it.

use super::course::{Course, Life};
use super::forecast::Scene;
use super::node::health;
use super::way::Way;
use crate::explanation::some;
use crate::suggested_command::SuggestedCommand;
use stead_model::{OUT_OF_SERVICE, Objects, PodController, PodView, PodVolume, pod_volumes};

/// What can go wrong on a way that is taken for these pods.
pub(crate) fn risk(course: &Course, scene: &Scene, pods: &[PodView]) -> String {
    let node = scene.node.as_deref().unwrap_or("its node");
    let attached = || pods.iter().any(|p| exclusive(course.objects, *p).next().is_some());
    match course.way {
        Way::DoNothing => match torn(course, pods).as_slice() {
            [] => "no additional loss; the service runs without this pod meanwhile".into(),
            torn => format!(
                "volumes are force-detached ({}): a machine that is unreachable but still running loses them while it \
                 writes; the service runs without this pod meanwhile",
                some(torn)
            ),
        },
        Way::NodeReturns if course.out_of_service(node) => format!(
            "while {node} has the taint {OUT_OF_SERVICE}, volumes are detached although they are mounted: remove the \
             taint before the machine is back"
        ),
        Way::NodeReturns => format!(
            "none: the kubelet of {node} stops the deleted pods, and the others keep running; a machine that boots needs \
             additional time for that"
        ),
        Way::ForceDeletePod if scene.node.is_none() => {
            let volume =
                if attached() { ", and its volume is released only when that kubelet has unmounted it" } else { "" };
            format!(
                "the object is deleted while the kubelet may still run the pod: two of them may run for a while{volume}{}",
                for_good(course, scene)
            )
        }
        Way::ForceDeletePod => {
            let volume = if attached() {
                "; the volume is then force-detached, even if the machine still writes to it"
            } else {
                ""
            };
            format!(
                "the object is deleted without proof that the pod has ended: if {node} is still running, there are two of \
                 them{volume}{}",
                for_good(course, scene)
            )
        }
        Way::DeleteNode => format!(
            "all pods of {node} are deleted without proof that they have ended: if the machine is still running, there are \
             two of each; labels and taints of the node are lost, and a running kubelet registers it again{}",
            for_good(course, scene)
        ),
        Way::OutOfService => format!(
            "use only if {node} is known to be off: all its pods are deleted and its volumes are detached at once; a \
             machine that is still running would write to a volume that another node uses. Remove the taint before the \
             node is used again{}",
            for_good(course, scene)
        ),
        Way::RecreateStrategy => "every later update stops the service while the pod is replaced".into(),
    }
}

/// A pod's volumes that one node may have at a time.
fn exclusive(objects: &Objects, pod: PodView) -> impl Iterator<Item = PodVolume> {
    pod_volumes(objects, pod).into_iter().filter(PodVolume::is_exclusive)
}

/// Whether a node may have a volume mounted: as its kubelet said last, or nobody knows.
pub(crate) fn may_be_mounted(objects: &Objects, volume: &PodVolume, node: &str) -> bool {
    health(objects, node).is_none_or(|n| volume.unique_name.as_ref().is_none_or(|u| n.volumes_in_use().contains(u)))
}

/// The volumes that are taken from machines which may be on and write to them.
fn torn(course: &Course, pods: &[PodView]) -> Vec<String> {
    let mut out = Vec::new();
    for pod in pods {
        for volume in exclusive(course.objects, *pod) {
            let lost = volume.attachments.iter().filter(|a| course.life(&a.node) != Life::Alive);
            let taken = lost.filter(|a| {
                may_be_mounted(course.objects, &volume, &a.node) && course.detached(*pod, &volume, a).is_ok()
            });
            out.extend(taken.map(|a| format!("{} from {}", volume.name(), a.node)));
        }
    }
    out.dedup();
    out
}

/// The pods that the way ends and nobody makes anew, in words.
fn for_good(course: &Course, scene: &Scene) -> String {
    let theirs: Vec<PodView> = match course.way {
        Way::ForceDeletePod => scene.lost.iter().filter_map(|key| course.objects.pod(key).ok().flatten()).collect(),
        _ => {
            let on_node = scene.node.as_deref().into_iter().flat_map(|node| course.objects.pods_on(node));
            on_node.filter(|p| !p.has_ended()).collect()
        }
    };
    let nobody = |p: &PodView| PodController::of(course.objects, *p) == PodController::None;
    let gone = theirs.into_iter().filter(|p| nobody(p) && course.fate(*p).gone.is_some());
    let names: Vec<String> = gone.map(PodView::full_name).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; will not be recreated (no controller): {}", some(names)),
    }
}

/// What to type for a way.
pub(crate) fn commands(way: Way, scene: &Scene, namespace: &str) -> Vec<SuggestedCommand> {
    let node = scene.node.as_deref().unwrap_or_default();
    match way {
        Way::DoNothing | Way::NodeReturns => Vec::new(),
        Way::ForceDeletePod => scene
            .lost
            .iter()
            .map(|p| SuggestedCommand::client(&p.namespace, format!("delete pod {} --force --grace-period=0", p.name)))
            .collect(),
        Way::DeleteNode => vec![SuggestedCommand::client("", format!("delete node {node}"))],
        Way::OutOfService => vec![
            SuggestedCommand::stead(format!("recover node/{node} --confirm-off \"REASON\"")),
            SuggestedCommand::client("", format!("taint node {node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"))
                .after_remark("or by hand"),
            SuggestedCommand::client("", format!("taint node {node} {OUT_OF_SERVICE}:NoExecute-"))
                .after_remark("before the node is used again"),
        ],
        Way::RecreateStrategy => {
            let name = scene.deployment.as_deref().unwrap_or_default();
            let patch = r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#;
            vec![SuggestedCommand::client(namespace, format!("patch deployment {name} -p '{patch}'"))]
        }
    }
}
