//! What keeps a pod from the taint.
//!
//! A pod that is to stay has to bear every taint of the node for ever: the out-of-service taint, and those of silence too.
//! Once a pod is Terminating, whatever made it so, the pod collector ends it on a node that is out of service.

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use stead_explain::outage::{NodeStanding, UNREACHABLE};

use crate::deed::Deed;
use crate::guard::Guards;
use crate::mark;
use crate::pods::{PodSeen, bears, no_execute};
use crate::record::Shield;

/// The taint of a node that says itself that it is not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// All that would take a pod from the node once it is out of service.
pub(crate) fn hostile(node: &NodeStanding) -> Vec<Taint> {
    let mut taints = vec![mark::taint(), no_execute(UNREACHABLE, ""), no_execute(NOT_READY, "")];
    let here = node.taints.iter().filter_map(|t| serde_json::from_value::<Taint>(t.clone()).ok());
    let others = here.filter(|t| t.effect == "NoExecute" && !taints.iter().any(|known| known.key == t.key));
    let others: Vec<Taint> = others.collect();
    taints.extend(others);
    taints
}

/// The shield that a pod needs; none where it bears everything as it is.
pub(crate) fn needed(pod: PodSeen<'_>, taints: &[Taint]) -> Option<Shield> {
    bears(pod.tolerations(), taints)?;
    Some(Shield {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        before: pod.tolerations().to_vec(),
        after: shielded(pod.tolerations(), taints),
    })
}

/// These tolerations, with what it takes to bear the taints for ever.
fn shielded(before: &[Value], taints: &[Taint]) -> Vec<Value> {
    let mut after = before.to_vec();
    for taint in taints {
        let one = std::slice::from_ref(taint);
        if bears(&after, one).is_none() {
            continue;
        }
        match after.iter_mut().find(|t| covers(t, taint)) {
            Some(first) => {
                first.as_object_mut().map(|t| t.remove("tolerationSeconds"));
            }
            None => after.push(json!({ "key": taint.key, "operator": "Exists", "effect": "NoExecute" })),
        }
    }
    after
}

/// Whether any of these tolerations covers the taint at all, were it for no time.
pub(crate) fn covered(tolerations: &[Value], taint: &Taint) -> bool {
    tolerations.iter().any(|t| covers(t, taint))
}

/// Whether it covers the taint at all, were it for no time.
fn covers(toleration: &Value, taint: &Taint) -> bool {
    let mut forever = toleration.clone();
    forever.as_object_mut().map(|t| t.remove("tolerationSeconds"));
    bears(std::slice::from_ref(&forever), std::slice::from_ref(taint)).is_none()
}

/// Puts the shield up; none where it is.
pub(crate) fn raise(pod: PodSeen<'_>, shield: &Shield, guards: Guards) -> Option<Deed> {
    let up = shield.after.iter().all(|t| pod.tolerations().contains(t));
    if up {
        return None;
    }
    // What others have added in the meantime stays.
    let known = |t: &Value| shield.before.contains(t) || shield.after.contains(t);
    let others = pod.tolerations().iter().filter(|t| !known(t));
    let tolerations: Vec<&Value> = shield.after.iter().chain(others).collect();
    Some(patch(pod, &tolerations, guards, "shielded from the taint"))
}

/// Takes the shield down again: the seconds of a toleration become what they were, and those of one that was added become
/// zero, which is as good as none.
pub(crate) fn lower(pod: PodSeen<'_>, shield: &Shield, guards: Guards) -> Option<Deed> {
    let was = |toleration: &Value| {
        if let Some(before) = shield.before.iter().find(|t| same_but_seconds(t, toleration)) {
            return if shield.before.contains(toleration) { toleration.clone() } else { before.clone() };
        }
        let mut now = toleration.clone();
        if shield.after.contains(toleration) {
            now["tolerationSeconds"] = 0.into();
        }
        now
    };
    let tolerations: Vec<Value> = pod.tolerations().iter().map(was).collect();
    let tolerations: Vec<&Value> = tolerations.iter().collect();
    let up = tolerations.iter().zip(pod.tolerations()).any(|(new, old)| *new != old);
    up.then(|| patch(pod, &tolerations, guards, "no longer shielded from the taint"))
}

fn same_but_seconds(a: &Value, b: &Value) -> bool {
    let text = |t: &Value, field: &str| t[field].as_str().unwrap_or_default().to_owned();
    ["key", "operator", "value", "effect"].iter().all(|field| text(a, field) == text(b, field))
}

fn patch(pod: PodSeen<'_>, tolerations: &[&Value], guards: Guards, what: &str) -> Deed {
    let version = pod.value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    Deed::Pod {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        patch: json!({
            "metadata": mark::metadata(pod.uid(), version, guards, None),
            "spec": { "tolerations": tolerations },
        }),
        what: what.into(),
    }
}
