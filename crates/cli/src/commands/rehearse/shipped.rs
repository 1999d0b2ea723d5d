//! The rehearsals that are part of the program: the field reports.

/// A file with rehearsals.
#[derive(Debug)]
pub(crate) struct ShippedFile {
    /// The name on the command line, and of the file.
    pub(crate) name: &'static str,
    /// What it shows, in a sentence.
    pub(crate) about: &'static str,
    /// The file.
    pub(crate) text: &'static str,
}

macro_rules! shipped {
    ($($name:literal $about:literal)*) => {
        &[$(ShippedFile {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../../../../examples/rehearsals/", $name, ".yaml")),
        },)*]
    };
}

/// All of them, in the order of the reports.
pub(crate) const SHIPPED: &[ShippedFile] = shipped! {
    "glance" "OpenStack Glance over three zones, and a machine that is suspended for a weekend"
    "glance-topology" "the same report before the failure: spreading over zones on one node and on seven"
    "cinder" "a Deployment with one Cinder volume: deleted pods, and a node that is shut down"
    "cinder-zone" "both nodes of an availability zone shut down, and a volume that is not released"
    "gluster" "a GlusterFS StatefulSet that is scaled, loses a pod, a node, and all nodes"
};
