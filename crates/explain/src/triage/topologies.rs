//! Topologies that nothing can satisfy.

use stead_model::Topology;
use stead_semantics::Labels;

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};
use crate::topology::{ProblemEffect, problems};

/// Assigns the Topologies that block new pods.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    for (key, topology) in evidence.objects.all::<Topology>() {
        if let Some(problem) = blocking_problem(evidence, topology) {
            roots.assign(key, Root::new(StuckCause::TopologyUnsatisfiable, key.clone()), &problem);
        }
    }
}

/// The problem by which a Topology blocks new pods.
pub(super) fn blocking_problem(evidence: &Evidence<'_>, topology: &Topology) -> Option<String> {
    let labels = |node: stead_model::NodeView<'_>| -> Labels {
        node.typed().metadata.labels.clone().unwrap_or_default().into_iter().collect()
    };
    let nodes: Vec<(&str, Labels)> = evidence.objects.nodes().map(|node| (node.name(), labels(node))).collect();
    let found = problems(topology, &nodes, &[]);
    found.into_iter().find(|problem| problem.effect == ProblemEffect::Blocks).map(|problem| problem.message)
}
