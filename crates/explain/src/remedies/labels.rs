//! The value of a label that a node should have.

use std::collections::{BTreeMap, BTreeSet};

use stead_placement::{Cluster, Node};

/// The value that a missing label should have, where another label of the node gives it away: one whose values on
/// all other nodes go with the values of the missing one.
pub(crate) fn known_value(cluster: &Cluster, node: &Node, key: &str) -> Option<String> {
    let with_key: Vec<&Node> = cluster.nodes().map(|i| &*i.node).filter(|n| n.label(key).is_some()).collect();
    node.labels.iter().find_map(|(sibling, value)| {
        let mut pairs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for other in &with_key {
            if let (Some(s), Some(v)) = (other.label(sibling), other.label(key)) {
                pairs.entry(s).or_default().insert(v);
            }
        }
        let consistent = pairs.len() > 1 && pairs.values().all(|values| values.len() == 1);
        let distinct: BTreeSet<&str> = pairs.values().flatten().copied().collect();
        if !consistent || distinct.len() != pairs.len() {
            return None;
        }
        pairs.get(value.as_str())?.first().map(|v| (*v).to_owned())
    })
}
