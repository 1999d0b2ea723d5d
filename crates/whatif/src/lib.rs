//! What would happen if: commands and failures, played in a simulated cluster.
//!
//! A [`Rehearsal`] says where the cluster comes from and what is done, what fails and what is expected in it. [`play`]
//! plays it on a [`stead_sim::Simulation`] and returns what happened ([`Run`]): a story for people, results for CI.
//! `kubectl/` executes kubectl's commands on a simulation, [`SteadOperator`] runs Stead's own loops in it. This crate predicts nothing by itself: the simulation does.

mod duration;
mod expectation;
mod kubectl;
mod operator;
mod pattern;
mod play;
mod pod_table;
mod rehearsal;
mod report;
mod row_matching;
mod story;

pub use duration::HumanDuration;
pub use expectation::{
    ConditionExpectation, EventExpectation, Expectation, FieldExpectation, ServingExpectation, WritersExpectation,
};
pub use kubectl::{CommandError, Manifests, execute};
pub use operator::SteadOperator;
pub use play::{PlayedStep, Run, play};
pub use pod_table::{COLUMNS, PodRow, age, table};
pub use rehearsal::{
    API_VERSION, ClusterSource, FailureKind, FailureTarget, Rehearsal, RehearsalError, RehearsalMetadata,
    RehearsalStep, WaitFor, WaitStep, WorkloadTiming,
};
pub use report::{RunReport, StepReport, junit};
pub use story::{Consequence, StoryOptions, consequences, render};
