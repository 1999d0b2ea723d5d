//! Plugins that depend only on the node: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts,
//! NodeDeclaredFeatures.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use stead_semantics::taints;

use crate::node::{Node, NodeInfo};
use crate::pod::{PodSpec, Tolerations};
use crate::status::{Code, Filtered, Plugin, RejectionReason, reject};
use crate::version_rules::VersionRules;

fn prevents_scheduling(t: &Taint) -> bool {
    t.effect == "NoSchedule" || t.effect == "NoExecute"
}

/// The first taint that prevents scheduling and that the pod does not tolerate.
pub(crate) fn untolerated<'a>(node: &'a Node, tolerations: &Tolerations) -> Option<&'a Taint> {
    taints::find_untolerated(&node.taints, &tolerations.0, prevents_scheduling)
}

pub(crate) fn unschedulable(pod: &PodSpec, node: &Node) -> Filtered {
    let cordon =
        Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
    if node.unschedulable && !pod.tolerations.0.iter().any(|t| taints::tolerates(t, &cordon)) {
        return reject(Plugin::NodeUnschedulable, Code::Unresolvable, RejectionReason::NodeUnschedulable);
    }
    Ok(())
}

pub(crate) fn taints(pod: &PodSpec, node: &Node, rules: &VersionRules) -> Filtered {
    let Some(taint) = untolerated(node, &pod.tolerations) else { return Ok(()) };
    let text = || (taint.key.as_str().into(), taint.value.as_deref().unwrap_or_default().into());
    let named = rules.names_taint.then(text);
    reject(Plugin::TaintToleration, Code::Unresolvable, RejectionReason::UntoleratedTaint { named })
}

pub(crate) fn affinity(pod: &PodSpec, node: &Node) -> Filtered {
    if pod.required_nodes.as_ref().is_none_or(|r| r.matches(&node.name, &node.labels)) {
        return Ok(());
    }
    reject(Plugin::NodeAffinity, Code::Unresolvable, RejectionReason::NodeAffinity)
}

pub(crate) fn ports(pod: &PodSpec, info: &NodeInfo) -> Filtered {
    if pod.host_ports.iter().any(|p| info.port_taken(p)) {
        return reject(Plugin::NodePorts, Code::Unschedulable, RejectionReason::HostPortInUse);
    }
    Ok(())
}

pub(crate) fn features(pod: &PodSpec, node: &Node) -> Filtered {
    if pod.features.iter().all(|f| node.features.contains(*f)) {
        return Ok(());
    }
    reject(Plugin::NodeDeclaredFeatures, Code::Unresolvable, RejectionReason::MissingFeature)
}

/// How many taints with effect PreferNoSchedule the pod does not tolerate.
pub(crate) fn taint_score(pod: &PodSpec, node: &Node) -> i64 {
    let applies = |t: &&Toleration| t.effect.as_deref().is_none_or(|e| e.is_empty() || e == "PreferNoSchedule");
    let untolerated = |taint: &&Taint| {
        taint.effect == "PreferNoSchedule"
            && !pod.tolerations.0.iter().filter(applies).any(|t| taints::tolerates(t, taint))
    };
    node.taints.iter().filter(untolerated).count() as i64
}

/// The sum of the weights of matching preferred terms; none if the pod has no preferences.
pub(crate) fn affinity_score(pod: &PodSpec, node: &Node) -> Option<i64> {
    Some(pod.preferred_nodes.as_ref()?.score(&node.name, &node.labels))
}
