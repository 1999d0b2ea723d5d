//! What the operator may do, and why: the tables that its roles are made from.

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};
use crate::workload::{NAME, Options};

/// What may be done to some resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorRight {
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
) -> OperatorRight {
    OperatorRight { group, resources, verbs, names: &[], why }
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

/// What the operator may do in each namespace that it works in: in the whole cluster, or in those that an installer
/// names.
pub const NAMESPACED: &[OperatorRight] = &[
    right(TOPOLOGY, &["topologies"], READ, "the loops follow Topologies"),
    right(TOPOLOGY, &["topologies"], PATCH, "a Topology in use is held by a finalizer of each API"),
    right(TOPOLOGY, &["topologies/status"], PATCH, "a Topology says who uses it and whether nodes can satisfy it"),
    right(GLANCE, &["glances", "glanceapis"], READ, "the loops manage Glances and their APIs"),
    right(GLANCE, &["glances", "glanceapis"], MAKE, "a control plane creates a Glance, a Glance its APIs; finalizers"),
    right(GLANCE, &["glances/status", "glanceapis/status"], PATCH, "conditions"),
    right(GLANCE, &["glances/finalizers", "glanceapis/finalizers"], &["update"], "they own what is created for them"),
    right(PLANE, &["openstackcontrolplanes"], READ, "the loops manage control planes"),
    right(PLANE, &["openstackcontrolplanes/status"], PATCH, "conditions"),
    right(PLANE, &["openstackcontrolplanes/finalizers"], &["update"], "they own their Glance"),
    right("apps", &["statefulsets"], READ, "how many pods of an API are ready"),
    right("apps", &["statefulsets"], MAKE, "the pods of an API; recreated where claim templates change"),
    right("batch", &["jobs", "cronjobs"], READ, "whether the database is up to date"),
    right("batch", &["jobs", "cronjobs"], MAKE, "database sync and purge, cleaning of caches"),
    right("", &["services"], READ, "endpoints"),
    right("", &["services"], APPLY, "endpoints of an API"),
    right("", &["secrets"], &["get"], "Secrets that a spec names, one by one; only their digests are kept"),
    right("", &["secrets"], APPLY, "the rendered configuration"),
    right("", &["serviceaccounts"], READ, "the account that pods run under"),
    right("", &["serviceaccounts"], APPLY, "the account that pods run under"),
    right("rbac.authorization.k8s.io", &["roles", "rolebindings"], READ, "what pods may do under their account"),
    right("rbac.authorization.k8s.io", &["roles", "rolebindings"], APPLY, "what pods may do under their account"),
    OperatorRight {
        group: "security.openshift.io",
        resources: &["securitycontextconstraints"],
        verbs: &["use"],
        names: &["anyuid", "privileged"],
        why: "nobody may grant a right that they do not have: the role of Glance's pods grants this on OpenShift",
    },
    right("k8s.cni.cncf.io", &["network-attachment-definitions"], WATCH, "networks that an API asks for"),
    right("", &["pods", "persistentvolumeclaims"], WATCH, "why pods wait"),
    right("events.k8s.io", &["events"], &["create"], "events tell what was done and why"),
];

/// What the operator may read of objects that are in no namespace. It never writes any of them.
pub const CLUSTER_SCOPED: &[OperatorRight] = &[
    right("", &["nodes"], WATCH, "whether nodes can satisfy a Topology, and where pods could run"),
    right("", &["persistentvolumes"], &["list"], "kube-scheduler's view"),
    right(
        "storage.k8s.io",
        &["storageclasses", "csinodes", "csidrivers", "volumeattachments"],
        &["list"],
        "kube-scheduler's view",
    ),
    OperatorRight {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        verbs: &["get"],
        names: &[
            "topologies.topology.openstack.org",
            "glances.glance.openstack.org",
            "glanceapis.glance.openstack.org",
            "openstackcontrolplanes.core.openstack.org",
        ],
        why: "a definition that belongs to somebody else makes the operator a companion",
    },
];

/// What else kube-scheduler looks at, in all namespaces: without it, no fix for a pod that waits can be verified.
pub const SCHEDULER_VIEW: &[OperatorRight] = &[
    right("", &["namespaces", "replicationcontrollers"], &["list"], "kube-scheduler's view"),
    right("apps", &["replicasets"], &["list"], "kube-scheduler's view"),
    right("policy", &["poddisruptionbudgets"], &["list"], "kube-scheduler's view"),
    right("storage.k8s.io", &["csistoragecapacities"], &["list"], "kube-scheduler's view"),
    right("resource.k8s.io", &["deviceclasses"], &["list"], "kube-scheduler's view"),
];

/// What the operator may do if it works in all namespaces.
pub fn cluster_wide() -> impl Iterator<Item = &'static OperatorRight> {
    NAMESPACED.iter().chain(CLUSTER_SCOPED).chain(SCHEDULER_VIEW)
}

/// What the operator may do in its own namespace.
pub const OWN_NAMESPACE: &[OperatorRight] = &[
    right("coordination.k8s.io", &["leases"], &["create"], "leader election"),
    OperatorRight {
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

fn rule(right: &OperatorRight) -> Value {
    let mut rule = json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
    if !right.names.is_empty() {
        rule["resourceNames"] = json!(right.names);
    }
    rule
}

/// The roles, and who has them.
///
/// Whoever may view what is in a namespace may view our kinds too (`stead-view`). To change them is another matter: who
/// may write a Glance may have a container of their choice run as Glance's user, or with a Cinder store as root of a
/// node. So `stead-edit` is bound to nobody.
pub(crate) fn objects(options: &Options) -> Vec<Manifest> {
    let own = &options.namespace;
    let mut objects = vec![Manifest::new(
        Part::Operator,
        "serviceaccounts",
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": own},
            "automountServiceAccountToken": false,
        }),
    )];
    if options.namespaces.is_empty() {
        objects.push(cluster_role(NAME, rules(cluster_wide())));
        objects.push(cluster_binding(own));
        objects.push(role(NAME, own, rules(OWN_NAMESPACE)));
        objects.push(binding(own, own));
        objects.push(cluster_role(EDIT, for_people(WRITE)));
    } else {
        objects.push(cluster_role(NAME, rules(CLUSTER_SCOPED)));
        objects.push(cluster_binding(own));
        // The operator's own namespace may be one of those that it works in: a name has one Role there.
        let works_here = options.namespaces.contains(own);
        let here = if works_here { NAMESPACED } else { &[] };
        objects.push(role(NAME, own, rules(OWN_NAMESPACE.iter().chain(here))));
        objects.push(binding(own, own));
        for namespace in options.namespaces.iter().filter(|namespace| *namespace != own) {
            objects.push(role(NAME, namespace, rules(NAMESPACED)));
            objects.push(binding(namespace, own));
        }
        objects.extend(options.namespaces.iter().map(|namespace| role(EDIT, namespace, for_people(WRITE))));
    }
    let mut view = cluster_role("stead-view", for_people(READ));
    for to in ["view", "edit", "admin"] {
        view.object["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{to}")] = "true".into();
    }
    objects.push(view);
    objects
}

/// The role for those who write our kinds.
const EDIT: &str = "stead-edit";
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

fn rules(rights: impl IntoIterator<Item = &'static OperatorRight>) -> Vec<Value> {
    rights.into_iter().map(rule).collect()
}

fn for_people(verbs: &[&str]) -> Vec<Value> {
    KINDS.map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs})).to_vec()
}

const VERSION: &str = "rbac.authorization.k8s.io/v1";

fn cluster_role(name: &str, rules: Vec<Value>) -> Manifest {
    let object = json!({"apiVersion": VERSION, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    Manifest::new(Part::Operator, "clusterroles", object)
}

fn role(name: &str, namespace: &str, rules: Vec<Value>) -> Manifest {
    let metadata = json!({"name": name, "namespace": namespace});
    let object = json!({"apiVersion": VERSION, "kind": "Role", "metadata": metadata, "rules": rules});
    Manifest::new(Part::Operator, "roles", object)
}

fn cluster_binding(own: &str) -> Manifest {
    let object = bound("ClusterRoleBinding", json!({"name": NAME}), "ClusterRole", own);
    Manifest::new(Part::Operator, "clusterrolebindings", object)
}

fn binding(namespace: &str, own: &str) -> Manifest {
    let object = bound("RoleBinding", json!({"name": NAME, "namespace": namespace}), "Role", own);
    Manifest::new(Part::Operator, "rolebindings", object)
}

/// A binding of a role of the operator's name to the operator's account, which is in the namespace `own`.
fn bound(kind: &str, metadata: Value, role: &str, own: &str) -> Value {
    json!({
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": own}],
    })
}

/// The namespaces in which the operator has a Role, by the RoleBindings of a cluster: those that an installation with
/// [`Options::namespaces`] left there. `own` is the operator's namespace.
pub fn scoped_namespaces<'a>(bindings: impl IntoIterator<Item = &'a Value>, own: &str) -> Vec<String> {
    let ours = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let mut accounts = subjects.filter(|s| s["kind"] == "ServiceAccount");
        binding["metadata"]["name"] == NAME && accounts.any(|s| s["name"] == NAME && s["namespace"] == own)
    };
    let namespaces = bindings.into_iter().filter(ours).filter_map(|b| b["metadata"]["namespace"].as_str());
    namespaces.filter(|namespace| *namespace != own).map(str::to_owned).collect()
}
