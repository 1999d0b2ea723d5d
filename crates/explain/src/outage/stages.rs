//! The cluster as the scheduler sees it, from one moment to the next.
//!
//! It goes by the taints of nodes, and those come and go later than what they tell of: a node that has gone silent has
//! none until the node controller finds that out, one that is back keeps its own until the node controller looks.

use jiff::Timestamp;
use serde_json::Value;
use stead_placement::{Cluster, Pod};

use stead_model::{ModelError, ObjectKey};

/// The cluster, and how it is from each moment on at which a node changes for the scheduler; the earliest first.
pub(super) struct Stages {
    now: Cluster,
    later: Vec<(Timestamp, Cluster)>,
}

impl Stages {
    pub(super) fn new(now: Cluster) -> Stages {
        Stages { now, later: Vec::new() }
    }

    /// There is no such node.
    pub(super) fn remove(&mut self, node: &ObjectKey) {
        for cluster in self.all() {
            cluster.take_object(node);
        }
    }

    /// A node is so.
    pub(super) fn set(&mut self, key: &ObjectKey, node: &Value) -> Result<(), ModelError> {
        self.all().try_for_each(|cluster| cluster.put_raw(key, node))
    }

    /// From a moment on, a node is so.
    pub(super) fn set_from(&mut self, from: Timestamp, key: &ObjectKey, node: &Value) -> Result<(), ModelError> {
        let place = self.later.partition_point(|(at, _)| *at < from);
        if self.later.get(place).is_none_or(|(at, _)| *at != from) {
            let before = place.checked_sub(1).and_then(|p| self.later.get(p)).map_or(&self.now, |(_, c)| c);
            self.later.insert(place, (from, before.clone()));
        }
        self.later.iter_mut().skip(place).try_for_each(|(_, cluster)| cluster.put_raw(key, node))
    }

    /// A pod takes its room on a node.
    pub(super) fn occupy(&mut self, pod: &Pod, node: &str) {
        for cluster in self.all() {
            // A node that the fork does not know takes no room in it.
            let _ = cluster.assume(pod, node);
        }
    }

    /// The cluster at a moment.
    pub(super) fn at(&self, at: Timestamp) -> &Cluster {
        self.later.iter().rfind(|(from, _)| *from <= at).map_or(&self.now, |(_, cluster)| cluster)
    }

    /// The cluster when all that is foreseen of its nodes has come.
    pub(super) fn last(&self) -> &Cluster {
        self.at(Timestamp::MAX)
    }

    /// When it changes.
    pub(super) fn moments(&self) -> impl Iterator<Item = Timestamp> {
        self.later.iter().map(|(from, _)| *from)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Cluster> {
        std::iter::once(&mut self.now).chain(self.later.iter_mut().map(|(_, cluster)| cluster))
    }
}
