//! How long Kubernetes waits for what, and how often it looks.

pub(crate) use stead_forecast::LOST;
pub use stead_forecast::{Clock, Timers};
