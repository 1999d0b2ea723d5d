//! The PersistentVolume binder (`pkg/controller/volume/persistentvolume`).

use crate::step::{Context, Controller, Item, Step, Wakes};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeBinder {}

impl Controller for VolumeBinder {
    const COMPONENT: &'static str = "persistentvolume-controller";

    fn affected(&mut self, _cx: &mut Context<'_>, _change: &Change, _wakes: &mut Wakes) {}

    fn step(&mut self, _cx: &mut Context<'_>, _item: &Item) -> Step {
        Step::none()
    }
}
