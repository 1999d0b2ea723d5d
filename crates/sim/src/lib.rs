//! A Kubernetes cluster on virtual time: what Kubernetes does next.
//!
//! A [`Simulation`] has the objects of a cluster ([`Store`]), an API server that keeps its rules (`api/`), the
//! components that work on them (`controllers/`, one file each), and the machines, disks and processes behind them
//! ([`World`]). Each component has the shape of every control loop ([`Controller`]): it reads a [`Context`], is told the
//! time, and returns writes and when to look again.
//!
//! Data flows in a circle: a write changes an object → every component says which of its items that concerns → the work
//! queue → the next step in the order of virtual time → writes. Between two steps no time passes that nobody waits for:
//! twelve minutes of failure take as many steps as things happen in them, and the heartbeats of healthy nodes are implied.
//!
//! A copy of a simulation is a fork. The same settings, objects, requests and [`Choices`] give the same bytes. This
//! crate knows no client, no wall clock and no files.

mod api;
mod budgets;
mod choices;
mod controllers;
mod error;
mod event_correlation;
mod event_log;
mod grid;
mod int_or_percent;
mod loop_grid;
mod machines;
mod nodes;
mod object;
mod ownership;
mod pod_groups;
mod pods;
mod settings;
mod simulation;
mod step;
mod store;
#[cfg(test)]
mod test_cluster;
mod volumes;
mod work_queue;
mod workload;
mod world;

pub use api::ApiServer;
pub use choices::{Choices, ImpossibleAnswer, Question, RecordedAnswers};
pub use controllers::ControllerId;
pub use error::{ApiError, LimitReached};
pub use event_log::{EventLog, EventNote, SimEvent};
pub use machines::{MachineSpec, NoMachine, NodeDriver};
pub use object::{ObjectKind, SimKey, SimObject, SimType, UntypedObject};
pub use settings::{
    ControllerTimers, DriverSettings, DriverState, KubeletDelays, KubeletForm, Limits, Settings, ShutdownGrace,
    StorageSettings, WorkloadDelays,
};
pub use simulation::{Happening, Simulation};
pub use step::{
    Context, Controller, DeleteOptions, DeletePropagation, Item, ObjectPart, Operator, Patch, Step, Wakes, Write,
};
pub use store::{Change, Store};
pub use volumes::attachment_name;
pub use workload::{Behaviour, Workload};
pub use world::{Disk, Machine, MachineState, Process, TwoWriters, World};
