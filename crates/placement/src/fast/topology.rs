//! Topology labels as numbers: which nodes share the value of a topology key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tally::Tally;
use crate::cluster::Slots;
use crate::node::Node;

/// The domain of the empty label value and of nodes without the label.
const EMPTY: u32 = 0;

/// A topology key, and the domain of every node.
#[derive(Debug, Clone)]
pub(super) struct Topology {
    key: Box<str>,
    domains: BTreeMap<Box<str>, u32>,
    /// By slot.
    pub(super) domain: Vec<u32>,
    /// By slot, 1 if the node has the label.
    pub(super) labelled: Vec<u8>,
}

impl Topology {
    fn new(key: &str, slots: &Slots) -> Topology {
        let mut topology = Topology {
            key: key.into(),
            domains: BTreeMap::from([("".into(), EMPTY)]),
            domain: Vec::with_capacity(slots.len()),
            labelled: Vec::with_capacity(slots.len()),
        };
        for (slot, info) in slots.iter().enumerate() {
            topology.set(slot, info.as_ref().map(|i| &*i.node));
        }
        topology
    }

    /// The number of domains; some may have no node any more.
    pub(super) fn len(&self) -> usize {
        self.domains.len()
    }

    /// The domains of counted nodes that have the label.
    pub(super) fn domains_of<'t>(&'t self, tally: &'t Tally) -> impl Iterator<Item = (usize, u32)> {
        let labelled = tally.iter().filter(|(slot, _)| self.labelled[*slot] != 0);
        labelled.map(|(slot, n)| (self.domain[slot] as usize, n))
    }

    fn set(&mut self, slot: usize, node: Option<&Node>) {
        if slot >= self.domain.len() {
            self.domain.resize(slot + 1, EMPTY);
            self.labelled.resize(slot + 1, 0);
        }
        let value = node.and_then(|n| n.label(&self.key));
        self.labelled[slot] = u8::from(value.is_some());
        self.domain[slot] = match value {
            None => EMPTY,
            Some(value) => match self.domains.get(value) {
                Some(domain) => *domain,
                None => {
                    let domain = self.domains.len() as u32;
                    self.domains.insert(value.into(), domain);
                    domain
                }
            },
        };
        // Values of removed nodes must not accumulate.
        if self.domains.len() > 2 * self.domain.len() + 64 {
            self.renumber();
        }
    }

    /// Renumbers the domains that have nodes.
    fn renumber(&mut self) {
        let mut used = vec![false; self.domains.len()];
        used[EMPTY as usize] = true;
        for domain in &self.domain {
            used[*domain as usize] = true;
        }
        let mut numbers = vec![0; used.len()];
        for (next, (number, _)) in (0..).zip(numbers.iter_mut().zip(&used).filter(|(_, used)| **used)) {
            *number = next;
        }
        self.domains.retain(|_, domain| used[*domain as usize]);
        for domain in self.domains.values_mut().chain(&mut self.domain) {
            *domain = numbers[*domain as usize];
        }
    }
}

/// The topology keys in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Topologies {
    ids: Arc<BTreeMap<Box<str>, usize>>,
    all: Vec<Arc<Topology>>,
}

impl Topologies {
    /// The number of a key. Its domains are maintained from now on.
    pub(super) fn id(&mut self, key: &str, slots: &Slots) -> usize {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let id = self.all.len();
        self.all.push(Arc::new(Topology::new(key, slots)));
        Arc::make_mut(&mut self.ids).insert(key.into(), id);
        id
    }

    pub(super) fn node_changed(&mut self, slot: u32, node: Option<&Node>) {
        for topology in &mut self.all {
            Arc::make_mut(topology).set(slot as usize, node);
        }
    }
}

impl std::ops::Index<usize> for Topologies {
    type Output = Topology;

    fn index(&self, id: usize) -> &Topology {
        &self.all[id]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node as RawNode;

    use super::*;

    fn node(value: &str) -> Node {
        let mut raw = RawNode::default();
        raw.metadata.name = Some("n".into());
        raw.metadata.labels = Some([("k".to_owned(), value.to_owned())].into());
        Node::compile(&raw).expect("a valid node")
    }

    #[test]
    fn unused_values_are_dropped() {
        let mut topology = Topology::new("k", &Slots::default());
        topology.set(0, Some(&node("stays")));
        topology.set(1, Some(&node("")));
        topology.set(2, None);
        for i in 0..1000 {
            topology.set(3, Some(&node(&format!("v{i}"))));
            assert!(topology.len() <= 2 * 4 + 64);
        }
        topology.set(4, Some(&node("v999")));
        let domain = &topology.domain;
        assert_eq!((domain[1], domain[2]), (EMPTY, EMPTY));
        assert_eq!(topology.labelled, [1, 1, 0, 1, 1]);
        assert!(domain[3] == domain[4] && domain[0] != domain[3] && domain[0] != EMPTY && domain[3] != EMPTY);
        assert!(domain.iter().all(|d| (*d as usize) < topology.len()));
    }
}
