//! kube-scheduler: its queue, back-off, binding and preemption. The decision itself is `stead_placement`.

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scheduler {}

impl Controller for Scheduler {
    const COMPONENT: &'static str = "default-scheduler";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
