//! How long Kubernetes waits for what, and how often it looks.

pub use stead_forecast::{Clock, Timers};
