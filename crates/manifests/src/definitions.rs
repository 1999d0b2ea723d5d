//! The definitions of the kinds that Stead looks after.

use crate::manifest::{Manifest, Part};
use crate::schema;

const TEXTS: [&str; 4] = [
    include_str!("../crds/topologies.yaml"),
    include_str!("../crds/glances.yaml"),
    include_str!("../crds/glanceapis.yaml"),
    include_str!("../crds/openstackcontrolplanes.yaml"),
];

/// All definitions.
pub(crate) fn definitions() -> Vec<Manifest> {
    let definition = |text: &&str| {
        let object = schema::expand(crate::read(text));
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Manifest::new(Part::Definitions, "customresourcedefinitions", object).about(&name).versioned()
    };
    TEXTS.iter().map(definition).collect()
}
