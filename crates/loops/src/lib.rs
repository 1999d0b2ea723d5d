//! The control loops, without a client: which objects are observed, which writes follow, when to run again.
//!
//! Each loop reads a [`Store`] of objects as they were last observed, is told the time, and returns a [`LoopStep`]: the writes
//! it wants, in order, and when to run again. It never writes by itself, so that the same step can be executed on a real
//! cluster, or in a test with a crash between any two writes.
//!
//! Data flows one way: observed objects → [`Store`] → [`step`] → [`Write`]s → the runtime, which executes only those
//! that change something ([`applied::differs`]) and puts the answers back into the store. Objects are parsed once, when
//! they are first read from the store; a malformed one is reported in its conditions. This crate knows no client, no
//! clock and no files.

mod affected;
pub mod applied;
mod conditions;
mod control_plane;
mod finalizers;
pub mod foreign_fields;
mod glance;
mod glance_api;
mod ini;
mod inputs;
mod kinds;
mod layout;
mod malformed;
mod managed_fields;
mod metadata;
mod optional;
mod owner;
pub mod ownership;
mod placement_rules;
pub mod recent_events;
mod reconciliation;
mod references;
mod secret;
mod step;
mod store;
mod topology;
mod topology_ref;

pub use affected::affected;
pub use kinds::{READ_BY_NAME, WATCHED, Watched, trim};
pub use managed_fields::managed_fields;
pub use references::references;
use stead_model::ModelError;
pub use stead_model::{ObjectKey, ObjectRef, Objects};
pub use step::{Failure, Failures, LoopEvent, LoopSettings, LoopStep, MANAGER, Propagation, World, Write};
pub use store::{Store, revision};

/// The kinds that have a loop.
pub const RECONCILED: [&str; 4] = ["OpenStackControlPlane", "Glance", "GlanceAPI", "Topology"];

/// The step of the loop of this object's kind. For an object that does not exist there is nothing to do.
pub fn step(world: &World<'_>, key: &ObjectKey) -> LoopStep {
    let Some(object) = world.store.object(key) else { return LoopStep::default() };
    well_formed(world, object).unwrap_or_else(|error| malformed::step(world, object, &error))
}

fn well_formed(world: &World<'_>, object: ObjectRef<'_>) -> Result<LoopStep, ModelError> {
    Ok(match object.key().kind.as_str() {
        "OpenStackControlPlane" => control_plane::step(world, object, object.typed()?),
        "Glance" => glance::step(world, object, object.typed()?),
        "GlanceAPI" => glance_api::step(world, object, object.typed()?),
        "Topology" => topology::step(world, object.typed()?),
        _ => LoopStep::default(),
    })
}
