//! The Job controller (`pkg/controller/job`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {}

impl Controller for Jobs {
    const COMPONENT: &'static str = "job-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
