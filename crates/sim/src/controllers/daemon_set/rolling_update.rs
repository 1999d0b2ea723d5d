//! Which old daemon pods a rolling update replaces now (`rollingUpdate`).

use k8s_openapi::api::core::v1::Pod;

use super::manage::Plan;
use super::view::{NodeState, View};
use crate::choices::{Choices, Question};
use crate::pods::is_terminating;

/// The pods of a node that are not being deleted.
enum NodePods<'a> {
    /// At most one with the present template, at most one with another.
    Pair { new: Option<&'a Pod>, old: Option<&'a Pod> },
    /// More than that: they are deleted first.
    TooMany,
}

/// What a node means for a rolling update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UpdateState {
    /// It has a pod of another template.
    pub(super) is_old: bool,
    /// Its old pod can be replaced at once: it is not available.
    pub(super) is_replaceable: bool,
    /// It counts as unavailable.
    pub(super) is_unavailable: bool,
}

/// What a node means for a rolling update without extra pods.
pub(super) fn update_state(view: &View<'_>, node: &NodeState<'_>) -> UpdateState {
    if !node.verdict.should_run && node.pods.is_empty() {
        return UpdateState::default();
    }
    match NodePods::of(view, node) {
        NodePods::Pair { new: Some(new), old: None } => {
            UpdateState { is_unavailable: !view.is_available(new), ..UpdateState::default() }
        }
        NodePods::Pair { new: None, old: Some(old) } => {
            let is_replaceable = !view.is_available(old);
            UpdateState { is_old: true, is_replaceable, is_unavailable: is_replaceable }
        }
        NodePods::Pair { old, .. } => {
            UpdateState { is_old: old.is_some(), is_unavailable: true, is_replaceable: false }
        }
        NodePods::TooMany => UpdateState { is_old: true, is_unavailable: true, is_replaceable: false },
    }
}

impl<'a> NodePods<'a> {
    fn of(view: &View<'_>, node: &NodeState<'a>) -> NodePods<'a> {
        let (mut new, mut old) = (None, None);
        for pod in node.pods.iter().map(|(_, pod)| &***pod).filter(|pod| !is_terminating(pod)) {
            let found = if view.is_updated(pod) { &mut new } else { &mut old };
            if found.replace(pod).is_some() {
                return NodePods::TooMany;
            }
        }
        NodePods::Pair { new, old }
    }
}

/// What to create and to delete. Nothing if the limits are not numbers, or a node is gone that has an old pod while the
/// update may create extra pods: that is an error in Kubernetes.
pub(super) fn plan<'a>(view: &View<'a>, choices: &mut Choices) -> Plan<'a> {
    let desired = view.nodes.iter().filter(|node| node.verdict.should_run).count();
    let (Some(surge), Some(unavailable)) = (view.max_surge(desired), view.max_unavailable(desired)) else {
        return Plan::default();
    };
    // Nodes that have pods or should have some.
    let nodes = || view.nodes.iter().filter(|node| node.verdict.should_run || !node.pods.is_empty());
    if surge > 0 {
        with_surge(view, nodes(), surge, desired, choices).unwrap_or_default()
    } else {
        let unavailable = if desired > 0 { unavailable.max(1) } else { unavailable };
        without_surge(view, nodes(), unavailable, choices)
    }
}

/// Old pods that are not available are replaced at once, others while fewer pods are unavailable than allowed.
fn without_surge<'a: 'b, 'b>(
    view: &View<'a>,
    nodes: impl Iterator<Item = &'b NodeState<'a>>,
    max_unavailable: usize,
    choices: &mut Choices,
) -> Plan<'a> {
    let mut unavailable = 0;
    let (mut delete, mut candidates) = (Vec::new(), Vec::new());
    for node in nodes {
        match NodePods::of(view, node) {
            NodePods::Pair { new: Some(new), old: None } => unavailable += usize::from(!view.is_available(new)),
            NodePods::Pair { new: None, old: Some(old) } if view.is_available(old) => candidates.push((old, node.name)),
            NodePods::Pair { new: None, old: Some(old) } => {
                delete.push(old);
                unavailable += 1;
            }
            NodePods::Pair { .. } | NodePods::TooMany => unavailable += 1,
        }
    }
    let allowed = max_unavailable.saturating_sub(unavailable);
    delete.extend(choose(view, candidates, allowed, choices).map(|(pod, _)| pod));
    Plan { delete, ..Plan::default() }
}

/// Old pods that are not available get a new one beside them at once, others while fewer such new pods wait than allowed.
/// An old pod goes when the new one is available.
fn with_surge<'a: 'b, 'b>(
    view: &View<'a>,
    nodes: impl Iterator<Item = &'b NodeState<'a>>,
    max_surge: usize,
    desired: usize,
    choices: &mut Choices,
) -> Option<Plan<'a>> {
    let (mut surge, mut available) = (0, 0);
    let (mut create, mut delete) = (Vec::new(), Vec::new());
    // Pods on nodes that should get new ones, and on nodes that should have none any more.
    let (mut candidates, mut leaving) = (Vec::new(), Vec::new());
    for node in nodes {
        let NodePods::Pair { new, old } = NodePods::of(view, node) else {
            surge += 1;
            continue;
        };
        available += usize::from(old.or(new).is_some_and(|pod| view.is_available(pod)));
        let Some(old) = old else { continue };
        let Some(new) = new else {
            if !node.exists {
                return None;
            }
            match (view.is_available(old), node.verdict.should_run) {
                (false, true) => create.push(node.name),
                (false, false) => delete.push(old),
                (true, true) => candidates.push((old, node.name)),
                (true, false) => leaving.push(old),
            }
            continue;
        };
        if view.is_available(new) { delete.push(old) } else { surge += 1 }
    }
    // Pods leave a node only when there are enough on the others.
    delete.extend(leaving.into_iter().take(available.saturating_sub(desired)));
    create.extend(choose(view, candidates, max_surge.saturating_sub(surge), choices).map(|(_, node)| node));
    Some(Plan { create, delete, ..Plan::default() })
}

/// Chooses candidates. Kubernetes takes them in the order of a map, which is chance.
fn choose<'a>(
    view: &View<'_>,
    mut candidates: Vec<(&'a Pod, &'a str)>,
    count: usize,
    choices: &mut Choices,
) -> impl Iterator<Item = (&'a Pod, &'a str)> {
    let mut chosen = Vec::new();
    if count >= candidates.len() {
        chosen = candidates;
    } else {
        for _ in 0..count {
            let names: Vec<&str> =
                candidates.iter().map(|(pod, _)| pod.metadata.name.as_deref().unwrap_or_default()).collect();
            let picked = choices.pick(Question::Victim { workload: view.key.to_string() }, &names);
            chosen.push(candidates.remove(picked));
        }
    }
    chosen.into_iter()
}
