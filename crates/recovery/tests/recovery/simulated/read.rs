//! What a recoverer reads from the simulated API server.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_model::{NODE_LEASES, ObjectKey, Objects};
use stead_sim::{ObjectKind, SimKey};

use super::cluster::{NODES, node_name};
use super::run::Run;

/// How old a stale read can be.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(30);

/// The objects as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) objects: Objects,
    /// The turn and the time in which everything except nodes was read.
    pub(crate) turn: u64,
    at: Timestamp,
    /// The objects, except nodes, that have changed since.
    changed: BTreeSet<SimKey>,
}

impl Read {
    pub(crate) fn note_change(&mut self, key: &SimKey) {
        if !matches!(key.kind, ObjectKind::Node | ObjectKind::Lease | ObjectKind::ControllerRevision) {
            self.changed.insert(key.clone());
        }
    }
}

impl Run {
    /// Reads everything that a step needs: nodes and Leases last; the other objects may be from an older read.
    pub(crate) fn refresh(&mut self) {
        let mut read = std::mem::take(&mut self.read);
        let now = self.simulation.now();
        let old = now.duration_since(read.at) > MAX_AGE;
        if read.turn == 0 || self.faults_over || old || !self.chance.percent(self.setting.stale) {
            for key in std::mem::take(&mut read.changed) {
                match self.simulation.store().object(&key) {
                    Some(object) => put(&mut read.objects, object.to_json()),
                    None => read.objects.remove(&key.to_model()),
                }
            }
            (read.turn, read.at) = (self.turn, now);
        }
        for n in 0..NODES {
            match self.node_json(n) {
                Some(node) => put(&mut read.objects, node),
                None => read.objects.remove(&ObjectKey::node(&node_name(n))),
            }
            match self.lease_json(n) {
                Some(lease) => put(&mut read.objects, lease),
                None => read.objects.remove(&ObjectKey::namespaced("Lease", NODE_LEASES, &node_name(n))),
            }
        }
        self.read = read;
    }

    fn node_json(&self, n: usize) -> Option<Value> {
        let mut node = self.simulation.store().object(&SimKey::node(&node_name(n)))?.to_json();
        let (manager, at) = self.nodes[n].taints_by;
        let fields = json!({ "f:spec": { "f:taints": {} } });
        node["metadata"]["managedFields"] =
            json!([{ "manager": manager, "operation": "Update", "time": whole_seconds(at), "fieldsV1": fields }]);
        Some(node)
    }

    /// The heartbeats of a healthy kubelet are implied; its clock may be behind.
    fn lease_json(&self, n: usize) -> Option<Value> {
        let key = SimKey::new(ObjectKind::Lease, NODE_LEASES, &node_name(n));
        let mut lease = self.simulation.store().object(&key)?.to_json();
        let written = self.simulation.last_renewal(&node_name(n), self.simulation.now())?;
        lease["metadata"]["managedFields"] =
            json!([{ "manager": "kubelet", "operation": "Update", "time": whole_seconds(written) }]);
        lease["spec"]["renewTime"] = (written - self.nodes[n].behind).to_string().into();
        Some(lease)
    }
}

fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap().to_string()
}

fn put(objects: &mut Objects, object: Value) {
    let key = ObjectKey::of(&object).expect("it has kind and name");
    objects.insert(key, object);
}
