//! What a question is about: a namespace, labels, nodes.

use std::collections::BTreeSet;

use stead_model::ObjectKey;
use stead_semantics::{Labels, Selector};

use super::evidence::Evidence;
use super::roots::Root;

/// Which stuck objects are asked for. What is empty restricts nothing.
#[derive(Debug, Clone, Default)]
pub struct TriageScope {
    /// Objects of this namespace, and unhealthy nodes.
    pub namespace: Option<String>,
    /// Objects with these labels.
    pub selector: Option<Selector>,
    /// Pods on this node, and what is stuck because of it.
    pub node: Option<String>,
    /// Pods on the nodes of this zone, and what is stuck because of these nodes.
    pub zone: Option<String>,
}

impl TriageScope {
    /// Leaves the objects in scope. Cluster-scoped objects stay with the others of their cause.
    pub(super) fn restrict(&self, evidence: &Evidence<'_>, root: &Root, objects: &mut BTreeSet<ObjectKey>) {
        let of_asked_node = root.about.kind == "Node" && self.is_asked(evidence, &root.about.name);
        if !of_asked_node {
            objects.retain(|key| self.has_node(evidence, key));
        }
        if let Some(namespace) = &self.namespace {
            let own = |key: &ObjectKey| key.kind == "Namespace" && key.name == *namespace;
            let any = objects.iter().any(|key| key.namespace == *namespace || own(key));
            // A failed node matters to every namespace.
            let failed_node = root.about.kind == "Node";
            objects.retain(|key| {
                own(key) || key.namespace == *namespace || (key.namespace.is_empty() && (any || failed_node))
            });
            if !any {
                objects.retain(|key| key.kind == "Node");
            }
        }
        if let Some(selector) = &self.selector {
            let any = objects.iter().any(|key| matches(evidence, key, selector));
            objects.retain(|key| any && (key.namespace.is_empty() || matches(evidence, key, selector)));
        }
    }

    fn is_asked(&self, evidence: &Evidence<'_>, node: &str) -> bool {
        let zone = || evidence.objects.node(node).ok().flatten().and_then(|node| node.zone().map(str::to_owned));
        self.node.as_deref().is_none_or(|asked| asked == node) && (self.zone.is_none() || self.zone == zone())
    }

    /// Whether an object is on a node that is asked for.
    fn has_node(&self, evidence: &Evidence<'_>, key: &ObjectKey) -> bool {
        if self.node.is_none() && self.zone.is_none() {
            return true;
        }
        match key.kind.as_str() {
            "Node" => self.is_asked(evidence, &key.name),
            "Pod" => {
                let pod = evidence.objects.pod(key).ok().flatten();
                pod.and_then(stead_model::PodView::node).is_some_and(|node| self.is_asked(evidence, node))
            }
            _ => false,
        }
    }
}

fn matches(evidence: &Evidence<'_>, key: &ObjectKey, selector: &Selector) -> bool {
    let metadata = evidence.objects.object(key).and_then(|object| object.metadata().ok());
    let labels: Labels = metadata.and_then(|m| m.labels).unwrap_or_default().into_iter().collect();
    selector.matches(&labels)
}
