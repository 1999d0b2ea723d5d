//! A Glance: its APIs, what their pods wait for, and which Topology each follows.

mod explanation;
mod render;

pub use explanation::{GlanceApiState, GlanceExplanation, explain};
pub use render::render;
