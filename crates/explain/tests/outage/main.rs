//! Pods that are Terminating or do not start: why, and what each way out leads to.

mod absurd;
mod complete;
mod forecasts;
mod nodes;
mod recordings;
mod situation;
mod texts;
