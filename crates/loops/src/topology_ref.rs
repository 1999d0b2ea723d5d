//! References to a Topology.

use stead_model::TopologyRef;

/// The name of the Topology that is referred to. A reference without a name is none: it opts out of what it would
/// inherit.
pub(crate) fn topology(reference: &Option<TopologyRef>) -> Option<&str> {
    reference.as_ref().and_then(TopologyRef::topology)
}
