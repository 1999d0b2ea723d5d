//! The passes over the columns for one pod.

use std::sync::Arc;

use super::columns::{ImageColumns, NodeColumns};
use super::existing_terms::ExistingTerm;
use super::groups::Groups;
use super::topology::Topologies;
use super::{ExistingTerms, Index, volumes};
use crate::cluster::Cluster;
use crate::plugins::MAX_SCORE;
use crate::pod::{Pod, PodSpec};
use crate::status::Plugin;

/// Columns that are computed for each pod. They are not used between two pods, so a fork starts with empty ones.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// 1 if the node is feasible.
    pub(super) fits: Vec<u8>,
    /// The number of feasible nodes.
    pub(super) fitting: usize,
    /// The sums of the weighted scores, without constants that are equal for all nodes.
    pub(super) totals: Vec<i32>,
    /// The slots with the highest total, sorted by node name.
    pub(super) best: Vec<u32>,
    /// 1 if the node is feasible and soft spread constraints score it.
    pub(super) scored: Vec<u8>,
    pub(super) levels: Vec<u32>,
    pub(super) fractions: Vec<f64>,
    pub(super) raw: Vec<i64>,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Scratch::default()
    }
}

/// The state of the passes for one pod.
pub(super) struct Pass<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) spec: &'a Arc<PodSpec>,
    pub(super) nodes: &'a mut NodeColumns,
    pub(super) groups: &'a mut Groups,
    pub(super) existing_terms: &'a ExistingTerms,
    /// The existing terms that select the pod, once computed.
    pub(super) selecting: Vec<&'a ExistingTerm>,
    pub(super) topologies: &'a mut Topologies,
    pub(super) scratch: &'a mut Scratch,
}

impl Index {
    /// Computes the feasible and the best nodes. Returns false if the reference path is needed.
    pub(super) fn pass(&mut self, cluster: &Cluster, pod: &Pod) -> bool {
        let by_name = self.by_name(cluster);
        let Index { groups, existing_terms, topologies, scratch, .. } = self;
        groups.limit_counters();
        let spec = &pod.spec;
        let nodes = self.nodes.of(spec);
        nodes.refresh(&self.node_changes, &cluster.slots, spec);
        let room = self.rooms.of(spec);
        room.refresh(&self.room_changes, cluster, spec);
        scratch.fits.clear();
        scratch.fits.extend(nodes.fits.iter().zip(&room.fits).map(|(a, b)| a & b));
        if !spec.volumes.is_empty() && volumes::filter(cluster, pod, &mut scratch.fits).is_err() {
            return false;
        }
        if !spec.features.is_empty() {
            scratch.fits.iter_mut().zip(&nodes.features).for_each(|(fits, has)| *fits &= has);
        }
        let mut pass =
            Pass { cluster, spec, nodes, groups, existing_terms, selecting: Vec::new(), topologies, scratch };
        pass.filter_spread();
        pass.filter_interpod();
        if pass.count_fitting() {
            pass.scratch.totals.clone_from(&room.scores);
            pass.score_nodes();
            pass.score_spread();
            pass.score_interpod();
            let images = self.images.of(spec);
            images.refresh(&self.node_changes, cluster, spec);
            pass.score_images(images);
            pass.find_best(&by_name);
        }
        true
    }
}

impl Pass<'_> {
    /// Counts the feasible nodes. Returns false if there are none.
    fn count_fitting(&mut self) -> bool {
        self.scratch.best.clear();
        self.scratch.fitting = count(&self.scratch.fits);
        self.scratch.fitting > 0
    }

    /// TaintToleration and NodeAffinity, scaled to the highest score of the feasible nodes. If that is zero, all nodes
    /// get the same score, which is omitted.
    fn score_nodes(&mut self) {
        let Scratch { fits, totals, .. } = &mut *self.scratch;
        let mut add = |raw: &[i64], factor: i64| {
            let max = highest(raw, fits).max(0);
            if max > 0 {
                totals.iter_mut().zip(raw).for_each(|(t, raw)| *t += (factor * (MAX_SCORE * raw / max)) as i32);
            }
        };
        // Subtracted, because fewer taints are better.
        add(&self.nodes.taint_scores, -Plugin::TaintToleration.weight());
        if self.spec.preferred_nodes.is_some() {
            add(&self.nodes.affinity_scores, Plugin::NodeAffinity.weight());
        }
    }

    fn score_images(&mut self, images: &ImageColumns) {
        // The plugin's weight is 1. An empty column means zeros.
        self.scratch.totals.iter_mut().zip(&images.scores).for_each(|(t, score)| *t += score);
    }

    fn find_best(&mut self, by_name: &[u32]) {
        // Scoring by NodeAffinity fails, which ends the attempt.
        if self.spec.preferred_fault.is_some() {
            return;
        }
        let Scratch { fits, totals, best, .. } = &mut *self.scratch;
        for (total, fits) in totals.iter_mut().zip(&*fits) {
            *total = if *fits == 0 { i32::MIN } else { *total };
        }
        let highest = totals.iter().copied().max().unwrap_or(i32::MIN);
        best.extend(by_name.iter().copied().filter(|slot| totals[*slot as usize] == highest));
    }
}

/// The number of ones.
pub(super) fn count(column: &[u8]) -> usize {
    // Sums in bytes, for as many elements as cannot overflow, can be vectorized.
    column.chunks(255).map(|chunk| usize::from(chunk.iter().sum::<u8>())).sum()
}

/// The highest value whose mark is 1.
pub(super) fn highest(values: &[i64], marks: &[u8]) -> i64 {
    values.iter().zip(marks).map(|(v, mark)| if *mark == 0 { i64::MIN } else { *v }).max().unwrap_or(i64::MIN)
}

/// The lowest value whose mark is 1.
pub(super) fn lowest(values: &[i64], marks: &[u8]) -> i64 {
    values.iter().zip(marks).map(|(v, mark)| if *mark == 0 { i64::MAX } else { *v }).min().unwrap_or(i64::MAX)
}
