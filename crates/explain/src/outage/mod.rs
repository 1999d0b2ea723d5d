//! Unreachable and deleted nodes: their health, their pods and volumes, why pods wait for them, and what each option leads to.

mod causes;
mod cluster_timers;
mod events;
mod eviction;
mod forecast;
mod holders;
mod moment;
mod never;
mod node;
mod on_node;
mod render;
mod risk;
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
pub(crate) use forecast::{Future, Scene, forecasts};
pub(crate) use node::{check_nodes, is_on_not_ready_node};
pub(crate) use render::render_forecasts;
pub(crate) use time_text::{span, when};
