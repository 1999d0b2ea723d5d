//! InterPodAffinity over columns.

use stead_semantics::labels::Labels;

use super::existing_terms::{ExistingTerm, TermEffect};
use super::groups::Scope;
use super::pass::{Pass, Scratch, highest, lowest};
use super::topology::{Topologies, Topology};
use crate::plugins::interpod::{matches, resolve, share};
use crate::pod::AffinityTerm;
use crate::status::Plugin;

/// A value for each domain of each topology key in use.
#[derive(Default)]
struct ByDomain<T> {
    all: Vec<(usize, Vec<T>)>,
}

impl<T: Copy + Default> ByDomain<T> {
    /// The domains of a topology key.
    fn of(&mut self, id: usize, topologies: &Topologies) -> &mut [T] {
        let at = self.all.iter().position(|(i, _)| *i == id).unwrap_or_else(|| {
            self.all.push((id, vec![T::default(); topologies[id].len()]));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }
}

impl<'a> Pass<'a> {
    fn topology_of(&mut self, term: &AffinityTerm) -> usize {
        self.topologies.id(&term.topology_key, &self.cluster.slots)
    }

    /// The counter of the pods that a term selects.
    fn counter_of(&mut self, term: &AffinityTerm) -> u32 {
        self.groups.affinity(vec![Scope::of(resolve(self.cluster, term))])
    }

    /// The terms of existing pods that select the pod.
    fn selecting(&self) -> Vec<&'a ExistingTerm> {
        let (existing_terms, spec) = (self.existing_terms, self.spec);
        let none = Labels::new();
        let namespace_labels = self.cluster.namespaces().get(&*spec.namespace).unwrap_or(&none);
        let selects = |c: &&ExistingTerm| matches(&c.term, &spec.namespace, &spec.labels, Some(namespace_labels));
        existing_terms.candidates(&spec.labels).filter(selects).collect()
    }

    pub(super) fn filter_interpod(&mut self) {
        self.filter_affinity();
        self.filter_anti_affinity();
        self.selecting = self.selecting();
        self.filter_existing();
    }

    fn filter_affinity(&mut self) {
        let spec = self.spec;
        if spec.affinity.is_empty() {
            return;
        }
        let resolved: Vec<AffinityTerm> = spec.affinity.iter().map(|t| resolve(self.cluster, t)).collect();
        let own = resolved.iter().all(|t| matches(t, &spec.namespace, &spec.labels, None));
        let counter = self.groups.affinity(resolved.into_iter().map(Scope::of).collect());
        let mut found: ByDomain<u8> = ByDomain::default();
        let mut any = false;
        for term in &spec.affinity {
            let id = self.topology_of(term);
            let found = found.of(id, self.topologies);
            for (domain, _) in self.topologies[id].domains_of(self.groups.tally(counter)) {
                found[domain] = 1;
                any = true;
            }
        }
        if !any && !own {
            self.scratch.fits.fill(0);
            return;
        }
        // The first pod of a group with affinity to itself may run on any node that has the labels.
        let anywhere = u8::from(!any);
        for (id, found) in &found.all {
            let Topology { domain, labelled, .. } = &self.topologies[*id];
            for ((fits, domain), labelled) in self.scratch.fits.iter_mut().zip(domain).zip(labelled) {
                *fits &= labelled & (found[*domain as usize] | anywhere);
            }
        }
    }

    fn filter_anti_affinity(&mut self) {
        let mut taken = ByDomain::default();
        for term in &self.spec.anti_affinity {
            let (id, counter) = (self.topology_of(term), self.counter_of(term));
            let taken = taken.of(id, self.topologies);
            self.topologies[id].domains_of(self.groups.tally(counter)).for_each(|(domain, _)| taken[domain] = 1);
        }
        self.exclude(&taken);
    }

    fn filter_existing(&mut self) {
        let mut taken = ByDomain::default();
        for at in 0..self.selecting.len() {
            let c = self.selecting[at];
            if c.effect == TermEffect::Repels {
                let id = self.topology_of(&c.term);
                let taken = taken.of(id, self.topologies);
                self.topologies[id].domains_of(&c.tally).for_each(|(domain, _)| taken[domain] = 1);
            }
        }
        self.exclude(&taken);
    }

    /// Excludes the nodes of the given domains.
    fn exclude(&mut self, taken: &ByDomain<u8>) {
        for (id, taken) in &taken.all {
            let Topology { domain, labelled, .. } = &self.topologies[*id];
            for ((fits, domain), labelled) in self.scratch.fits.iter_mut().zip(domain).zip(labelled) {
                *fits &= 1 ^ (labelled & taken[*domain as usize]);
            }
        }
    }

    pub(super) fn score_interpod(&mut self) {
        let spec = self.spec;
        let mut sums: ByDomain<i64> = ByDomain::default();
        let with = spec.preferred_affinity.iter().map(|(t, w)| (t, i64::from(*w)));
        let against = spec.preferred_anti_affinity.iter().map(|(t, w)| (t, -i64::from(*w)));
        for (term, weight) in with.chain(against) {
            let (id, counter) = (self.topology_of(term), self.counter_of(term));
            let sums = sums.of(id, self.topologies);
            for (domain, n) in self.topologies[id].domains_of(self.groups.tally(counter)) {
                sums[domain] += weight * i64::from(n);
            }
        }
        for at in 0..self.selecting.len() {
            let c = self.selecting[at];
            if let TermEffect::Prefers(weight) = c.effect {
                let id = self.topology_of(&c.term);
                let sums = sums.of(id, self.topologies);
                for (domain, n) in self.topologies[id].domains_of(&c.tally) {
                    sums[domain] += weight * i64::from(n);
                }
            }
        }
        if !sums.all.is_empty() {
            self.add_preferences(&sums);
        }
    }

    fn add_preferences(&mut self, sums: &ByDomain<i64>) {
        let Scratch { fits, raw, totals, .. } = &mut *self.scratch;
        raw.clear();
        raw.resize(fits.len(), 0);
        for (id, sums) in &sums.all {
            let Topology { domain, labelled, .. } = &self.topologies[*id];
            for ((raw, domain), labelled) in raw.iter_mut().zip(domain).zip(labelled) {
                *raw += i64::from(*labelled) * sums[*domain as usize];
            }
        }
        let (min, max) = (lowest(raw, fits), highest(raw, fits));
        if max > min {
            let weight = Plugin::InterPodAffinity.weight();
            totals.iter_mut().zip(raw).for_each(|(t, raw)| *t += (weight * share(*raw, min, max)) as i32);
        }
    }
}
