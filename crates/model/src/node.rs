//! Nodes, their leases, and whether their kubelets are heard from.

use std::ops::Deref;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::objects::{ObjectRef, Objects};
use crate::times::{near, seconds};
use crate::typed::parse;

/// The taint by which Kubernetes releases the pods and volumes of a machine that is known to be off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The taint of a node that the node controller no longer hears from.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taint of a node whose kubelet reports that it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taint that a cloud's node controller puts on a node whose machine is shut down.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The namespace of the kubelets' leases.
pub const NODE_LEASES: &str = "kube-node-lease";

/// How long a lease is valid that does not say so.
const DEFAULT_LEASE_DURATION: SignedDuration = SignedDuration::from_secs(40);

/// The identity of one boot of a machine.
pub type BootId = String;

/// A node.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    object: ObjectRef<'a>,
    node: &'a Node,
}

impl Objects {
    /// The node of this name; an error where it is malformed.
    pub fn node(&self, name: &str) -> Result<Option<NodeView<'_>>, ModelError> {
        self.object(&ObjectKey::node(name)).map(NodeView::of).transpose()
    }

    /// All nodes, malformed ones left out.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.of_kind("Node").filter_map(|object| NodeView::of(object).ok())
    }

    /// The health of a node; an error where the Node is malformed, none where there is no Node of this name.
    pub fn node_health(&self, name: &str) -> Result<Option<NodeHealth<'_>>, ModelError> {
        Ok(self.node(name)?.map(|node| NodeHealth::new(node, self.node_lease(name))))
    }

    /// The lease of a node's kubelet; none where it was not read or is malformed.
    pub fn node_lease(&self, node: &str) -> Option<LeaseView> {
        LeaseView::of(self.find::<Lease>(NODE_LEASES, node)?)
    }
}

impl<'a> NodeView<'a> {
    fn of(object: ObjectRef<'a>) -> Result<NodeView<'a>, ModelError> {
        Ok(NodeView { object, node: object.typed()? })
    }

    /// Its key.
    pub fn key(self) -> &'a ObjectKey {
        self.object.key()
    }

    /// Its Kubernetes type.
    pub fn typed(self) -> &'a Node {
        self.node
    }

    /// Its JSON: for patches, and for data that is passed through.
    pub fn raw(self) -> &'a Value {
        self.object.raw()
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        &self.key().name
    }

    /// Its UID: a node that registers again has another.
    pub fn uid(self) -> &'a str {
        self.node.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The version of this object.
    pub fn resource_version(self) -> &'a str {
        self.node.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn spec(self) -> Option<&'a NodeSpec> {
        self.node.spec.as_ref()
    }

    fn status(self) -> Option<&'a NodeStatus> {
        self.node.status.as_ref()
    }

    /// A condition.
    pub fn condition(self, kind: &str) -> Option<&'a NodeCondition> {
        self.status()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
    }

    /// Its taints.
    pub fn taints(self) -> &'a [Taint] {
        self.spec().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
    }

    /// The first taint of this key.
    pub fn taint(self, key: &str) -> Option<&'a Taint> {
        self.taints().iter().find(|taint| taint.key == key)
    }

    /// The value of an annotation.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The current boot of the machine.
    pub fn boot_id(self) -> Option<&'a str> {
        let info = self.status()?.node_info.as_ref()?;
        Some(info.boot_id.as_str()).filter(|id| !id.is_empty())
    }

    /// The version of its kubelet.
    pub fn kubelet_version(self) -> Option<&'a str> {
        let info = self.status()?.node_info.as_ref()?;
        Some(info.kubelet_version.as_str()).filter(|version| !version.is_empty())
    }

    /// The machine, by its cloud's name for it.
    pub fn provider_id(self) -> Option<&'a str> {
        self.spec()?.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Its zone, by the labels that are used for zones.
    pub fn zone(self) -> Option<&'a str> {
        let labels = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "zone"];
        labels.into_iter().find_map(|label| self.label(label)).filter(|zone| !zone.is_empty())
    }

    /// The zone as the node controller groups nodes: by the well-known labels of region and zone (`GetZoneKey` in
    /// `k8s.io/component-helpers/node/topology`).
    pub fn zone_key(self) -> String {
        let of = |keys: [&str; 2]| keys.into_iter().find_map(|key| self.label(key)).unwrap_or_default();
        let region = of(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
        let zone = of(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
        format!("{region}:{zone}")
    }

    /// The volumes that its kubelet has mounted, or is about to, by their unique names.
    pub fn volumes_in_use(self) -> &'a [String] {
        self.status().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default()
    }

    /// The volumes that the attach/detach controller reports as attached to it, by their unique names.
    pub fn volumes_attached(self) -> impl Iterator<Item = &'a str> {
        let attached = self.status().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
        attached.iter().map(|volume| volume.name.as_str())
    }

    /// Whether the Node reports a volume, by its unique name, as attached or in use.
    pub fn has_volume(self, unique_name: &str) -> bool {
        self.volumes_in_use().iter().any(|name| name == unique_name)
            || self.volumes_attached().any(|name| name == unique_name)
    }

    /// The field manager that changed its taints last, and when; known where `metadata.managedFields` was read. The list of
    /// taints is atomic: whoever changed it last owns all of it.
    pub fn taints_changed(self) -> Option<(String, Timestamp)> {
        // The typed object does not keep the fields of each manager.
        let entries: Vec<ManagedFieldsEntry> =
            parse(self.key(), self.raw().pointer("/metadata/managedFields")?).ok()?;
        let owns_taints = |entry: &ManagedFieldsEntry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:taints").is_some())
        };
        let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0);
        let last = entries.into_iter().filter(owns_taints).max_by_key(time)?;
        let at = time(&last)?;
        Some((last.manager.unwrap_or_default(), at))
    }
}

/// What the condition Ready of a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The kubelet reports that the node is ready.
    Ready,
    /// The kubelet reports that the node is not ready.
    NotReady,
    /// The node controller no longer hears from the kubelet, or there is no such condition.
    Unknown,
}

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseView {
    /// When it was last renewed, by the clock of its holder. After a machine was suspended its clock can be behind.
    pub renewed: Timestamp,
    /// When it was last written, by the API server's clock; known where `metadata.managedFields` was read.
    pub written: Option<Timestamp>,
    /// How long a renewal is valid.
    pub duration: SignedDuration,
}

impl LeaseView {
    /// A lease; none where it was never renewed.
    pub fn of(lease: &Lease) -> Option<LeaseView> {
        let spec = lease.spec.as_ref()?;
        let duration = spec.lease_duration_seconds.map_or(DEFAULT_LEASE_DURATION, |s| seconds(i64::from(s)));
        let entries = lease.metadata.managed_fields.iter().flatten();
        let written = entries.filter_map(|entry| near(entry.time.as_ref()?.0)).max();
        Some(LeaseView { renewed: near(spec.renew_time.as_ref()?.0)?, written, duration })
    }

    /// Whether it was renewed so recently that its holder must be assumed to be alive.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        // A renewal in the future only shows that the holder's clock is ahead, if the time of the write is known.
        let renewed = Some(self.renewed).filter(|at| *at <= now || self.written.is_none());
        self.written.into_iter().chain(renewed).any(|at| now.duration_since(at) <= self.duration)
    }
}

/// The time that heartbeats are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatClock {
    /// When the leases were read.
    pub now: Timestamp,
    /// How long after a node's last heartbeat the node controller has certainly set its condition Ready to Unknown.
    pub marked_unknown_after: SignedDuration,
}

/// A node, and when it was last heard from.
#[derive(Debug, Clone, Copy)]
pub struct NodeHealth<'a> {
    node: NodeView<'a>,
    /// What its condition Ready says.
    pub readiness: Readiness,
    /// Since when the condition says so.
    pub since: Option<Timestamp>,
    /// When its kubelet last reported its status, by the node's own clock.
    pub heartbeat: Option<Timestamp>,
    /// The lease of its kubelet, where it was read.
    pub lease: Option<LeaseView>,
}

impl<'a> Deref for NodeHealth<'a> {
    type Target = NodeView<'a>;

    fn deref(&self) -> &NodeView<'a> {
        &self.node
    }
}

impl<'a> NodeHealth<'a> {
    /// The health of a node with this lease.
    pub fn new(node: NodeView<'a>, lease: Option<LeaseView>) -> NodeHealth<'a> {
        let ready = node.condition("Ready");
        NodeHealth {
            node,
            readiness: match ready.map(|condition| condition.status.as_str()) {
                Some("True") => Readiness::Ready,
                Some("False") => Readiness::NotReady,
                _ => Readiness::Unknown,
            },
            since: ready.and_then(|condition| near(condition.last_transition_time.as_ref()?.0)),
            heartbeat: ready.and_then(|condition| near(condition.last_heartbeat_time.as_ref()?.0)),
            lease,
        }
    }

    /// The node itself.
    pub fn node(&self) -> NodeView<'a> {
        self.node
    }

    /// Whether its kubelet is not heard from: the node controller says so and the lease was not renewed since, or the
    /// lease has expired. A node whose kubelet reports that it is not ready is reachable.
    pub fn is_unreachable(&self, clock: HeartbeatClock) -> bool {
        match (self.readiness, self.lease) {
            (Readiness::Unknown, Some(lease)) => self.since.is_none_or(|since| lease.renewed <= since),
            // A node without the condition has never reported anything.
            (Readiness::Unknown, None) => self.since.is_some(),
            (_, lease) => lease.is_some_and(|lease| !lease.is_fresh(clock.now)) && !self.clock_is_behind(clock),
        }
    }

    /// Whether its kubelet is heard from, but its condition Ready is not True.
    pub fn is_reachable_but_not_ready(&self, clock: HeartbeatClock) -> bool {
        self.readiness != Readiness::Ready && self.since.is_some() && !self.is_unreachable(clock)
    }

    /// Whether the node's clock must be behind. The node controller goes by when it saw a lease change, not by the time
    /// that the node wrote into it: had the lease not changed for so long, the condition would be Unknown.
    pub fn clock_is_behind(&self, clock: HeartbeatClock) -> bool {
        let behind = |lease: LeaseView| {
            lease.written.is_none() && clock.now.duration_since(lease.renewed) > clock.marked_unknown_after
        };
        self.readiness != Readiness::Unknown && self.lease.is_some_and(behind)
    }

    /// Whether its lease was renewed so recently that its kubelet must be assumed to be alive.
    pub fn lease_is_fresh(&self, now: Timestamp) -> bool {
        self.lease.is_some_and(|lease| lease.is_fresh(now))
    }

    /// When it was last heard from: the later of lease renewal and heartbeat.
    pub fn last_heard(&self) -> Option<Timestamp> {
        self.lease.map(|lease| lease.renewed).max(self.heartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn objects(mut node: Value, mut lease: Value) -> Objects {
        node["apiVersion"] = "v1".into();
        node["kind"] = "Node".into();
        node["metadata"]["name"] = "a".into();
        lease["apiVersion"] = "coordination.k8s.io/v1".into();
        lease["kind"] = "Lease".into();
        lease["metadata"]["name"] = "a".into();
        lease["metadata"]["namespace"] = NODE_LEASES.into();
        Objects::from_items([node, lease])
    }

    fn health(objects: &Objects) -> NodeHealth<'_> {
        objects.node_health("a").expect("it is well formed").expect("it is there")
    }

    #[test]
    fn the_health_of_an_unreachable_node() {
        let node = json!({
            "metadata": { "uid": "u", "resourceVersion": "7", "labels": { "zone": "A" }, "annotations": { "k": "v" } },
            "spec": { "providerID": "openstack:///x", "taints": [{ "key": UNREACHABLE, "effect": "NoExecute" }] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:50Z",
                                 "lastHeartbeatTime": "2026-01-01T00:00:00Z" }],
                "nodeInfo": { "bootID": "b" },
                "volumesInUse": ["kubernetes.io/csi/d^v"],
                "volumesAttached": [{ "name": "kubernetes.io/csi/d^w", "devicePath": "" }],
            },
        });
        let lease = json!({ "spec": { "renewTime": "2026-01-01T00:00:04.000000Z", "leaseDurationSeconds": 40 } });
        let objects = objects(node, lease);
        let health = health(&objects);
        assert_eq!(health.readiness, Readiness::Unknown);
        assert_eq!((health.uid(), health.resource_version()), ("u", "7"));
        assert_eq!(
            (health.zone(), health.boot_id(), health.provider_id()),
            (Some("A"), Some("b"), Some("openstack:///x"))
        );
        assert_eq!((health.annotation("k"), health.zone_key().as_str()), (Some("v"), ":"));
        assert!(health.taint(UNREACHABLE).is_some() && health.taint(OUT_OF_SERVICE).is_none());
        assert!(health.has_volume("kubernetes.io/csi/d^v") && health.has_volume("kubernetes.io/csi/d^w"));
        assert!(!health.has_volume("kubernetes.io/csi/d^x"));
        assert_eq!(health.last_heard(), Some(at("2026-01-01T00:00:04Z")));
        assert!(health.lease_is_fresh(at("2026-01-01T00:00:44Z")));
        assert!(!health.lease_is_fresh(at("2026-01-01T00:00:45Z")));
    }

    #[test]
    fn a_lease_is_fresh_by_the_clock_of_the_api_server() {
        // The node's clock is behind, or ahead.
        for renewed in ["2026-01-01T00:00:04.000000Z", "2026-01-01T01:10:00.000000Z"] {
            let lease = json!({
                "metadata": { "managedFields": [{ "manager": "kubelet", "time": "2026-01-01T00:10:00Z" }] },
                "spec": { "renewTime": renewed, "leaseDurationSeconds": 40 },
            });
            let objects = objects(json!({}), lease);
            assert!(health(&objects).lease_is_fresh(at("2026-01-01T00:10:40Z")), "{renewed}");
            assert!(!health(&objects).lease_is_fresh(at("2026-01-01T00:10:41Z")), "{renewed}");
        }
    }

    #[test]
    fn a_node_is_unreachable_when_its_lease_expires_unless_its_clock_must_be_behind() {
        for (status, written, now, unreachable) in [
            ("True", None, "2026-01-01T00:00:40Z", false),
            ("True", None, "2026-01-01T00:00:50Z", true),
            ("True", None, "2026-01-01T00:01:30Z", false),
            ("False", None, "2026-01-01T00:01:30Z", false),
            ("Unknown", None, "2026-01-01T00:01:30Z", true),
            // The API server's own clock is not behind.
            ("True", Some("2026-01-01T00:00:00Z"), "2026-01-01T00:01:30Z", true),
        ] {
            let node = json!({ "status": { "conditions": [
                { "type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
            let fields = written.map(|time| json!([{ "manager": "kubelet", "time": time }]));
            let lease = json!({ "metadata": { "managedFields": fields },
                "spec": { "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40 } });
            let clock = HeartbeatClock { now: at(now), marked_unknown_after: SignedDuration::from_secs(60) };
            let objects = objects(node, lease);
            assert_eq!(health(&objects).is_unreachable(clock), unreachable, "{status} {written:?} {now}");
        }
    }

    #[test]
    fn a_malformed_lease_is_no_lease() {
        let objects = objects(json!({}), json!({ "spec": { "renewTime": 7 } }));
        let health = health(&objects);
        assert_eq!((health.readiness, health.lease, health.boot_id()), (Readiness::Unknown, None, None));
        let warnings: Vec<String> = objects.warnings().iter().map(ToString::to_string).collect();
        assert!(matches!(warnings.as_slice(), [one] if one.starts_with("lease kube-node-lease/a: spec.renewTime: ")));
    }
}
