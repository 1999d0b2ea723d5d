//! What Stead installs: definitions, policies, rights, the operator's own workload.

mod policies;
mod schema;

use serde_json::Value;

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("a manifest of our own cannot be read: {error}"))
}

/// Definitions.
pub fn definitions() -> Vec<Value> {
    [
        include_str!("../crds/topologies.yaml"),
        include_str!("../crds/glances.yaml"),
        include_str!("../crds/glanceapis.yaml"),
        include_str!("../crds/openstackcontrolplanes.yaml"),
    ]
    .map(|text| schema::expand(read(text)))
    .to_vec()
}

pub fn pols() -> Vec<Value> {
    policies::policies().into_iter().flat_map(|p| p.objects).collect()
}
