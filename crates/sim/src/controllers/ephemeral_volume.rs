//! Creates the claims of generic ephemeral volumes (`pkg/controller/volume/ephemeral`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct EphemeralVolumes {}

impl Controller for EphemeralVolumes {
    const COMPONENT: &'static str = "ephemeral_volume";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
