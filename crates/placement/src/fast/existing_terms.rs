//! The affinity terms of existing pods, which also apply to the pod to place (symmetry).

use std::sync::Arc;

use stead_semantics::labels::Labels;

use super::label_index::LabelIndex;
use super::tally::Tally;
use crate::plugins::interpod::HARD_AFFINITY_WEIGHT;
use crate::pod::{AffinityTerm, Pod, PodSpec};
use stead_model::fork::{Chunks, Sorted};

/// The effect of an existing pod's term on a pod that it selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TermEffect {
    /// Required anti-affinity: excludes the domain.
    Repels,
    /// Any other term: adds this to the score.
    Prefers(i64),
}

/// A term of existing pods.
#[derive(Debug, Clone)]
pub(super) struct ExistingTerm {
    pub(super) term: Arc<AffinityTerm>,
    pub(super) effect: TermEffect,
    /// The number of pods with the term, by node.
    pub(super) tally: Tally,
}

/// The distinct terms of existing pods.
#[derive(Debug, Clone, Default)]
pub(super) struct ExistingTerms {
    ids: Sorted<(TermEffect, Arc<AffinityTerm>), u32>,
    terms: Chunks<Option<ExistingTerm>>,
    free: Vec<u32>,
    by_label: Arc<LabelIndex>,
}

fn terms_of(spec: &PodSpec) -> impl Iterator<Item = (TermEffect, &AffinityTerm)> {
    let repels = spec.anti_affinity.iter().map(|t| (TermEffect::Repels, t));
    let hard = spec.affinity.iter().map(|t| (TermEffect::Prefers(HARD_AFFINITY_WEIGHT), t));
    let with = spec.preferred_affinity.iter().map(|(t, w)| (TermEffect::Prefers(i64::from(*w)), t));
    let against = spec.preferred_anti_affinity.iter().map(|(t, w)| (TermEffect::Prefers(-i64::from(*w)), t));
    repels.chain(hard).chain(with).chain(against)
}

impl ExistingTerms {
    fn find(&self, effect: TermEffect, term: &AffinityTerm) -> Option<u32> {
        self.ids.find(|(f, t)| f.cmp(&effect).then_with(|| (**t).cmp(term))).copied()
    }

    pub(super) fn add_pod(&mut self, slot: u32, pod: &Pod) {
        for (effect, term) in terms_of(&pod.spec) {
            let id = self.find(effect, term).unwrap_or_else(|| self.insert(effect, term));
            self.get_mut(id).tally.add(slot, 1);
        }
    }

    pub(super) fn remove_pod(&mut self, slot: u32, pod: &Pod) {
        for (effect, term) in terms_of(&pod.spec) {
            let id = self.find(effect, term).expect("a removed pod was counted");
            let existing = self.get_mut(id);
            existing.tally.remove_one(slot);
            if existing.tally.is_empty() {
                *self.terms.get_mut(id as usize) = None;
                self.free.push(id);
                self.ids.remove(|(f, t)| f.cmp(&effect).then_with(|| (**t).cmp(term)));
                Arc::make_mut(&mut self.by_label).remove(&term.selector, id);
            }
        }
    }

    fn get_mut(&mut self, id: u32) -> &mut ExistingTerm {
        self.terms.get_mut(id as usize).as_mut().expect("a known term exists")
    }

    fn insert(&mut self, effect: TermEffect, term: &AffinityTerm) -> u32 {
        let term = Arc::new(term.clone());
        let existing = Some(ExistingTerm { term: Arc::clone(&term), effect, tally: Tally::default() });
        let id = match self.free.pop() {
            Some(id) => {
                *self.terms.get_mut(id as usize) = existing;
                id
            }
            None => {
                self.terms.push(existing);
                (self.terms.len() - 1) as u32
            }
        };
        Arc::make_mut(&mut self.by_label).insert(&term.selector, id);
        self.ids.insert((effect, term), id);
        id
    }

    /// The terms that might select a pod with these labels.
    pub(super) fn candidates(&self, labels: &Labels) -> impl Iterator<Item = &ExistingTerm> {
        let by_label = self.by_label.candidates(labels);
        by_label.map(|id| self.terms[id as usize].as_ref().expect("an indexed term exists"))
    }
}
