//! What the operator may do, and why: one table, from which its roles are made.

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};
use crate::workload::{NAME, Options};

/// What may be done to some resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resources, or their subresources.
    pub resources: &'static [&'static str],
    /// What may be done to them.
    pub verbs: &'static [&'static str],
    /// The only objects that it may be done to; empty for all.
    pub names: &'static [&'static str],
    /// Why the operator needs it.
    pub why: &'static str,
}

const fn right(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { group, resources, verbs, names: &[], why }
}

const TOPOLOGY: &str = "topology.openstack.org";
const GLANCE: &str = "glance.openstack.org";
const PLANE: &str = "core.openstack.org";

/// To follow what others write.
const WATCH: &[&str] = &["list", "watch"];
/// To follow what the operator writes too: after a conflict an object is read anew.
const READ: &[&str] = &["get", "list", "watch"];
/// To apply objects, whether they are there or not. The garbage collector takes them away with their owner.
const APPLY: &[&str] = &["create", "patch"];
const MAKE: &[&str] = &["create", "patch", "delete"];
const PATCH: &[&str] = &["patch"];

/// What the operator may do in the whole cluster.
pub const CLUSTER: &[Right] = &[
    right(TOPOLOGY, &["topologies"], READ, "the loops follow Topologies"),
    right(TOPOLOGY, &["topologies"], PATCH, "a Topology in use is held by a finalizer of each API"),
    right(TOPOLOGY, &["topologies/status"], PATCH, "a Topology says who uses it and whether nodes can follow it"),
    right(GLANCE, &["glances", "glanceapis"], READ, "the loops look after Glances and their APIs"),
    right(GLANCE, &["glances", "glanceapis"], MAKE, "a control plane makes a Glance, a Glance its APIs; finalizers"),
    right(GLANCE, &["glances/status", "glanceapis/status"], PATCH, "conditions"),
    right(GLANCE, &["glances/finalizers", "glanceapis/finalizers"], &["update"], "they own what is made for them"),
    right(PLANE, &["openstackcontrolplanes"], READ, "the loops look after control planes"),
    right(PLANE, &["openstackcontrolplanes/status"], PATCH, "conditions"),
    right(PLANE, &["openstackcontrolplanes/finalizers"], &["update"], "they own their Glance"),
    right("apps", &["statefulsets"], READ, "how far the pods of an API are"),
    right("apps", &["statefulsets"], MAKE, "the pods of an API; made anew where claim templates change"),
    right("batch", &["jobs", "cronjobs"], READ, "how far the database is"),
    right("batch", &["jobs", "cronjobs"], MAKE, "database sync and purge, cleaning of caches"),
    right("", &["services"], READ, "endpoints"),
    right("", &["services"], APPLY, "endpoints of an API"),
    right("", &["secrets"], READ, "passwords and certificates that a spec names; only their digests are kept"),
    right("", &["secrets"], APPLY, "the rendered configuration"),
    right("", &["serviceaccounts"], READ, "the account that pods run under"),
    right("", &["serviceaccounts"], APPLY, "the account that pods run under"),
    right("rbac.authorization.k8s.io", &["roles", "rolebindings"], READ, "what pods may do under their account"),
    right("rbac.authorization.k8s.io", &["roles", "rolebindings"], APPLY, "what pods may do under their account"),
    Right {
        group: "security.openshift.io",
        resources: &["securitycontextconstraints"],
        verbs: &["use"],
        names: &["anyuid", "privileged"],
        why: "nobody may give a right that they do not have: this is what the role of Glance's pods gives on OpenShift",
    },
    right("k8s.cni.cncf.io", &["network-attachment-definitions"], WATCH, "networks that an API asks for"),
    right("", &["pods", "persistentvolumeclaims", "nodes"], WATCH, "why pods wait, and where they could run"),
    right("", &["namespaces", "persistentvolumes", "replicationcontrollers"], &["list"], "kube-scheduler's view"),
    right("apps", &["replicasets"], &["list"], "kube-scheduler's view"),
    right("policy", &["poddisruptionbudgets"], &["list"], "kube-scheduler's view"),
    right(
        "storage.k8s.io",
        &["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
        &["list"],
        "kube-scheduler's view",
    ),
    right("resource.k8s.io", &["deviceclasses"], &["list"], "kube-scheduler's view"),
    right("events.k8s.io", &["events"], &["create"], "events tell what was done and why"),
    Right {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        verbs: &["get"],
        names: &[
            "topologies.topology.openstack.org",
            "glances.glance.openstack.org",
            "glanceapis.glance.openstack.org",
            "openstackcontrolplanes.core.openstack.org",
        ],
        why: "a definition that is somebody else's makes the operator a companion",
    },
];

/// What the operator may do in its own namespace.
pub const OWN_NAMESPACE: &[Right] = &[
    right("coordination.k8s.io", &["leases"], &["create"], "leader election"),
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "update"],
        names: &[NAME],
        why: "leader election",
    },
];

/// The kinds that people work with.
const KINDS: [(&str, &[&str]); 3] =
    [(TOPOLOGY, &["topologies"]), (GLANCE, &["glances", "glanceapis"]), (PLANE, &["openstackcontrolplanes"])];

fn rule(right: &Right) -> Value {
    let mut rule = json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
    if !right.names.is_empty() {
        rule["resourceNames"] = json!(right.names);
    }
    rule
}

/// The roles, and who has them.
pub(crate) fn objects(options: &Options) -> Vec<Manifest> {
    let namespace = &options.namespace;
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]);
    let reference = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
    let manifest = |plural, kind: &str, metadata: Value, rest: Value| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata});
        if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        Manifest::new(Part::Operator, plural, object)
    };
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
        "automountServiceAccountToken": false,
    });
    let rules = |rights: &[Right]| rights.iter().map(rule).collect::<Vec<Value>>();
    let people = |verbs: &[&str]| {
        KINDS.map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs})).to_vec()
    };
    let aggregated = |name: &str, to: &[&str], verbs: &[&str]| {
        let label = |to: &&str| (format!("rbac.authorization.k8s.io/aggregate-to-{to}"), Value::from("true"));
        let labels: serde_json::Map<String, Value> = to.iter().map(label).collect();
        manifest(
            "clusterroles",
            "ClusterRole",
            json!({"name": name, "labels": labels}),
            json!({"rules": people(verbs)}),
        )
    };
    vec![
        Manifest::new(Part::Operator, "serviceaccounts", account),
        manifest("clusterroles", "ClusterRole", json!({"name": NAME}), json!({"rules": rules(CLUSTER)})),
        manifest(
            "clusterrolebindings",
            "ClusterRoleBinding",
            json!({"name": NAME}),
            json!({"roleRef": reference("ClusterRole"), "subjects": subjects}),
        ),
        manifest(
            "roles",
            "Role",
            json!({"name": NAME, "namespace": namespace}),
            json!({"rules": rules(OWN_NAMESPACE)}),
        ),
        manifest(
            "rolebindings",
            "RoleBinding",
            json!({"name": NAME, "namespace": namespace}),
            json!({"roleRef": reference("Role"), "subjects": subjects}),
        ),
        // Whoever may look at what is in a namespace may look at our kinds too. To change them is another matter: who may
        // write a Glance may have a container of theirs run as Glance's user, or with a Cinder store as root of a node.
        // That is for somebody to give.
        aggregated("stead-view", &["view", "edit", "admin"], READ),
        aggregated("stead-edit", &[], &["create", "update", "patch", "delete", "deletecollection"]),
    ]
}
