//! Volumes: who writes to them, and where they are.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use stead_semantics::NodeSelector;

use super::{Pattern, View, VolumeExpectation, WritersExpectation, zone_of};

/// The name of the volume of a claim.
fn volume_of(view: View<'_>, claim: &str) -> Result<String, String> {
    let found = view.simulation.store().get::<PersistentVolumeClaim>(view.namespace, claim);
    let Some(found) = found else { return Err(format!("there is no claim {claim}")) };
    let name = found.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    name.ok_or_else(|| format!("claim {claim} has no volume"))
}

impl WritersExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let volume = volume_of(view, &self.claim)?;
        let writers = view.simulation.world().writers(&volume);
        let mut found: Vec<String> = writers.values().flatten().map(|pod| pod.name.to_string()).collect();
        found.sort();
        let mut left = found.clone();
        for pattern in &self.pods {
            match left.iter().position(|name| Pattern::new(pattern).matches(name)) {
                Some(at) => drop(left.remove(at)),
                None => return Err(format!("claim {} is written by {found:?}, not by {pattern}", self.claim)),
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("claim {} is also written by {left:?}", self.claim)),
        }
    }
}

impl VolumeExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let volume = volume_of(view, &self.claim)?;
        let nodes: Vec<&Node> = view.simulation.store().all::<Node>().map(|node| &**node).collect();
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        if let Some(wanted) = &self.usable_on {
            let usable = usable_on(view, &volume, &nodes)?;
            let zone = |node: &str| zone_of(view.simulation, node);
            let listed = |node: &str| {
                wanted.iter().any(|text| match text.strip_prefix("zone:") {
                    Some(wanted) => zone(node).as_deref() == Some(wanted),
                    None => text == node,
                })
            };
            let expected: Vec<String> = nodes.iter().map(|node| name(node)).filter(|node| listed(node)).collect();
            if usable != expected {
                let claim = &self.claim;
                return Err(format!("the volume of claim {claim} can be used on {usable:?}, not on {expected:?}"));
            }
        }
        if let Some(wanted) = &self.attached_to {
            let disk = view.simulation.world().disk(&volume);
            let attached: Vec<String> =
                disk.into_iter().flat_map(|disk| disk.attached_to.iter()).map(ToString::to_string).collect();
            let mut expected = wanted.clone();
            expected.sort();
            if attached != expected {
                let claim = &self.claim;
                return Err(format!("the volume of claim {claim} is attached to {attached:?}, not to {expected:?}"));
            }
        }
        Ok(())
    }
}

/// The nodes that the node affinity of a volume allows, by name.
fn usable_on(view: View<'_>, volume: &str, nodes: &[&Node]) -> Result<Vec<String>, String> {
    let found = view.simulation.store().get::<PersistentVolume>("", volume);
    let Some(found) = found else { return Err(format!("there is no volume {volume}")) };
    let affinity = found.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let selector = affinity.map(NodeSelector::compile).transpose().map_err(|error| error.to_string())?;
    let allowed = |node: &&&Node| {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        selector.as_ref().is_none_or(|selector| selector.matches(name, &labels))
    };
    Ok(nodes.iter().filter(allowed).filter_map(|node| node.metadata.name.clone()).collect())
}
