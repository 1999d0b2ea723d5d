//! NodeResourcesFit and NodeResourcesBalancedAllocation.
//!
//! Amounts that exceed 64 bits wrap around, as in kube-scheduler.

use super::MAX_SCORE;
use crate::node::NodeInfo;
use crate::pod::PodSpec;
use crate::profile::FitStrategy;
use crate::resources::ResourceName;
use crate::status::{AttemptFault, Code, Filtered, Plugin, Rejection, RejectionReason};
use crate::version_rules::VersionRules;

pub(crate) fn filter(pod: &PodSpec, info: &NodeInfo, rules: &VersionRules) -> Filtered {
    let mut reasons = Vec::new();
    let mut code = Code::Unschedulable;
    let want = &pod.resources.requests;
    let has = &info.node.allocatable;
    let taken = &info.requested;
    if info.pods.len() as i64 + 1 > info.node.max_pods {
        reasons.push(RejectionReason::TooManyPods);
    }
    let mut check = |want: i64, has: i64, taken: i64, name: &dyn Fn() -> ResourceName| {
        if want > 0 && want > has.wrapping_sub(taken) {
            reasons.push(RejectionReason::InsufficientResource(name()));
            if want > has && rules.unresolvable_requests {
                code = Code::Unresolvable;
            }
        }
    };
    check(want.milli_cpu, has.milli_cpu, taken.milli_cpu, &|| ResourceName::Cpu);
    check(want.memory, has.memory, taken.memory, &|| ResourceName::Memory);
    check(want.ephemeral_storage, has.ephemeral_storage, taken.ephemeral_storage, &|| ResourceName::EphemeralStorage);
    for (name, want) in &want.scalars {
        check(*want, has.scalar(name), taken.scalar(name), &|| ResourceName::Scalar(name.clone()));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(AttemptFault::Rejected(Rejection { plugin: Plugin::NodeResourcesFit, code, reasons }))
}

/// LeastAllocated or MostAllocated over cpu and memory, each with weight 1.
pub(crate) fn score(pod: &PodSpec, info: &NodeInfo, strategy: FitStrategy) -> i64 {
    let has = &info.node.allocatable;
    let (cpu, memory) = pod.resources.fit_score;
    let requested = [info.nonzero_cpu.wrapping_add(cpu), info.nonzero_memory.wrapping_add(memory)];
    allocated([(requested[0], has.milli_cpu), (requested[1], has.memory)], strategy)
}

fn allocated(resources: [(i64, i64); 2], strategy: FitStrategy) -> i64 {
    let (mut sum, mut count) = (0, 0);
    for (requested, has) in resources {
        if has == 0 {
            continue;
        }
        match strategy {
            FitStrategy::LeastAllocated if requested > has => {}
            FitStrategy::LeastAllocated => sum += has.wrapping_sub(requested).wrapping_mul(MAX_SCORE) / has,
            FitStrategy::MostAllocated => sum += requested.min(has).wrapping_mul(MAX_SCORE) / has,
        }
        count += 1;
    }
    if count == 0 { 0 } else { sum / count }
}

/// Whether balance is scored for the pod. A pod that requests neither cpu nor memory does not change it.
pub(crate) fn scores_balance(pod: &PodSpec, rules: &VersionRules) -> bool {
    !rules.skips_best_effort || pod.resources.balance_score != (0, 0)
}

/// How balanced the node's use of cpu and memory is with the pod, or how much the pod improves it.
pub(crate) fn balance_score(pod: &PodSpec, info: &NodeInfo, rules: &VersionRules) -> i64 {
    let has = [info.node.allocatable.milli_cpu, info.node.allocatable.memory];
    let taken = [info.requested.milli_cpu, info.requested.memory];
    let (cpu, memory) = pod.resources.balance_score;
    let with = balance([taken[0].wrapping_add(cpu), taken[1].wrapping_add(memory)], has);
    if !rules.balance_improvement {
        return with;
    }
    let without = balance(taken, has);
    MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
}

/// One minus the standard deviation of the fractions in use; the deviation is zero for a single resource.
fn balance(taken: [i64; 2], has: [i64; 2]) -> i64 {
    let fraction = |i: usize| (taken[i] as f64 / has[i] as f64).min(1.0);
    let deviation = if has[0] == 0 || has[1] == 0 { 0.0 } else { ((fraction(0) - fraction(1)) / 2.0).abs() };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
