//! Keeps claims that pods use (`pkg/controller/volume/pvcprotection`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimProtection {}

impl Controller for ClaimProtection {
    const COMPONENT: &'static str = "pvc-protection-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
