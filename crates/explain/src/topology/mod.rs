//! A Topology: its rules, who uses it, its effect on them, and its problems.
//!
//! [`problems`] needs no more than the Topology, the nodes and the labels of its consumers' pods, so that a control
//! loop can ask it too. [`explain()`] looks at the whole cluster.

mod describe;
mod explanation;
mod problems;
mod render;
mod rules;
mod rules_in_pod;
mod service_status;
mod upstream;
mod users;

pub use explanation::{DomainCounts, TopologyExplanation, TopologyUse, explain};
pub(crate) use explanation::{readiness, there_are};
pub use problems::{ProblemEffect, ProblemReason, TopologyConsumer, TopologyProblem, problems};
pub use render::render;
pub(crate) use rules::Rules;
pub(crate) use rules_in_pod::{constraints, has_rules_of, node_affinity, same_rule};
pub use service_status::{ServiceStatus, service_status};
pub(crate) use upstream::{Examined, of_object};
pub use upstream::{UpstreamDefect, UpstreamFinding};
pub use users::{
    HolderState, TopologyHolder, TopologyUser, UnsatisfiableTopology, holders, named_holders, unsatisfiable, users,
};
pub(crate) use users::{Workloads, pods_of_workload, wanted};
