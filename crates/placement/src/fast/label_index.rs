//! An index of selectors by the labels that they select.

use std::collections::BTreeMap;

use stead_semantics::labels::{Labels, Operator, Selector};

/// The ids of selectors, each under the values of one of its `In` requirements. Labels without any of these values do
/// not match, so a lookup tries a few selectors instead of all.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelIndex {
    by_label: BTreeMap<Box<str>, BTreeMap<Box<str>, Vec<u32>>>,
    /// Selectors without such a requirement.
    others: Vec<u32>,
}

/// The key and values that a selector is indexed by: the requirement with the fewest values.
fn anchor(selector: &Selector) -> Option<(&str, &[String])> {
    let equalities = selector.requirements().iter().filter(|r| r.operator() == Operator::In);
    equalities.min_by_key(|r| r.values().len()).map(|r| (r.key(), r.values()))
}

impl LabelIndex {
    pub(super) fn insert(&mut self, selector: &Selector, id: u32) {
        match anchor(selector) {
            None => self.others.push(id),
            Some((key, values)) => {
                let by_value = self.by_label.entry(key.into()).or_default();
                for value in values {
                    let ids = by_value.entry(value.as_str().into()).or_default();
                    // A value may be listed twice.
                    if ids.last() != Some(&id) {
                        ids.push(id);
                    }
                }
            }
        }
    }

    pub(super) fn remove(&mut self, selector: &Selector, id: u32) {
        let Some((key, values)) = anchor(selector) else { return self.others.retain(|i| *i != id) };
        let Some(by_value) = self.by_label.get_mut(key) else { return };
        for value in values {
            if let Some(ids) = by_value.get_mut(value.as_str()) {
                ids.retain(|i| *i != id);
                if ids.is_empty() {
                    by_value.remove(value.as_str());
                }
            }
        }
        if by_value.is_empty() {
            self.by_label.remove(key);
        }
    }

    /// The selectors that might match the labels, each once.
    pub(super) fn candidates(&self, labels: &Labels) -> impl Iterator<Item = u32> {
        let by_label = labels.iter().filter_map(|(k, v)| self.by_label.get(k.as_str())?.get(v.as_str()));
        by_label.flatten().chain(&self.others).copied()
    }
}
