//! The CustomResourceDefinitions of the kinds that Stead manages.

use crate::manifest::{Manifest, Part};
use crate::schema;

const TEXTS: [&str; 4] = [
    include_str!("../crds/topologies.yaml"),
    include_str!("../crds/glances.yaml"),
    include_str!("../crds/glanceapis.yaml"),
    include_str!("../crds/openstackcontrolplanes.yaml"),
];

/// The definitions of the kinds that the operator manages.
pub fn definitions() -> Vec<Manifest> {
    TEXTS.iter().map(|text| definition(text)).collect()
}

/// The definition of NodeRecovery. `stead recover` installs it; no operator manages it.
pub fn recovery() -> Manifest {
    definition(include_str!("../crds/noderecoveries.yaml"))
}

fn definition(text: &str) -> Manifest {
    let object = schema::expand(crate::read(text));
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Manifest::new(Part::Definitions, "customresourcedefinitions", object).about(&name).versioned()
}
