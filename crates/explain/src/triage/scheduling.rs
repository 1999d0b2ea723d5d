//! Pods that have no node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use stead_model::times::deletion;
use stead_model::{NodeView, ObjectKey, PodView, Topology};
use stead_semantics::Labels;

use super::claims::{claim_root, is_bound};
use super::evidence::{Evidence, volume_of};
use super::node_faults::NodeFault;
use super::roots::{Root, Roots};
use super::trial::SchedulingTrial;
use super::{StuckCause, nodes, topologies};

/// The default scheduler: another one has rules that are not known.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

pub(super) fn assign(
    evidence: &Evidence<'_>,
    trial: &mut SchedulingTrial<'_, '_>,
    roots: &mut Roots,
    pod: PodView<'_>,
) {
    let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
    let condition = pod.condition("PodScheduled").and_then(|condition| condition.reason.as_deref());
    if !gates.is_empty() || condition == Some("SchedulingGated") {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        let root = Root::new(StuckCause::SchedulingGated, evidence.group_of(pod.key()));
        return roots.assign(pod.key(), root, &names.join(", "));
    }
    let Some(message) = message(evidence, pod) else { return };
    for (key, claim) in evidence.claims(pod) {
        if let Some((root, detail)) = claim_in_the_way(evidence, roots, pod, &key, claim) {
            return roots.assign(pod.key(), root, &detail);
        }
    }
    if let Some(name) = missing_claim(&message) {
        let claim = ObjectKey::new("PersistentVolumeClaim", pod.namespace(), name);
        return roots.assign(pod.key(), Root::new(StuckCause::MissingReference, claim), "");
    }
    if let Some((node, fault)) = only_on_faulty_nodes(evidence, pod) {
        return nodes::blame(evidence, roots, pod.key(), &node, fault);
    }
    if let Some((topology, problem)) = topology(evidence, pod) {
        return roots.assign(pod.key(), Root::new(StuckCause::TopologyUnsatisfiable, topology), &problem);
    }
    unschedulable(evidence, trial, roots, pod, &message);
}

/// Assigns a pod that no node can run: to a faulty node that could, or to itself.
fn unschedulable(
    evidence: &Evidence<'_>,
    trial: &mut SchedulingTrial<'_, '_>,
    roots: &mut Roots,
    pod: PodView<'_>,
    message: &str,
) {
    let root = Root::new(StuckCause::Unschedulable, evidence.group_of(pod.key()));
    let scheduler = pod.spec().and_then(|spec| spec.scheduler_name.as_deref()).filter(|name| !name.is_empty());
    if let Some(other) = scheduler.filter(|name| *name != DEFAULT_SCHEDULER && message.is_empty()) {
        roots.assign(pod.key(), root.clone(), &format!("scheduler {other} has not tried to schedule it"));
        return roots.set_untried(&root);
    }
    // A node with a fault has a taint, and kube-scheduler names what is wrong with each node.
    let faulty = !evidence.faults.is_empty() && (message.is_empty() || message.contains("taint"));
    let cordoned = !evidence.cordoned.is_empty() && (message.is_empty() || message.contains("unschedulable"));
    let result = (message.is_empty() || faulty || cordoned).then(|| trial.result(pod)).flatten();
    if let Some(result) = result {
        if let Some((node, fault)) = result.faulty.and_then(|node| Some((node.clone(), evidence.fault_of(&node)?))) {
            return nodes::blame(evidence, roots, pod.key(), &node, fault);
        }
        if message.is_empty() {
            match result.message {
                Some(message) => roots.assign(pod.key(), root.clone(), scheduler_reason(&message)),
                None => {
                    let detail = format!("{} nodes can run it, but kube-scheduler has not tried", result.feasible);
                    roots.assign(pod.key(), root.clone(), &detail);
                    roots.set_untried(&root);
                }
            }
        }
        if let Some(node) = result.cordoned {
            roots.assign(pod.key(), root.clone(), &format!("node {node} could run it but is cordoned"));
            roots.set_cordoned(&root, node);
        }
    }
    roots.assign(pod.key(), root, scheduler_reason(message));
}

/// What kube-scheduler said about the pod; empty where it has said nothing for too long, none where it may still decide.
fn message(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<String> {
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
    if let Some(message) = condition.and_then(|condition| condition.message.clone()).filter(|m| !m.is_empty()) {
        return Some(message);
    }
    let reported = evidence.pod_warnings(pod).find(|event| event.reason == "FailedScheduling");
    match reported {
        Some(event) => Some(event.message.to_owned()),
        None if condition.is_some() => Some(String::new()),
        None => evidence.lasted(pod.created(), evidence.thresholds.creating).then(String::new),
    }
}

/// The claim that kube-scheduler did not find, as in `0/3 nodes are available: persistentvolumeclaim "data" not found.`
fn missing_claim(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("persistentvolumeclaim \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.starts_with(" not found").then_some(name).filter(|_| !message.contains("ephemeral volume controller"))
}

/// kube-scheduler's reasons, without the number of nodes before them and what preemption could do after them.
fn scheduler_reason(message: &str) -> &str {
    let message = message.split_once(" nodes are available: ").map_or(message, |(_, reasons)| reasons);
    let ends = [". preemption:", ". no new claims to deallocate", ", preemption:", ". not found"];
    let end = ends.iter().filter_map(|end| message.find(end)).min();
    end.map_or(message, |end| &message[..end])
}

/// The root of a claim that keeps its pod from being scheduled.
fn claim_in_the_way(
    evidence: &Evidence<'_>,
    roots: &Roots,
    pod: PodView<'_>,
    key: &ObjectKey,
    claim: Option<&PersistentVolumeClaim>,
) -> Option<(Root, String)> {
    let Some(claim) = claim else {
        let generic =
            pod.volumes().iter().any(|v| v.ephemeral.is_some() && format!("{}-{}", pod.name(), v.name) == key.name);
        let exists = evidence.objects.contains(key);
        let missing = evidence.was_read("PersistentVolumeClaim") && !exists && !generic;
        return missing.then(|| (Root::new(StuckCause::MissingReference, key.clone()), String::new()));
    };
    if deletion(&claim.metadata).is_some() && !claim.metadata.finalizers.iter().flatten().all(String::is_empty) {
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default().join(", ");
        return Some((Root::new(StuckCause::FinalizerBlocks, key.clone()), finalizers));
    }
    if !is_bound(claim) {
        return claim_root(evidence, key, claim, true);
    }
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let exclusive = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    exclusive.then(|| used_by_another(evidence, roots, pod, key, claim)).flatten()
}

/// The root of the other pod that uses a ReadWriteOncePod claim, or the volume.
fn used_by_another(
    evidence: &Evidence<'_>,
    roots: &Roots,
    pod: PodView<'_>,
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
) -> Option<(Root, String)> {
    let mut others = evidence.users(key).into_iter().filter(|other| other.node().is_some());
    let other = others.find(|other| other.key() != pod.key() && !other.has_ended())?;
    if let Some(root) = roots.of(other.key()) {
        return Some((root.clone(), String::new()));
    }
    let volume = ObjectKey::cluster("PersistentVolume", volume_of(claim)?);
    Some((Root::new(StuckCause::VolumeHeld, volume), format!("pod {} uses it (ReadWriteOncePod)", other.name())))
}

/// The node without which no node can run the pod: all nodes that its node selector, its required node affinity and its
/// volumes allow have a fault.
fn only_on_faulty_nodes(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<(String, NodeFault)> {
    if evidence.faults.is_empty() {
        return None;
    }
    let compile =
        |required: &k8s_openapi::api::core::v1::NodeSelector| stead_semantics::NodeSelector::compile(required).ok();
    let of_volume = |claim: Option<&PersistentVolumeClaim>| {
        let volume = claim.and_then(volume_of).and_then(|name| evidence.objects.volume(name))?;
        compile(volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?)
    };
    let mut required: Vec<_> = evidence.claims(pod).into_iter().filter_map(|(_, claim)| of_volume(claim)).collect();
    let affinity = pod.spec().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    required.extend(
        affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()).and_then(compile),
    );
    let selector = pod.spec().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
    if required.is_empty() && selector.is_empty() {
        return None;
    }
    let allows = |node: &NodeView<'_>| {
        selector.iter().all(|(key, value)| node.label(key) == Some(value.as_str()))
            && required.iter().all(|terms| terms.matches(node.name(), &labels(*node)))
    };
    let names: Vec<&str> = evidence.objects.nodes().filter(allows).map(NodeView::name).collect();
    let faults: BTreeMap<&str, NodeFault> =
        names.iter().filter_map(|name| Some((*name, *evidence.faults.get(*name)?))).collect();
    let only_faulty = !names.is_empty() && faults.len() == names.len();
    faults.into_iter().next().filter(|_| only_faulty).map(|(name, fault)| (name.to_owned(), fault))
}

fn labels(node: NodeView<'_>) -> Labels {
    node.typed().metadata.labels.clone().unwrap_or_default().into_iter().collect()
}

/// The unsatisfiable Topology whose rules the pod has, with its problem.
fn topology(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<(ObjectKey, String)> {
    let mut there = evidence.objects.all_in::<Topology>(pod.namespace());
    there.find_map(|(key, topology)| {
        let problem = topologies::blocking_problem(evidence, topology)?;
        let follows =
            crate::topology::has_rules_of(pod.spec(), topology) || spreads_over_missing_key(evidence, pod, topology);
        follows.then(|| (key.clone(), problem))
    })
}

/// Whether a pod is spread over a label of a Topology that no node has.
fn spreads_over_missing_key(evidence: &Evidence<'_>, pod: PodView<'_>, topology: &Topology) -> bool {
    let (_, rules) = crate::topology::constraints(topology);
    let own = pod.spec().and_then(|spec| spec.topology_spread_constraints.as_deref()).unwrap_or_default();
    let has = |key: &str| evidence.objects.nodes().any(|node| node.label(key).is_some());
    rules.unwrap_or_default().iter().any(|rule| {
        let key = &rule.topology_key;
        own.iter().any(|o| o.topology_key == *key && o.when_unsatisfiable == "DoNotSchedule") && !has(key)
    })
}
