//! What would happen if: commands and failures, played in a simulated cluster.
//!
//! A [`Rehearsal`] says where the cluster comes from and what is done, what fails and what is expected in it. A [`Scene`] is
//! the cluster in which it begins. [`play`] plays it there and returns what happened ([`Run`]): a story for people, results
//! for CI, a page with a timeline. [`Arm`] is the place where it is played: the simulation, or a real cluster.
//! `kubectl/` executes kubectl's commands on a simulation, [`SteadOperator`] runs Stead's own loops in it. This crate
//! predicts nothing by itself: the simulation does.

mod arm;
mod duration;
mod example;
mod expectation;
mod kubectl;
mod markup;
mod operator;
mod page;
mod play;
mod pod_table;
mod rehearsal;
mod report;
mod scene;
mod schema;
mod story;

pub use arm::Arm;
pub use duration::HumanDuration;
pub use example::{EXAMPLES, ExampleCluster};
pub use expectation::{
    ConditionExpectation, EventExpectation, ExecExpectation, Expectation, FieldExpectation, ServingExpectation,
    VolumeExpectation, WritersExpectation,
};
pub use kubectl::{CommandError, Manifests, execute};
pub use operator::SteadOperator;
pub use page::{PageRun, page};
pub use play::{PlayedStep, Run, StepError, StepKind, play, play_steps};
pub use pod_table::{COLUMNS, PodRow, age, table};
pub use rehearsal::{
    API_VERSION, ClusterSource, FailureKind, FailureTarget, Rehearsal, RehearsalError, RehearsalMetadata,
    RehearsalStep, WaitFor, WaitStep, WorkloadTiming,
};
pub use report::{RunReport, StepReport, junit};
pub use scene::{ClusterObjects, Scene};
pub use schema::schema;
pub use story::{Consequence, StoryOptions, consequences, render};
