//! What can go wrong on a way, and what to type for it.

use stead_forecast::Run;
use stead_model::{OUT_OF_SERVICE, Objects, PodController, PodView, PodVolume, pod_volumes};

use super::forecast::{Attempt, Scene};
use super::node::health;
use super::way::Way;
use crate::explanation::some;
use crate::suggested_command::SuggestedCommand;

/// What can go wrong on a way that is taken for these pods.
pub(super) fn risk(attempt: &Attempt, run: &Run, pods: &[PodView]) -> String {
    let (objects, scene) = (attempt.objects, attempt.scene);
    let node = scene.node.as_deref().unwrap_or("its node");
    let attached = || pods.iter().any(|p| exclusive(objects, *p).next().is_some());
    let out_of_service = || health(objects, node).is_some_and(|node| node.taint(OUT_OF_SERVICE).is_some());
    match attempt.way {
        Way::DoNothing => match torn(objects, run, pods).as_slice() {
            [] => "no additional loss; the service runs without this pod meanwhile".into(),
            torn => format!(
                "volumes are force-detached ({}): a machine that is unreachable but still running loses them while it \
                 writes; the service runs without this pod meanwhile",
                some(torn)
            ),
        },
        Way::NodeReturns if out_of_service() => format!(
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
                for_good(attempt, run)
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
                for_good(attempt, run)
            )
        }
        Way::DeleteNode => format!(
            "all pods of {node} are deleted without proof that they have ended: if the machine is still running, there are \
             two of each; labels and taints of the node are lost, and a running kubelet registers it again{}",
            for_good(attempt, run)
        ),
        Way::OutOfService => format!(
            "use only if {node} is known to be off: all its pods are deleted and its volumes are detached at once; a \
             machine that is still running would write to a volume that another node uses. Remove the taint before the \
             node is used again{}",
            for_good(attempt, run)
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

/// The volumes of pods that are taken from machines which may be on and write to them.
fn torn(objects: &Objects, run: &Run, pods: &[PodView]) -> Vec<String> {
    let mut out = Vec::new();
    for volume in pods.iter().flat_map(|pod| exclusive(objects, *pod)) {
        let taken = run.torn.iter().filter(|(name, _)| Some(name) == volume.volume.as_ref());
        out.extend(taken.map(|(name, node)| format!("{name} from {node}")));
    }
    out.dedup();
    out
}

/// The pods that the way ends and nobody recreates, in words.
fn for_good(attempt: &Attempt, run: &Run) -> String {
    let (objects, scene) = (attempt.objects, attempt.scene);
    let theirs: Vec<PodView> = match attempt.way {
        Way::ForceDeletePod => scene.lost.iter().filter_map(|key| objects.pod(key).ok().flatten()).collect(),
        _ => {
            let on_node = scene.node.as_deref().into_iter().flat_map(|node| objects.pods_on(node));
            on_node.filter(|p| !p.has_ended()).collect()
        }
    };
    let nobody = |p: &PodView| PodController::of(objects, *p) == PodController::None;
    let gone = theirs.into_iter().filter(|p| nobody(p) && run.gone.contains(p.key()));
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
