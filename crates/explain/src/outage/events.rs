//! What events tell about nodes.

use jiff::Timestamp;
use stead_model::{ObjectKey, Objects, PodView};

/// When a Node was deleted, as far as events tell. If pods were created on a node of this name since, it existed since.
pub(crate) fn node_gone(objects: &Objects, name: &str) -> Option<Timestamp> {
    let existed = objects.pods_on(name).filter_map(PodView::created).max();
    let events = objects.events_about(&ObjectKey::node(name), None);
    let gone = events.iter().rev().find(|event| event.reason == "RemovingNode" || event.reason == "DeletingNode");
    gone.and_then(|event| event.at).filter(|at| Some(*at) >= existed)
}
