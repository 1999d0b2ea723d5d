//! What an outage and each option lead to.
//!
//! Data flows one way: objects and their time → a simulation that resumes the cluster (`snapshot.rs`) → a fork for each
//! option (`option.rs`) → a run that follows pods and the pods that replace them (`run.rs`, `line.rs`) until each is Ready
//! or nothing that they depend on changes any more (`rest.rs`) → an [`Outlook`] for each pod: typed facts, which others
//! put into words.
//!
//! Nothing here predicts what Kubernetes does: that is the simulation's part. This crate knows no client, no clock (callers
//! pass the time) and no files.

mod bounds;
mod delays;
mod end;
mod identity;
mod line;
mod option;
mod outlook;
mod part;
mod rest;
mod run;
mod settings;
mod snapshot;
mod stand_in;
mod start_failure;
mod timers;

pub use option::Intervention;
pub use outlook::{Milestone, Outcome, Outlook, TieWithUnreachable, Uncertainty};
pub use run::{Forecaster, Run};
pub use start_failure::StartFailure;
pub use timers::{Clock, TimerSetting, Timers};
