//! Unreachable and deleted nodes: their health, their pods and volumes, why pods wait for them, and what each option leads to.

mod causes;
mod cluster_timers;
mod course;
mod detaching;
mod events;
mod eviction;
mod fate;
mod forecast;
mod jobs;
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
mod time_text;
mod timers;
mod way;

pub use cluster_timers::{ClusterTimers, interval};
pub use forecast::Forecast;
pub use moment::{controllers_since, newest};
pub use on_node::{
    Fares, NodeExplanation, NodeForecast, PodForecast, PodOnNode, VolumeOnNode, explain_node, forecast_release,
    render_node,
};
pub use stead_forecast::TimerSetting;
pub use timers::{Clock, Timers};
pub use way::{Step, Way};

pub(crate) use causes::OutageExplainer;
pub(crate) use cluster_timers::render_settings;
pub(crate) use forecast::{Scene, forecasts};
pub(crate) use node::check_nodes;
pub(crate) use render::render_forecasts;
pub(crate) use time_text::{span, when};
