//! Keeps volumes that are bound (`pkg/controller/volume/pvprotection`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeProtection {}

impl Controller for VolumeProtection {
    const COMPONENT: &'static str = "pv-protection-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
