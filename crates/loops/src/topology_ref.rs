//! References to a Topology.

use stead_model::TopologyRef;

/// Why a reference is not followed: it names another namespace than that of its object. Admission policies refuse it as
/// well, in clusters that have them (Kubernetes 1.30 and newer).
pub(crate) fn other_namespace(reference: &Option<TopologyRef>, own: &str) -> Option<String> {
    let named = reference.as_ref()?.namespace.as_deref().filter(|named| !named.is_empty() && *named != own)?;
    Some(format!(
        "spec.topologyRef.namespace: Invalid value: \"{named}\": Customizing namespace field is not supported"
    ))
}

/// The name of the Topology that is referred to. A reference without a name is none: it opts out of what it would
/// inherit.
pub(crate) fn topology(reference: &Option<TopologyRef>) -> Option<&str> {
    reference.as_ref().and_then(TopologyRef::topology)
}
