//! The terms of affinity that the pods on nodes carry, and what they say of a pod to place (symmetry).

use std::sync::Arc;

use stead_semantics::labels::Labels;

use super::label_index::LabelIndex;
use super::tally::Tally;
use crate::fork::{Chunks, Sorted};
use crate::plugins::interpod::HARD_AFFINITY_WEIGHT;
use crate::pod::{Pod, PodSpec, Term};

/// What a pod makes of another that is to be placed beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feeling {
    /// Required anti-affinity: it keeps it away.
    Repels,
    /// Any other term: it adds this to the score.
    Prefers(i64),
}

/// A term of pods that are on nodes.
#[derive(Debug, Clone)]
pub(super) struct Carried {
    pub(super) term: Arc<Term>,
    pub(super) feeling: Feeling,
    /// The pods that carry it.
    pub(super) tally: Tally,
}

/// The terms of the pods on nodes, each once: what they say of a pod to place.
#[derive(Debug, Clone, Default)]
pub(super) struct CarriedTerms {
    ids: Sorted<(Feeling, Arc<Term>), u32>,
    terms: Chunks<Option<Carried>>,
    free: Vec<u32>,
    by_label: Arc<LabelIndex>,
}

fn carried(spec: &PodSpec) -> impl Iterator<Item = (Feeling, &Term)> {
    let repels = spec.anti_affinity.iter().map(|t| (Feeling::Repels, t));
    let hard = spec.affinity.iter().map(|t| (Feeling::Prefers(HARD_AFFINITY_WEIGHT), t));
    let with = spec.preferred_affinity.iter().map(|(t, w)| (Feeling::Prefers(i64::from(*w)), t));
    let against = spec.preferred_anti_affinity.iter().map(|(t, w)| (Feeling::Prefers(-i64::from(*w)), t));
    repels.chain(hard).chain(with).chain(against)
}

impl CarriedTerms {
    fn find(&self, feeling: Feeling, term: &Term) -> Option<u32> {
        self.ids.find(|(f, t)| f.cmp(&feeling).then_with(|| (**t).cmp(term))).copied()
    }

    pub(super) fn pod_came(&mut self, slot: u32, pod: &Pod) {
        for (feeling, term) in carried(&pod.spec) {
            let id = self.find(feeling, term).unwrap_or_else(|| self.insert(feeling, term));
            self.get_mut(id).tally.add(slot, 1);
        }
    }

    pub(super) fn pod_left(&mut self, slot: u32, pod: &Pod) {
        for (feeling, term) in carried(&pod.spec) {
            let id = self.find(feeling, term).expect("what leaves was counted");
            let carried = self.get_mut(id);
            carried.tally.remove_one(slot);
            if carried.tally.is_empty() {
                *self.terms.get_mut(id as usize) = None;
                self.free.push(id);
                self.ids.remove(|(f, t)| f.cmp(&feeling).then_with(|| (**t).cmp(term)));
                Arc::make_mut(&mut self.by_label).remove(&term.selector, id);
            }
        }
    }

    fn get_mut(&mut self, id: u32) -> &mut Carried {
        self.terms.get_mut(id as usize).as_mut().expect("a known term is carried")
    }

    fn insert(&mut self, feeling: Feeling, term: &Term) -> u32 {
        let term = Arc::new(term.clone());
        let carried = Some(Carried { term: Arc::clone(&term), feeling, tally: Tally::default() });
        let id = match self.free.pop() {
            Some(id) => {
                *self.terms.get_mut(id as usize) = carried;
                id
            }
            None => {
                self.terms.push(carried);
                (self.terms.len() - 1) as u32
            }
        };
        Arc::make_mut(&mut self.by_label).insert(&term.selector, id);
        self.ids.insert((feeling, term), id);
        id
    }

    /// The terms that might select a pod with these labels.
    pub(super) fn candidates(&self, labels: &Labels) -> impl Iterator<Item = &Carried> {
        let by_label = self.by_label.candidates(labels);
        by_label.map(|id| self.terms[id as usize].as_ref().expect("an indexed term is carried"))
    }
}
