//! The control loops, pure: what is there, what should be written, when to look again.
//!
//! Each loop reads a [`Store`] of objects as they were last seen, is told the time, and returns a [`Step`]: the writes
//! it wants, in order, and when to look again. It never writes by itself, so that the same step can be run against a
//! real cluster, or in a test with a crash between any two writes.
//!
//! Data flows one way: observed objects → [`Store`] → [`step`] → [`Write`]s → the runtime, which makes only those
//! that change something ([`applied::differs`]) and puts the answers back into the store. This crate knows no client,
//! no clock and no files.

pub mod applied;
mod concerned;
mod conditions;
mod control_plane;
mod finalizers;
mod glance;
mod glance_api;
mod ini;
mod kinds;
mod layout;
mod object;
pub mod ownership;
mod placement_rules;
mod references;
mod step;
mod store;
mod topology;
mod topology_ref;
mod turn;

pub use concerned::concerned;
pub use kinds::{READ_BY_NAME, WATCHED, Watched, trim};
pub use references::references;
pub use stead_model::{ObjectKey, Objects};
pub use step::{Event, Failure, Failures, MANAGER, Propagation, Settings, Step, World, Write};
pub use store::Store;

/// The kinds that have a loop. A queue works through keys of these kinds.
pub const RECONCILED: [&str; 4] = ["OpenStackControlPlane", "Glance", "GlanceAPI", "Topology"];

/// What the loop of this object's kind wants. An object that is gone wants nothing.
pub fn step(world: &World<'_>, key: &ObjectKey) -> Step {
    let Some(object) = world.store.get(key) else { return Step::default() };
    match key.kind.as_str() {
        "OpenStackControlPlane" => control_plane::step(world, object),
        "Glance" => glance::step(world, object),
        "GlanceAPI" => glance_api::step(world, object),
        "Topology" => topology::step(world, object),
        _ => Step::default(),
    }
}
