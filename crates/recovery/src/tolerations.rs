//! Tolerations that keep a pod on the node.
//!
//! A pod that is left alone has to tolerate every taint of the node for ever: the out-of-service taint, and those of an
//! unreachable node. Once a pod is Terminating for any reason, the pod garbage collector removes it from a node that is out
//! of service.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde_json::json;
use stead_model::{NOT_READY, NodeHealth, PodView, TolerationTime, UNREACHABLE, min_toleration_time};
use stead_semantics::taints::tolerates;

use crate::annotation::{self, no_execute, preconditions};
use crate::guard::Guards;
use crate::next_step::RecoveryWrite;
use crate::progress;
use crate::record::{AddedTolerations, RecoveryPlan};
use crate::view::ClusterView;

/// All taints that would evict a pod from the node once it is out of service.
pub(crate) fn evicting_taints(node: &NodeHealth<'_>) -> Vec<Taint> {
    let mut taints = vec![annotation::taint(), no_execute(UNREACHABLE, ""), no_execute(NOT_READY, "")];
    let others = node.taints().iter().filter(|taint| taint.effect == "NoExecute");
    let others: Vec<Taint> =
        others.filter(|taint| !taints.iter().any(|known| known.key == taint.key)).cloned().collect();
    taints.extend(others);
    taints
}

/// Whether these tolerations tolerate these taints for ever.
pub(crate) fn tolerates_forever(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    min_toleration_time(tolerations, taints) == TolerationTime::Forever
}

/// The tolerations that have to be added to a pod; none if it tolerates everything already.
pub(crate) fn needed(pod: PodView<'_>, taints: &[Taint]) -> Option<AddedTolerations> {
    (!tolerates_forever(pod.tolerations(), taints)).then(|| AddedTolerations {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        before: pod.tolerations().to_vec(),
        after: extended(pod.tolerations(), taints),
    })
}

/// These tolerations, with what it takes to tolerate the taints for ever.
fn extended(before: &[Toleration], taints: &[Taint]) -> Vec<Toleration> {
    let mut after = before.to_vec();
    for taint in taints {
        if tolerates_forever(&after, std::slice::from_ref(taint)) {
            continue;
        }
        match after.iter_mut().find(|toleration| tolerates(toleration, taint)) {
            Some(first) => first.toleration_seconds = None,
            None => after.push(Toleration {
                key: Some(taint.key.clone()),
                operator: Some("Exists".into()),
                effect: Some("NoExecute".into()),
                ..Toleration::default()
            }),
        }
    }
    after
}

/// Whether any of these tolerations matches the taint, even if for no time.
pub(crate) fn any_matches(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Adds the tolerations to a pod; none if it has them.
fn add(pod: PodView<'_>, added: &AddedTolerations, guards: Guards) -> Option<RecoveryWrite> {
    if added.after.iter().all(|toleration| pod.tolerations().contains(toleration)) {
        return None;
    }
    // Tolerations that others have added in the meantime stay.
    let known = |t: &Toleration| added.before.contains(t) || added.after.contains(t);
    let others = pod.tolerations().iter().filter(|toleration| !known(toleration));
    let tolerations: Vec<&Toleration> = added.after.iter().chain(others).collect();
    Some(patch(pod, &tolerations, "tolerations added that keep it on the node", guards))
}

/// Takes the added tolerations back; none if that is done. The seconds of a toleration become what they were; an added
/// toleration gets zero seconds, which has the effect of none.
fn take_back(pod: PodView<'_>, added: &AddedTolerations, guards: Guards) -> Option<RecoveryWrite> {
    let before = |toleration: &Toleration| {
        if let Some(before) = added.before.iter().find(|t| differs_in_seconds_only(t, toleration)) {
            return if added.before.contains(toleration) { toleration.clone() } else { before.clone() };
        }
        let seconds = if added.after.contains(toleration) { Some(0) } else { toleration.toleration_seconds };
        Toleration { toleration_seconds: seconds, ..toleration.clone() }
    };
    let tolerations: Vec<Toleration> = pod.tolerations().iter().map(before).collect();
    let changed = tolerations != pod.tolerations();
    changed.then(|| patch(pod, &tolerations.iter().collect::<Vec<_>>(), "added tolerations taken back", guards))
}

fn differs_in_seconds_only(a: &Toleration, b: &Toleration) -> bool {
    let fields =
        |t: &Toleration| [&t.key, &t.operator, &t.value, &t.effect].map(|field| field.clone().unwrap_or_default());
    fields(a) == fields(b)
}

fn patch(pod: PodView<'_>, tolerations: &[&Toleration], what: &str, guards: Guards) -> RecoveryWrite {
    let metadata = preconditions(pod.uid().unwrap_or_default(), pod.resource_version(), guards);
    RecoveryWrite::Pod {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        patch: json!({ "metadata": metadata, "spec": { "tolerations": tolerations } }),
        what: what.into(),
    }
}

/// The pods of a plan that have or get added tolerations, as long as they exist and nobody deletes them.
fn kept_pods<'a>(
    view: &ClusterView<'a>,
    plan: &'a RecoveryPlan,
) -> impl Iterator<Item = (PodView<'a>, &'a AddedTolerations)> {
    let objects = view.objects;
    plan.left_alone.iter().filter_map(move |left| {
        let added = left.added_tolerations.as_ref()?;
        let pod = progress::pod_named(objects, &added.namespace, &added.name)?;
        (pod.uid() == left.uid.as_deref() && !pod.is_terminating()).then_some((pod, added))
    })
}

/// Adds the tolerations to the first pod that does not have them.
pub(crate) fn next_to_add(view: &ClusterView<'_>, plan: &RecoveryPlan) -> Option<RecoveryWrite> {
    kept_pods(view, plan).find_map(|(pod, added)| add(pod, added, view.guards))
}

/// Takes the tolerations back from the first pod that still has them.
pub(crate) fn next_to_take_back(view: &ClusterView<'_>, plan: &RecoveryPlan) -> Option<RecoveryWrite> {
    kept_pods(view, plan).find_map(|(pod, added)| take_back(pod, added, view.guards))
}
