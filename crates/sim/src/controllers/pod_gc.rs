//! The pod garbage collector (`pkg/controller/podgc`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodGc {}

impl Controller for PodGc {
    const COMPONENT: &'static str = "pod-garbage-collector";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
