//! A cluster that is being made up, and what triage has to find in it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_chance::Chance;

/// Causes with the object that each is about, and the stuck objects of each.
pub type Expected = BTreeMap<(String, String), BTreeSet<String>>;

/// A generated cluster.
#[derive(Debug)]
pub struct FaultyCluster {
    pub(crate) chance: Chance,
    /// When the dump was made.
    pub(crate) now: Timestamp,
    /// Whether events are still there: they expire after an hour.
    pub(crate) has_events: bool,
    /// The healthy nodes of the background with their zones.
    pub(crate) nodes: Vec<(String, String)>,
    items: Vec<Value>,
    expected: Expected,
    planted: Vec<&'static str>,
    /// Kinds that the dump lacks.
    pub(crate) omitted: BTreeSet<&'static str>,
    serial: u64,
    /// How many Deployments and StatefulSets each namespace has.
    pub(crate) apps: usize,
}

impl FaultyCluster {
    pub(crate) fn new(mut chance: Chance, nodes: usize) -> FaultyCluster {
        let has_events = chance.percent(50);
        // Two kinds that dumps often lack and that other objects make up for.
        let omitted = ["Lease", "ReplicaSet"].into_iter().filter(|_| chance.percent(20)).collect();
        let zones = ["zone-a", "zone-b", "zone-c"];
        let apps = 2 + nodes / 20;
        let nodes = (0..nodes).map(|i| (format!("worker-{i:03}"), zones[i % zones.len()].to_owned())).collect();
        let now = "2026-03-01T12:00:00Z".parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let (items, expected, planted) = (Vec::new(), Expected::new(), Vec::new());
        FaultyCluster { chance, now, has_events, nodes, items, expected, planted, omitted, serial: 0, apps }
    }

    /// The objects.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// What triage has to find.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// The names of the planted faults.
    pub fn planted(&self) -> &[&'static str] {
        &self.planted
    }

    /// When the dump was made.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.items.iter().filter(|item| item["kind"] == "Node").count()
    }

    /// The kinds that were read, even those without objects.
    pub fn kinds(&self) -> BTreeSet<String> {
        let all = stead_model::KINDS.iter().map(|kind| kind.kind);
        let unread = ["Secret", "ConfigMap"];
        all.filter(|kind| !self.omitted.contains(kind) && !unread.contains(kind)).map(str::to_owned).collect()
    }

    pub(crate) fn add(&mut self, item: Value) {
        self.items.push(item);
    }

    pub(crate) fn note(&mut self, fault: &'static str) {
        self.planted.push(fault);
    }

    /// Expects objects under a cause.
    pub(crate) fn expect<T: Into<String>>(&mut self, cause: &str, about: &str, objects: impl IntoIterator<Item = T>) {
        let known = self.expected.entry((cause.to_owned(), about.to_owned())).or_default();
        known.extend(objects.into_iter().map(Into::into));
    }

    /// A time so many seconds ago.
    pub(crate) fn ago(&self, seconds: i64) -> String {
        let at = self.now - SignedDuration::from_secs(seconds);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// A number that no other object has.
    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The suffix of a generated name, without vowels as Kubernetes' own.
    pub(crate) fn suffix(&mut self, length: usize) -> String {
        let letters: Vec<char> = "bcdfghjklmnpqrstvwxz2456789".chars().collect();
        let mut text: String = (0..length.saturating_sub(2)).filter_map(|_| self.chance.one_of(&letters)).collect();
        // No two names are equal.
        let serial = self.serial() as usize;
        text.push(letters[serial % letters.len()]);
        text.push(letters[serial / letters.len() % letters.len()]);
        text
    }

    /// A healthy node of the background.
    pub(crate) fn node(&mut self) -> String {
        let at = self.chance.below(self.nodes.len() as u64) as usize;
        self.nodes[at].0.clone()
    }

    /// Another healthy node than this one.
    pub(crate) fn node_but(&mut self, other: &str) -> String {
        loop {
            let node = self.node();
            if node != other || self.nodes.len() == 1 {
                return node;
            }
        }
    }

    /// Drops what the dump lacks, and orders the objects at random.
    pub(crate) fn finish(&mut self) {
        let kept = std::mem::take(&mut self.items);
        let kept = kept.into_iter().filter(|item| !self.omitted.iter().any(|kind| item["kind"] == **kind)).collect();
        self.items = self.chance.shuffled(kept);
    }
}
