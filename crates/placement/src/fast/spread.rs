//! PodTopologySpread over columns.

use super::columns::FrameKey;
use super::pass::{Pass, Scratch, count};
use super::topology::Topology;
use crate::plugins::MAX_SCORE;
use crate::plugins::spread::{HOSTNAME, constraints};
use crate::pod::SpreadConstraint;
use crate::status::Plugin;

/// The largest range of counts for which the score of each count is computed in advance.
const TABLE: u32 = 1024;

impl Pass<'_> {
    fn topology_ids<'c>(&mut self, constraints: impl Iterator<Item = &'c SpreadConstraint>) -> Vec<usize> {
        constraints.map(|c| self.topologies.id(&c.topology_key, &self.cluster.slots)).collect()
    }

    /// The constraint's pods by domain, on nodes that it counts, in domains that are `wanted`.
    fn sums(&mut self, c: &SpreadConstraint, key: &FrameKey, wanted: Option<&[bool]>) -> Vec<u32> {
        let frame = self.nodes.frame(key.clone(), self.topologies);
        let topology = &self.topologies[key.topology];
        let mut sums = vec![0; topology.len()];
        if let Some(counter) = self.groups.spread(&self.spec.namespace, &c.selector) {
            for (slot, n) in self.groups.tally(counter).iter() {
                let domain = topology.domain[slot] as usize;
                if frame.eligible[slot] != 0 && wanted.is_none_or(|w| w[domain]) {
                    sums[domain] += n;
                }
            }
        }
        sums
    }

    /// The hard constraints.
    pub(super) fn filter_spread(&mut self) {
        let spec = self.spec;
        let hard = || spec.spread.iter().filter(|c| c.hard);
        let required = self.topology_ids(hard());
        for (c, topology) in hard().zip(required.clone()) {
            let key = frame_key(c, topology, &required);
            let sums = self.sums(c, &key, None);
            let frame = self.nodes.frame(key, self.topologies);
            let least = if (frame.domains as i64) < i64::from(c.min_domains) {
                0
            } else {
                let counts = sums.iter().zip(&frame.present);
                counts.map(|(n, there)| if *there { *n } else { u32::MAX }).min().map_or(u32::MAX, |n| n)
            };
            // Without any domain the minimum is kube-scheduler's largest number.
            let least = i64::from(least.min(i32::MAX as u32));
            let own = i64::from(c.selector.matches(&spec.labels));
            let most = i64::from(c.max_skew) + least - own;
            let open: Vec<u8> = sums.iter().map(|n| u8::from(i64::from(*n) <= most)).collect();
            let Topology { domain, labelled, .. } = &self.topologies[topology];
            for ((fits, domain), labelled) in self.scratch.fits.iter_mut().zip(domain).zip(labelled) {
                *fits &= labelled & open[*domain as usize];
            }
        }
    }

    /// The soft constraints: the pod's own or the cluster defaults.
    pub(super) fn score_spread(&mut self) {
        let soft = constraints(self.cluster, self.spec, false);
        if soft.is_empty() {
            return;
        }
        let topologies = self.topology_ids(soft.iter().map(|c| &**c));
        // The cluster defaults also score nodes without the label; a pod's own constraints ignore them.
        let required: &[usize] = if self.spec.spread.is_empty() { &[] } else { &topologies };
        self.scratch.scored.clone_from(&self.scratch.fits);
        for topology in required {
            let labelled = &self.topologies[*topology].labelled;
            self.scratch.scored.iter_mut().zip(labelled).for_each(|(scored, labelled)| *scored &= labelled);
        }
        if let [c] = &*soft {
            let weight = self.level(c, topologies[0], required);
            if self.score_by_table(c, weight) {
                return;
            }
        }
        let len = self.scratch.fits.len();
        self.scratch.fractions.clear();
        self.scratch.fractions.resize(len, 0.0);
        for (c, topology) in soft.iter().zip(&topologies) {
            let weight = self.level(c, *topology, required);
            let labelled = &self.topologies[*topology].labelled;
            let Scratch { fractions, levels, .. } = &mut *self.scratch;
            for ((fraction, level), labelled) in fractions.iter_mut().zip(levels).zip(labelled) {
                *fraction += if *labelled == 0 { 0.0 } else { term(c, *level, weight) };
            }
        }
        self.add_fractions();
    }

    /// The number of pods that count for each node, by slot, and the weight that results from the number of domains.
    fn level(&mut self, c: &SpreadConstraint, topology: usize, required: &[usize]) -> f64 {
        let len = self.scratch.fits.len();
        self.scratch.levels.clear();
        if *c.topology_key == *HOSTNAME {
            // Every node is a domain of its own, and counts whether or not its pods are counted.
            self.scratch.levels.resize(len, 0);
            if let Some(counter) = self.groups.spread(&self.spec.namespace, &c.selector) {
                for (slot, n) in self.groups.tally(counter).iter() {
                    self.scratch.levels[slot] = n;
                }
            }
            return libm::log((count(&self.scratch.scored) + 2) as f64);
        }
        let Topology { domain, .. } = &self.topologies[topology];
        let mut seen = vec![false; self.topologies[topology].len()];
        for (domain, scored) in domain.iter().zip(&self.scratch.scored) {
            seen[*domain as usize] |= *scored != 0;
        }
        let size = seen.iter().filter(|s| **s).count();
        let sums = self.sums(c, &frame_key(c, topology, required), Some(&seen));
        let Topology { domain, .. } = &self.topologies[topology];
        self.scratch.levels.extend(domain.iter().map(|domain| sums[*domain as usize]));
        libm::log((size + 2) as f64)
    }

    /// With a single constraint, nodes with the same count have the same score: it is computed once for each count.
    fn score_by_table(&mut self, c: &SpreadConstraint, weight: f64) -> bool {
        // A default constraint also scores nodes without the label, as if there were no constraint.
        if self.spec.spread.is_empty() {
            return false;
        }
        let Scratch { scored, levels, totals, .. } = &mut *self.scratch;
        let (mut lowest, mut highest) = (u32::MAX, 0);
        for (level, scored) in levels.iter().zip(&*scored) {
            lowest = lowest.min(if *scored == 0 { u32::MAX } else { *level });
            highest = highest.max(if *scored == 0 { 0 } else { *level });
        }
        if lowest > highest {
            return true;
        }
        if highest - lowest >= TABLE {
            return false;
        }
        // More pods never round to a lower score.
        let (min, max) = (rounded(term(c, lowest, weight)), rounded(term(c, highest, weight)));
        let table: Vec<i32> = (lowest..=highest).map(|n| share(rounded(term(c, n, weight)), min, max)).collect();
        for ((total, level), scored) in totals.iter_mut().zip(levels).zip(scored) {
            if *scored != 0 {
                *total += table[(*level - lowest) as usize];
            }
        }
        true
    }

    fn add_fractions(&mut self) {
        let Scratch { scored, fractions, raw, totals, .. } = &mut *self.scratch;
        raw.clear();
        raw.extend(fractions.iter().map(|x| rounded(*x)));
        let (mut min, mut max) = (i64::MAX, 0);
        for (score, _) in raw.iter().zip(&*scored).filter(|(_, scored)| **scored != 0) {
            min = min.min(*score);
            max = max.max(*score);
        }
        for ((total, score), scored) in totals.iter_mut().zip(raw).zip(scored) {
            if *scored != 0 {
                *total += share(*score, min, max);
            }
        }
    }
}

fn frame_key(c: &SpreadConstraint, topology: usize, required: &[usize]) -> FrameKey {
    FrameKey { required: required.to_vec(), topology, honor_affinity: c.honor_affinity, honor_taints: c.honor_taints }
}

/// The contribution of a constraint to a node's score, computed as in kube-scheduler.
fn term(c: &SpreadConstraint, level: u32, weight: f64) -> f64 {
    f64::from(level) * weight + f64::from(c.max_skew - 1)
}

/// Rounds half up. For numbers from 0 to 2^52 this equals Go's `math.Round`.
fn rounded(x: f64) -> i64 {
    let whole = x as i64;
    whole + i64::from(x - whole as f64 >= 0.5)
}

/// Fewer pods give a higher score.
fn share(score: i64, min: i64, max: i64) -> i32 {
    let share = if max == 0 { MAX_SCORE } else { MAX_SCORE * (max + min - score) / max };
    (Plugin::PodTopologySpread.weight() * share) as i32
}
