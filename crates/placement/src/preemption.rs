//! DefaultPreemption: which pods would be evicted from which node to make room for the pod.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cycle::State;
use crate::go_sort::sort_slice;
use crate::node::NodeInfo;
use crate::pod::Pod;
use crate::status::{AttemptFault, Code, Plugin, Rejection, RejectionReason, SchedulingError};
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

pub(crate) fn preempt<'a>(
    state: &State<'a>,
    cluster: &'a Cluster,
    pod: &Pod,
    rejected: &BTreeMap<Arc<str>, Rejection>,
) -> Outcome {
    let say = |message: String| Outcome { message: Some(message), ..Outcome::default() };
    if let Err(why) = eligible(cluster, pod, rejected) {
        return say(not_eligible_message(cluster.rules(), why));
    }
    let budgets: Vec<&Budget> = cluster.budgets().collect();
    let mut candidates: Vec<(Nominee, Vec<Arc<Pod>>)> = Vec::new();
    let mut statuses: Vec<Rejection> = Vec::new();
    let mut errors: Vec<SchedulingError> = Vec::new();
    let mut unresolvable = 0;
    let victims_exist = cluster.has_below(pod.spec.priority);
    for info in cluster.nodes() {
        if rejected.get(&info.node.name).is_none_or(|r| r.code != Code::Unschedulable) {
            unresolvable += 1;
            continue;
        }
        // A look at every pod of every node is slow.
        let victims = if victims_exist { victims_on(state, info, pod, &budgets) } else { Err(no_victims()) };
        match victims {
            Ok((victims, violations)) if !victims.is_empty() => {
                let nominee = Nominee {
                    node: Arc::clone(&info.node.name),
                    victims: victims.iter().map(|p| p.key.clone()).collect(),
                    violations,
                };
                candidates.push((nominee, victims));
            }
            Ok(_) => errors.push(SchedulingError::NoVictimOnNode((*info.node.name).into())),
            Err(AttemptFault::Rejected(rejection)) => statuses.push(rejection),
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
    let reasons = statuses.iter().flat_map(|r| &r.reasons);
    let unhelpful = std::iter::repeat_n(&RejectionReason::PreemptionNotHelpful, unresolvable);
    let message = preemption_message(cluster.rules(), cluster.node_count(), reasons.chain(unhelpful));
    Outcome { clears_nomination: true, ..say(message) }
}

/// What preemption adds to the message where every node is rejected beyond its help, and whether the pod loses its
/// nominated node.
pub(crate) fn without_candidates(
    cluster: &Cluster,
    pod: &Pod,
    rejected: &BTreeMap<Arc<str>, Rejection>,
) -> (String, bool) {
    let nodes = cluster.node_count();
    match eligible(cluster, pod, rejected) {
        Err(why) => (not_eligible_message(cluster.rules(), why), false),
        Ok(()) => {
            let unhelpful = std::iter::repeat_n(&RejectionReason::PreemptionNotHelpful, nodes);
            (preemption_message(cluster.rules(), nodes, unhelpful), true)
        }
    }
}

/// Checks whether the pod may preempt others now.
fn eligible(cluster: &Cluster, pod: &Pod, rejected: &BTreeMap<Arc<str>, Rejection>) -> Result<(), NotEligible> {
    if pod.spec.never_preempts {
        return Err(NotEligible::NeverPreempts);
    }
    let Some(node) = &pod.nominated else { return Ok(()) };
    // The nominated node is no longer possible: the pod may try others.
    if rejected.get(&**node).is_none_or(|r| r.code == Code::Unresolvable) {
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

fn no_victims() -> AttemptFault {
    let reason = RejectionReason::NoPreemptionVictims;
    AttemptFault::Rejected(Rejection::new(Plugin::DefaultPreemption, Code::Unresolvable, reason))
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
        return Err(no_victims());
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
