//! How a node stands: what its kubelet, the node controller and others said of it last.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use stead_model::times::{is_near, seconds};
use stead_model::{ModelError, NodeHealth, ObjectKey, Objects};

/// The health of a node; none where there is no Node of this name. That it is well formed is checked beforehand.
pub(crate) fn health<'a>(objects: &'a Objects, name: &str) -> Option<NodeHealth<'a>> {
    objects.node_health(name).ok().flatten()
}

/// An error where a Node is malformed: what becomes of pods depends on all nodes.
pub(crate) fn check_nodes(objects: &Objects) -> Result<(), ModelError> {
    objects.keys("Node").try_for_each(|key| objects.node(&key.name).map(|_| ()))
}

/// A time as Kubernetes writes it; none where it is too far away to be one.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok().filter(|at| is_near(*at))
}

/// The taint that lets Kubernetes take pods and volumes from a machine that is known to be off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The taint of a node that has gone silent.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taint that a cloud's controller puts on a node whose machine is shut down.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Where the kubelets' leases are.
pub(crate) const LEASES: &str = "kube-node-lease";

/// How long a lease lasts that does not say it.
const LEASE: SignedDuration = SignedDuration::from_secs(40);

/// One life of a machine, from one start to the next.
pub type BootId = String;

/// What the condition Ready says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The kubelet says that all is well.
    Ready,
    /// The kubelet says that it is not.
    NotReady,
    /// Nobody has heard of it: the node controller says so.
    Unknown,
}

/// A kubelet's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSeen {
    /// When it was last renewed, by the node's own clock. A machine that was suspended has one that is behind.
    pub renewed: Timestamp,
    /// When it was last written, by the API server's clock, where `metadata.managedFields` was read too.
    pub written: Option<Timestamp>,
    /// How long that is good for.
    pub lasts: SignedDuration,
}

impl LeaseSeen {
    /// Whether the kubelet has given a sign of life so recently that it must be taken for alive.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        // A renewal that lies ahead tells of a clock that is ahead, and of nothing else where it is known better.
        let renewed = Some(self.renewed).filter(|at| *at <= now || self.written.is_none());
        self.written.into_iter().chain(renewed).any(|at| now.duration_since(at) <= self.lasts)
    }
}

/// What leases are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The moment of which they tell.
    pub now: Timestamp,
    /// So long after its last word the node controller has found a node silent.
    pub found: SignedDuration,
}

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStanding {
    /// Its name.
    pub name: String,
    /// Its identity: a machine that registers anew has another.
    pub uid: String,
    /// Which version of the object this is.
    pub resource_version: String,
    /// What its condition Ready says.
    pub readiness: Readiness,
    /// Since when it says so.
    pub since: Option<Timestamp>,
    /// When its kubelet last spoke by its status, by the node's own clock.
    pub heartbeat: Option<Timestamp>,
    /// Its lease, where it was read.
    pub lease: Option<LeaseSeen>,
    /// Its taints, as found.
    pub taints: Vec<Value>,
    /// Which life of the machine this is.
    pub boot_id: Option<BootId>,
    /// The machine, as its cloud calls it.
    pub provider_id: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Volumes that its kubelet has, or will have, mounted; by the names that kubelets have for them.
    pub volumes_in_use: Vec<String>,
    /// Its annotations' value for a key is asked for by [`NodeStanding::annotation`].
    annotations: Value,
    /// Its labels' value for a key is asked for by [`NodeStanding::label`].
    labels: Value,
}

impl NodeStanding {
    /// The node of this name, with its lease; none where there is no such Node object.
    pub fn find(objects: &Objects, name: &str) -> Option<NodeStanding> {
        let node = objects.raw(&ObjectKey::new("Node", "", name))?;
        let lease = objects.raw(&ObjectKey::new("Lease", LEASES, name));
        Some(NodeStanding::of(node, lease))
    }

    /// How a Node object and its Lease have it.
    pub fn of(node: &Value, lease: Option<&Value>) -> NodeStanding {
        let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        let (metadata, spec, status) = (&node["metadata"], &node["spec"], &node["status"]);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|c| c["type"] == "Ready");
        let labels = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "zone"];
        NodeStanding {
            name: text(&metadata["name"]).unwrap_or_default(),
            uid: text(&metadata["uid"]).unwrap_or_default(),
            resource_version: text(&metadata["resourceVersion"]).unwrap_or_default(),
            readiness: match ready.and_then(|c| c["status"].as_str()) {
                Some("True") => Readiness::Ready,
                Some("False") => Readiness::NotReady,
                _ => Readiness::Unknown,
            },
            since: ready.and_then(|c| time(&c["lastTransitionTime"])),
            heartbeat: ready.and_then(|c| time(&c["lastHeartbeatTime"])),
            lease: lease.and_then(lease_seen),
            taints: spec["taints"].as_array().cloned().unwrap_or_default(),
            boot_id: text(&status["nodeInfo"]["bootID"]),
            provider_id: text(&spec["providerID"]),
            zone: labels.iter().find_map(|l| text(&metadata["labels"][*l])),
            volumes_in_use: status["volumesInUse"].as_array().into_iter().flatten().filter_map(text).collect(),
            annotations: metadata["annotations"].clone(),
            labels: metadata["labels"].clone(),
        }
    }

    /// The first taint of this key.
    pub fn taint(&self, key: &str) -> Option<&Value> {
        self.taints.iter().find(|t| t["key"] == key)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations[key].as_str()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels[key].as_str()
    }

    /// The zone as the node controller counts it: by the well-known labels of region and zone alone.
    pub fn zone_key(&self) -> String {
        let of = |keys: [&str; 2]| keys.into_iter().find_map(|k| self.label(k)).unwrap_or_default();
        let region = of(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
        let zone = of(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
        format!("{region}:{zone}")
    }

    /// Whether nothing is heard of its kubelet: the node controller says so and the lease was not renewed since, or the
    /// lease has run out. A kubelet that says itself that it is not ready is not silent.
    pub fn is_silent(&self, by: Listening) -> bool {
        match (self.readiness, self.lease) {
            (Readiness::Unknown, Some(lease)) => self.since.is_none_or(|since| lease.renewed <= since),
            // Of a node without any such condition nothing was ever said.
            (Readiness::Unknown, None) => self.since.is_some(),
            (_, lease) => lease.is_some_and(|lease| !lease.is_fresh(by.now)) && !self.is_behind(by),
        }
    }

    /// Whether its kubelet answers, but it is said not to be ready.
    pub fn is_unwell(&self, by: Listening) -> bool {
        self.readiness != Readiness::Ready && self.since.is_some() && !self.is_silent(by)
    }

    /// Whether its clock must be behind. The node controller goes by when it saw a lease change, not by the time that the
    /// node wrote into it: of one that is silent for so long as its lease has it, it would have said so.
    pub fn is_behind(&self, by: Listening) -> bool {
        let behind = |lease: LeaseSeen| lease.written.is_none() && by.now.duration_since(lease.renewed) > by.found;
        self.readiness != Readiness::Unknown && self.lease.is_some_and(behind)
    }

    /// Whether its kubelet has given a sign of life by its lease so recently that it must be taken for alive.
    pub fn lease_is_fresh(&self, now: Timestamp) -> bool {
        self.lease.is_some_and(|lease| lease.is_fresh(now))
    }

    /// When it was last heard of: the later of lease and heartbeat.
    pub fn last_heard(&self) -> Option<Timestamp> {
        self.lease.map(|lease| lease.renewed).max(self.heartbeat)
    }
}

fn lease_seen(lease: &Value) -> Option<LeaseSeen> {
    let spec = &lease["spec"];
    let lasts = spec["leaseDurationSeconds"].as_i64().map_or(LEASE, seconds);
    let entries = lease["metadata"]["managedFields"].as_array().into_iter().flatten();
    let written = entries.filter_map(|entry| time(&entry["time"])).max();
    Some(LeaseSeen { renewed: time(&spec["renewTime"])?, written, lasts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_silent_node_is_read_as_it_stands() {
        let node = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "zone": "A" },
                          "annotations": { "k": "v" } },
            "spec": { "providerID": "openstack:///x", "taints": [{ "key": UNREACHABLE, "effect": "NoExecute" }] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:50Z",
                                 "lastHeartbeatTime": "2026-01-01T00:00:00Z" }],
                "nodeInfo": { "bootID": "b" },
                "volumesInUse": ["kubernetes.io/csi/d^v"],
            },
        });
        let lease = json!({ "spec": { "renewTime": "2026-01-01T00:00:04.000000Z", "leaseDurationSeconds": 40 } });
        let seen = NodeStanding::of(&node, Some(&lease));
        assert_eq!(seen.readiness, Readiness::Unknown);
        assert_eq!((seen.zone.as_deref(), seen.boot_id.as_deref()), (Some("A"), Some("b")));
        assert_eq!(seen.annotation("k"), Some("v"));
        assert!(seen.taint(UNREACHABLE).is_some() && seen.taint(OUT_OF_SERVICE).is_none());
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(seen.last_heard(), Some(at("2026-01-01T00:00:04Z")));
        assert!(seen.lease_is_fresh(at("2026-01-01T00:00:44Z")));
        assert!(!seen.lease_is_fresh(at("2026-01-01T00:00:45Z")));
    }

    #[test]
    fn a_clock_that_is_behind_does_not_make_a_lease_old() {
        let lease = json!({
            "metadata": { "managedFields": [{ "manager": "kubelet", "time": "2026-01-01T00:10:00Z" }] },
            "spec": { "renewTime": "2026-01-01T00:00:04.000000Z", "leaseDurationSeconds": 40 },
        });
        let seen = NodeStanding::of(&json!({}), Some(&lease));
        assert!(seen.lease_is_fresh("2026-01-01T00:10:40Z".parse().expect("a time")));
        assert!(!seen.lease_is_fresh("2026-01-01T00:10:41Z".parse().expect("a time")));
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_lease_fresh() {
        let lease = json!({
            "metadata": { "managedFields": [{ "manager": "kubelet", "time": "2026-01-01T00:10:00Z" }] },
            "spec": { "renewTime": "2026-01-01T01:10:00.000000Z", "leaseDurationSeconds": 40 },
        });
        let seen = NodeStanding::of(&json!({}), Some(&lease));
        assert!(seen.lease_is_fresh("2026-01-01T00:10:40Z".parse().expect("a time")));
        assert!(!seen.lease_is_fresh("2026-01-01T00:10:41Z".parse().expect("a time")));
    }

    #[test]
    fn what_the_node_controller_would_have_found_is_a_clock_that_is_behind() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let seen = |status: &str, written: Option<&str>| {
            let node = json!({ "status": { "conditions": [
                { "type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
            let fields = written.map(|time| json!([{ "manager": "kubelet", "time": time }]));
            let lease = json!({ "metadata": { "managedFields": fields },
                "spec": { "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40 } });
            NodeStanding::of(&node, Some(&lease))
        };
        let by = |now: &str| Listening { now: at(now), found: SignedDuration::from_secs(60) };
        for (status, written, now, silent) in [
            ("True", None, "2026-01-01T00:00:40Z", false),
            ("True", None, "2026-01-01T00:00:50Z", true),
            ("True", None, "2026-01-01T00:01:30Z", false),
            ("False", None, "2026-01-01T00:01:30Z", false),
            ("Unknown", None, "2026-01-01T00:01:30Z", true),
            // The API server's own clock is not behind.
            ("True", Some("2026-01-01T00:00:00Z"), "2026-01-01T00:01:30Z", true),
        ] {
            assert_eq!(seen(status, written).is_silent(by(now)), silent, "{status} {written:?} {now}");
        }
    }

    #[test]
    fn nothing_said_is_nothing_known() {
        let seen = NodeStanding::of(&json!({}), Some(&json!({ "spec": { "renewTime": 7 } })));
        assert_eq!((seen.readiness, seen.lease, seen.boot_id), (Readiness::Unknown, None, None));
    }
}
