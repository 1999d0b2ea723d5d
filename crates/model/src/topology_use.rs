//! How custom resources of the OpenStack operators use a Topology, whatever their kind.
//!
//! The operators have some seventy kinds with a reference to a Topology, and each release adds some, so there is no list of
//! them here: any resource of an API group that ends in `.openstack.org` may have references below its spec.

use serde_json::Value;

use crate::key::ObjectKey;
use crate::objects::{ObjectRef, Objects};
use crate::openstack::TopologyRef;

/// Stands for all kinds of the OpenStack operators in a set of the kinds that were read.
pub const ALL_OPENSTACK_KINDS: &str = "*.openstack.org";

/// Whether an `apiVersion` is of one of the OpenStack operators' API groups.
pub fn is_openstack(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, _)| group.ends_with(".openstack.org"))
}

/// Whether a kind stands between a resource of the OpenStack operators and its workload. Up to release 18.0 FR5, a RabbitMq
/// creates a RabbitmqCluster of RabbitMQ's own operator, which creates the StatefulSet.
pub fn is_openstack_intermediate(api_version: &str, kind: &str) -> bool {
    kind == "RabbitmqCluster" && api_version.starts_with("rabbitmq.com/")
}

impl Objects {
    /// The resources of the OpenStack operators in a namespace, whatever their kind.
    pub fn openstack_resources_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = ObjectRef<'a>> {
        self.kinds().filter(|kind| self.is_openstack_kind(kind)).flat_map(move |kind| self.of_kind_in(kind, namespace))
    }

    fn is_openstack_kind(&self, kind: &str) -> bool {
        self.of_kind(kind).next().is_some_and(|object| is_openstack(object.raw()["apiVersion"].as_str().unwrap_or("")))
    }

    /// The resource of the OpenStack operators that an object belongs to: the first of its controllers that is one.
    pub fn openstack_owner(&self, object: &ObjectKey) -> Option<ObjectKey> {
        self.controllers(object).into_iter().find(|key| self.is_openstack_kind(&key.kind) && self.contains(key))
    }
}

/// A reference to a Topology in an object's spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTopologyRef {
    /// The field, such as `spec.cinderVolumes.lvm.topologyRef`.
    pub field: String,
    /// The reference.
    pub reference: TopologyRef,
}

/// Every reference to a Topology below an object's spec, those without a name included.
///
/// Below `override` there are parts of objects of other kinds. Annotations and managed fields repeat the spec: they are not
/// looked at.
pub fn topology_references(object: &Value) -> Vec<FoundTopologyRef> {
    let mut out = Vec::new();
    walk(&object["spec"], "spec", &mut out);
    out
}

fn walk(value: &Value, path: &str, out: &mut Vec<FoundTopologyRef>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields.iter().filter(|(field, _)| *field != "override") {
                let path = format!("{path}.{field}");
                match reference(value).filter(|_| field == "topologyRef") {
                    Some(reference) => out.push(FoundTopologyRef { field: path, reference }),
                    None => walk(value, &path, out),
                }
            }
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| walk(item, &format!("{path}[{i}]"), out)),
        _ => {}
    }
}

/// A value as a reference; none where it is something else of the same name.
fn reference(value: &Value) -> Option<TopologyRef> {
    let fields = value.as_object()?;
    let known = fields.keys().all(|field| matches!(field.as_str(), "name" | "namespace"));
    known.then(|| serde::Deserialize::deserialize(value).ok()).flatten()
}

/// The Topology that an operator last applied to the pods of an object, by its status.
pub fn applied_topology(object: &Value) -> Option<&str> {
    object.pointer("/status/lastAppliedTopology/name")?.as_str().filter(|name| !name.is_empty())
}

/// A finalizer by which a user holds a Topology: `openstack.org/KIND-SUFFIX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyFinalizer<'a> {
    /// The kind of the user, in lower case.
    pub kind: &'a str,
    /// What tells the user from others of its kind, as a rule its name.
    pub suffix: &'a str,
}

impl<'a> TopologyFinalizer<'a> {
    /// Reads a finalizer; none for any other. Without a suffix it is the finalizer that an operator puts on its own object.
    pub fn parse(finalizer: &'a str) -> Option<TopologyFinalizer<'a>> {
        let (kind, suffix) = finalizer.strip_prefix("openstack.org/")?.split_once('-')?;
        let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        // This one protects Secrets.
        let secret = kind == "transport" && suffix == "secret-protection";
        (is_kind && !suffix.is_empty() && !secret).then_some(TopologyFinalizer { kind, suffix })
    }

    /// Whether this object of the kind put it there.
    pub fn is_of(&self, object: ObjectRef<'_>) -> bool {
        let key = object.key();
        if key.kind.to_lowercase() != self.kind {
            return false;
        }
        match key.kind.as_str() {
            // Both GlanceAPIs of a split API share the finalizer.
            "GlanceAPI" => match object.raw().pointer("/metadata/labels/api-name").and_then(Value::as_str) {
                Some(api) => api == self.suffix,
                None => key.name.contains(&format!("-{}-", self.suffix)),
            },
            "DesignateCentral" => self.suffix == "designate-central" || self.suffix == key.name,
            "DesignateProducer" => self.suffix == "designate-producer" || self.suffix == key.name,
            _ => self.suffix == key.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_at_any_depth_and_only_in_the_spec() {
        let object = json!({
            "metadata": {
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":{\"topologyRef\":{\"name\":\"no\"}}}" },
                "managedFields": [{ "fieldsV1": { "f:spec": { "f:topologyRef": { "f:name": {} } } } }],
            },
            "spec": {
                "topologyRef": { "name": "a", "namespace": "n" },
                "cinderVolumes": { "lvm": { "topologyRef": { "name": "b" } }, "nfs": { "topologyRef": {} } },
                "ironicConductors": [{}, { "topologyRef": { "name": "c" } }],
                "aodh": { "topologyRef": { "name": "d" } },
                "override": { "statefulSet": { "topologyRef": { "name": "no" } } },
                "nodeSelector": { "topologyRef": "no" },
                "plugin": { "topologyRef": { "name": "no", "kind": "Other" } },
            },
            "status": { "topologyRef": { "name": "no" } },
        });
        let found: Vec<String> = topology_references(&object)
            .iter()
            .map(|found| format!("{} {}", found.field, found.reference.topology().unwrap_or("-")))
            .collect();
        assert_eq!(
            found,
            [
                "spec.aodh.topologyRef d",
                "spec.cinderVolumes.lvm.topologyRef b",
                "spec.cinderVolumes.nfs.topologyRef -",
                "spec.ironicConductors[1].topologyRef c",
                "spec.topologyRef a",
            ]
        );
    }

    #[test]
    fn finalizers_name_a_kind_and_an_object() {
        for (finalizer, expected) in [
            ("openstack.org/memcached-memcached", Some(("memcached", "memcached"))),
            ("openstack.org/cindervolume-cinder-volume-lvm", Some(("cindervolume", "cinder-volume-lvm"))),
            ("openstack.org/designatebackendbind9-b", Some(("designatebackendbind9", "b"))),
            ("openstack.org/glance", None),
            ("openstack.org/transport-secret-protection", None),
            ("turl.openstack.org/t-x", None),
            ("rmquser.openstack.org/u-x", None),
            ("openstack.org/-x", None),
            ("openstack.org/memcached-", None),
        ] {
            let parsed = TopologyFinalizer::parse(finalizer).map(|f| (f.kind, f.suffix));
            assert_eq!(parsed, expected, "{finalizer}");
        }
    }

    #[test]
    fn a_finalizer_is_resolved_by_the_rule_of_its_kind() {
        let object = |kind: &str, name: &str, labels: Value| json!({ "apiVersion": "glance.openstack.org/v1beta1", "kind": kind, "metadata": { "name": name, "namespace": "n", "labels": labels } });
        for (item, finalizer, expected) in [
            (object("GlanceAPI", "glance-az-edge", json!({ "api-name": "az" })), "openstack.org/glanceapi-az", true),
            (object("GlanceAPI", "glance-az-edge", json!({})), "openstack.org/glanceapi-az", true),
            (object("GlanceAPI", "glance-az-edge", json!({})), "openstack.org/glanceapi-z", false),
            (object("DesignateCentral", "d", json!({})), "openstack.org/designatecentral-designate-central", true),
            (object("DesignateWorker", "d", json!({})), "openstack.org/designateworker-designate-worker", false),
            (object("Memcached", "m", json!({})), "openstack.org/memcached-m", true),
            (object("Memcached", "m", json!({})), "openstack.org/redis-m", false),
        ] {
            let objects = Objects::from_items([item]);
            let object = objects.iter().next().expect("it is there");
            let parsed = TopologyFinalizer::parse(finalizer).expect("a finalizer of a Topology");
            assert_eq!(parsed.is_of(object), expected, "{finalizer} {}", object.key());
        }
    }

    #[test]
    fn resources_are_told_by_their_group() {
        let object = |version: &str, kind: &str, namespace: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x", "namespace": namespace } });
        let objects = Objects::from_items([
            object("memcached.openstack.org/v1beta1", "Memcached", "n"),
            object("memcached.openstack.org/v1beta1", "Memcached", "other"),
            object("glance.openstack.org/v1beta1", "Glance", "n"),
            object("openstack.org/v1", "Bare", "n"),
            object("evil-openstack.org/v1", "Evil", "n"),
            object("rabbitmq.com/v1beta1", "RabbitmqCluster", "n"),
            object("v1", "Pod", "n"),
        ]);
        let found: Vec<String> = objects.openstack_resources_in("n").map(|object| object.key().to_string()).collect();
        assert_eq!(found, ["glance n/x", "memcached n/x"]);
    }
}
