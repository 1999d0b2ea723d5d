//! The CronJob controller (`pkg/controller/cronjob`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct CronJobs {}

impl Controller for CronJobs {
    const COMPONENT: &'static str = "cronjob-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
