//! DefaultPreemption: which pods would be evicted from which node to make room for the pod.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cycle::State;
use crate::go_sort::sort_slice;
use crate::node::NodeInfo;
use crate::pod::Pod;
use crate::status::{AttemptFault, Code, Plugin, ReasonCounts, Rejection, RejectionReason, SchedulingError};
use crate::verdict::Nominee;
use crate::wording::{not_eligible_message, preemption_errors, preemption_message};
use crate::workloads::Budget;

/// The result of PostFilter: an addition to the message, or the nodes that can be nominated.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) message: Option<String>,
    pub(crate) nominees: Vec<Nominee>,
    /// Whether the pod loses its nominated node: no node can be cleared for it. It keeps it while it waits for victims.
    pub(crate) clears_nomination: bool,
}

/// Why a pod may not preempt others now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotEligible {
    /// Its preemption policy is `Never`.
    NeverPreempts,
    /// A pod that it preempted is still terminating on its nominated node.
    PodTerminating,
}

/// The codes of the rejections of all nodes, in the order of their names; none for a node that fits.
pub(crate) type NodeCodes = [Option<Code>];

pub(crate) fn preempt<'a>(state: &State<'a>, cluster: &'a Cluster, pod: &Pod, codes: &NodeCodes) -> Outcome {
    let say = |message: String| Outcome { message: Some(message), ..Outcome::default() };
    let code_of = |node: &str| cluster.nodes().zip(codes).find(|(info, _)| *info.node.name == *node)?.1.as_ref();
    if let Err(why) = eligible(cluster, pod, |node| code_of(node).copied()) {
        return say(not_eligible_message(cluster.rules(), why));
    }
    let budgets: Vec<&Budget> = cluster.budgets().collect();
    let mut candidates: Vec<(Nominee, Vec<Arc<Pod>>)> = Vec::new();
    let mut statuses = ReasonCounts::default();
    let mut errors: Vec<SchedulingError> = Vec::new();
    let helped = codes.iter().filter(|code| **code == Some(Code::Unschedulable)).count();
    statuses.add(&RejectionReason::PreemptionNotHelpful, codes.len() - helped);
    // A look at every pod of every node is slow.
    if !cluster.has_below(pod.spec.priority) {
        statuses.add(&RejectionReason::NoPreemptionVictims, helped);
        let message = preemption_message(cluster.rules(), codes.len(), statuses.iter());
        return Outcome { clears_nomination: true, ..say(message) };
    }
    for (info, _) in cluster.nodes().zip(codes).filter(|(_, code)| **code == Some(Code::Unschedulable)) {
        match victims_on(state, info, pod, &budgets) {
            Ok((victims, violations)) if !victims.is_empty() => {
                let nominee = Nominee {
                    node: Arc::clone(&info.node.name),
                    victims: victims.iter().map(|p| p.key.clone()).collect(),
                    violations,
                };
                candidates.push((nominee, victims));
            }
            Ok(_) => errors.push(SchedulingError::NoVictimOnNode((*info.node.name).into())),
            Err(AttemptFault::Rejected(rejection)) => statuses.add_all(&rejection),
            Err(AttemptFault::Error(error)) => errors.push(error),
        }
    }
    if !candidates.is_empty() {
        return Outcome { nominees: best(candidates), ..Outcome::default() };
    }
    if !errors.is_empty() {
        errors.dedup();
        return say(preemption_errors(&errors));
    }
    let message = preemption_message(cluster.rules(), codes.len(), statuses.iter());
    Outcome { clears_nomination: true, ..say(message) }
}

/// What preemption adds to the message where every node is rejected beyond its help, and whether the pod loses its
/// nominated node.
pub(crate) fn without_candidates(cluster: &Cluster, pod: &Pod, code: Code) -> (String, bool) {
    let nodes = cluster.node_count();
    match eligible(cluster, pod, |node| cluster.node(node).map(|_| code)) {
        Err(why) => (not_eligible_message(cluster.rules(), why), false),
        Ok(()) => {
            let unhelpful = std::iter::once((&RejectionReason::PreemptionNotHelpful, nodes));
            (preemption_message(cluster.rules(), nodes, unhelpful), true)
        }
    }
}

/// Checks whether the pod may preempt others now.
fn eligible(cluster: &Cluster, pod: &Pod, code_of: impl Fn(&str) -> Option<Code>) -> Result<(), NotEligible> {
    if pod.spec.never_preempts {
        return Err(NotEligible::NeverPreempts);
    }
    let Some(node) = &pod.nominated else { return Ok(()) };
    // The nominated node is no longer possible: the pod may try others.
    if code_of(node).is_none_or(|code| code == Code::Unresolvable) {
        return Ok(());
    }
    let waiting = |info: &NodeInfo| info.pods.iter().any(|p| p.spec.priority < pod.spec.priority && p.preempted);
    if cluster.node(node).is_some_and(waiting) {
        return Err(NotEligible::PodTerminating);
    }
    Ok(())
}

/// Whether a pod is more important than another: by priority, then by age (`MoreImportantPod`). kube-scheduler uses the
/// current time for a pod that has not started, so of two such pods each is more important than the other.
fn more_important(a: &Arc<Pod>, b: &Arc<Pod>) -> bool {
    match a.spec.priority.cmp(&b.spec.priority) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal => match (a.started, b.started) {
            (Some(a), Some(b)) => a < b,
            (started, _) => started.is_some() || b.started.is_none(),
        },
    }
}

/// The pods to evict from a node, and how many of them a disruption budget protects (`SelectVictimsOnNode`).
fn victims_on<'a>(
    state: &State<'a>,
    info: &'a NodeInfo,
    pod: &Pod,
    budgets: &[&Budget],
) -> Result<(Vec<Arc<Pod>>, usize), AttemptFault> {
    let node = &*info.node;
    let mut potential: Vec<Arc<Pod>> =
        info.pods.iter().filter(|p| p.spec.priority < pod.spec.priority).cloned().collect();
    if potential.is_empty() {
        return Err(AttemptFault::Rejected(Rejection::new(
            Plugin::DefaultPreemption,
            Code::Unresolvable,
            RejectionReason::NoPreemptionVictims,
        )));
    }
    let mut state = state.clone();
    let mut without = info.clone();
    for victim in &potential {
        without.remove(&victim.key);
        state.update(victim, node, -1);
    }
    state.filter_with_nominated(&without, node)?;
    // kube-scheduler has them in the order of the API server's list.
    potential.sort_by(|a, b| a.key.cmp(&b.key));
    sort_slice(&mut potential, more_important);
    let (protected, others) = split_by_budget(potential, budgets);
    let both = !protected.is_empty() && !others.is_empty();
    let mut victims = Vec::new();
    let mut violations = 0;
    let protected_count = protected.len();
    for (i, candidate) in protected.into_iter().chain(others).enumerate() {
        // Each is added back, the most important first, and reprieved if the pod still fits.
        without.add(Arc::clone(&candidate));
        state.update(&candidate, node, 1);
        if state.filter_with_nominated(&without, node).is_err() {
            without.remove(&candidate.key);
            state.update(&candidate, node, -1);
            violations += usize::from(i < protected_count);
            victims.push(candidate);
        }
    }
    if both {
        sort_slice(&mut victims, more_important);
    }
    Ok((victims, violations))
}

/// The pods whose eviction would violate a budget, and the others.
fn split_by_budget(pods: Vec<Arc<Pod>>, budgets: &[&Budget]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut allowed: Vec<i32> = budgets.iter().map(|b| b.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut violated = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if budget.covers(pod) {
                *allowed = allowed.wrapping_sub(1);
                violated |= *allowed < 0;
            }
        }
        violated
    })
}

/// The best candidates, of which kube-scheduler picks one at random (`pickOneNodeForPreemption`).
fn best(candidates: Vec<(Nominee, Vec<Arc<Pod>>)>) -> Vec<Nominee> {
    let rank = |(nominee, victims): &(Nominee, Vec<Arc<Pod>>)| {
        let highest = victims[0].spec.priority;
        let sum: i64 = victims.iter().map(|v| i64::from(v.spec.priority) + (1 << 31)).sum();
        let eldest = victims.iter().filter(|v| v.spec.priority == highest).filter_map(|v| v.started).min();
        (nominee.violations, highest, sum, victims.len(), Reverse(eldest.unwrap_or(i128::MAX)))
    };
    let Some(first) = candidates.iter().map(rank).min() else { return Vec::new() };
    candidates.into_iter().filter(|c| rank(c) == first).map(|(nominee, _)| nominee).collect()
}
