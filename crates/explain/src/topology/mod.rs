//! A Topology: its rules, who uses it, its effect on them, and its problems.
//!
//! [`troubles`] needs no more than the Topology, the nodes and the labels of its consumers' pods, so that a control
//! loop can ask it too. [`explain()`] looks at the whole cluster.

mod carries;
mod explanation;
mod render;
mod rules;
mod troubles;
mod words;

pub(crate) use carries::{constraints, node_affinity, same_rule};
pub use explanation::{Count, TopologyExplanation, Use, explain};
pub(crate) use explanation::{stateful_set, there_are};
pub use render::render;
pub(crate) use rules::Rules;
pub use troubles::{Consumer, Effect, Trouble, TroubleReason, troubles};
