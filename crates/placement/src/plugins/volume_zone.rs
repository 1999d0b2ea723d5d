//! VolumeZone: volumes with labels for their zone or region.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::pod::{PodSpec, Volume};
use crate::status::{AttemptFault, Code, Filtered, Plugin, Rejection, RejectionReason, reject};

const KEYS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The current name of a deprecated key.
fn current(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        other => other,
    }
}

/// The zones and regions of the pod's volumes: by label, the allowed values.
#[derive(Debug, Clone)]
pub(crate) struct State {
    places: Vec<(&'static str, BTreeSet<Box<str>>)>,
}

impl State {
    /// PreFilter; none if no volume has such a label.
    pub(crate) fn new(cluster: &Cluster, pod: &PodSpec) -> Result<Option<State>, AttemptFault> {
        let storage = cluster.storage();
        let no = |reason: RejectionReason| {
            AttemptFault::Rejected(Rejection::new(Plugin::VolumeZone, Code::Unresolvable, reason))
        };
        let mut places = Vec::new();
        for volume in &pod.volumes {
            let Volume::Claim(name) = volume else { continue };
            let Some(claim) = storage.claim(&pod.namespace, name) else {
                return Err(no(RejectionReason::ClaimNotFound { claim: name.clone() }));
            };
            let Some(volume) = &claim.volume else {
                if claim.class.is_empty() {
                    return Err(no(RejectionReason::ClaimWithoutVolumeAndClass));
                }
                let Some(class) = storage.class(&claim.class) else {
                    return Err(no(RejectionReason::StorageClassNotFound { class: claim.class.clone() }));
                };
                match class.waits {
                    Some(true) => continue,
                    Some(false) => return Err(no(RejectionReason::VolumeWithoutName)),
                    None => {
                        return Err(no(RejectionReason::BindingModeNotSet { class: class.name.clone() }));
                    }
                }
            };
            let Some(volume) = storage.volume(volume) else {
                return Err(no(RejectionReason::VolumeNotFound { volume: volume.clone() }));
            };
            for key in KEYS {
                if let Some(values) = volume.labels.get(key).and_then(|v| zones(v)) {
                    places.push((key, values));
                }
            }
        }
        Ok((!places.is_empty()).then_some(State { places }))
    }

    pub(crate) fn filter(&self, node: &Node) -> Filtered {
        // Nodes without any zone label belong to a single-zone cluster.
        if !KEYS.iter().any(|key| node.labels.contains_key(*key)) {
            return Ok(());
        }
        for (key, values) in &self.places {
            let here = node.label(key).or_else(|| node.label(current(key)));
            if !here.is_some_and(|v| values.contains(v)) {
                return reject(Plugin::VolumeZone, Code::Unresolvable, RejectionReason::VolumeZone);
            }
        }
        Ok(())
    }
}

/// The zones of a label, which may list several (`a__b`). An invalid label is ignored.
fn zones(label: &str) -> Option<BTreeSet<Box<str>>> {
    label.split("__").map(str::trim).map(|zone| (!zone.is_empty()).then(|| zone.into())).collect()
}
