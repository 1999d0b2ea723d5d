//! An OpenStackControlPlane: its services, which Topology each follows and why, and where their pods and volumes are.

mod explanation;
mod render;

pub use explanation::{ControlPlaneExplanation, SectionState, ServiceState, explain};
pub use render::render;
