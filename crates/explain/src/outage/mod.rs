//! What the loss of a node means: how a node stands, what hangs on it, why pods wait for it, and the ways out.

mod course;
mod detaching;
mod events;
mod eviction;
mod fate;
mod forecast;
mod jobs;
mod makers;
mod moment;
mod node;
mod on_node;
mod placing;
mod pod;
mod render;
mod risk;
mod rollout;
mod stages;
mod starting;
mod timers;
mod times;
mod volumes;
mod way;
mod why;
mod words;

pub use forecast::Forecast;
pub use moment::{controllers_since, newest};
pub use node::{BootId, LeaseSeen, Listening, NodeStanding, OUT_OF_SERVICE, Readiness, SHUTDOWN, UNREACHABLE};
pub use on_node::{
    Fares, NodeExplanation, NodeForecast, PodForecast, PodOnNode, VolumeOnNode, explain_node, render_node,
};
pub use timers::{Clock, Timers};
pub use times::{CENTURY, is_near};
pub use volumes::{Attachment, HeldVolume, volumes_of};
pub use way::{Step, Way};

pub(crate) use forecast::{Scene, forecasts};
pub(crate) use pod::PodSeen;
pub(crate) use render::render_forecasts;
pub(crate) use why::Why;
pub(crate) use words::when;
