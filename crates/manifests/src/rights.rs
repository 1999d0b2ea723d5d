//! The operator's permissions and the reason for each: the tables from which its roles are built.

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};
use crate::workload::{NAME, Options};

/// A permission for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorRight {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resources, or their subresources.
    pub resources: &'static [&'static str],
    /// The allowed verbs.
    pub verbs: &'static [&'static str],
    /// The only allowed objects; empty for all.
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

/// The verbs to watch objects that others write.
const WATCH: &[&str] = &["list", "watch"];
/// The verbs to watch objects that the operator writes too: after a conflict an object is read again.
const READ: &[&str] = &["get", "list", "watch"];
/// The verbs to apply objects. The garbage collector deletes them with their owner.
const APPLY: &[&str] = &["create", "patch"];
const MANAGE: &[&str] = &["create", "patch", "delete"];
const PATCH: &[&str] = &["patch"];

/// The operator's permissions in each namespace that it works in: all namespaces, or those named at the installation.
pub const NAMESPACED: &[OperatorRight] = &[
    right(TOPOLOGY, &["topologies"], READ, "the control loops watch Topologies"),
    right(TOPOLOGY, &["topologies"], PATCH, "each API that uses a Topology adds a finalizer"),
    right(TOPOLOGY, &["topologies/status"], PATCH, "users of a Topology, and whether nodes can satisfy it"),
    right(GLANCE, &["glances", "glanceapis"], READ, "the loops manage Glances and their APIs"),
    right(
        GLANCE,
        &["glances", "glanceapis"],
        MANAGE,
        "a control plane creates a Glance, a Glance its APIs; finalizers",
    ),
    right(GLANCE, &["glances/status", "glanceapis/status"], PATCH, "conditions"),
    right(
        GLANCE,
        &["glances/finalizers", "glanceapis/finalizers"],
        &["update"],
        "they own the objects created for them",
    ),
    right(PLANE, &["openstackcontrolplanes"], READ, "the loops manage control planes"),
    right(PLANE, &["openstackcontrolplanes/status"], PATCH, "conditions"),
    right(PLANE, &["openstackcontrolplanes/finalizers"], &["update"], "they own their Glance"),
    right("apps", &["statefulsets"], READ, "ready pods of an API"),
    right("apps", &["statefulsets"], MANAGE, "the pods of an API; recreated where claim templates change"),
    right("batch", &["jobs", "cronjobs"], READ, "whether the database is up to date"),
    right("batch", &["jobs", "cronjobs"], MANAGE, "database sync and purge, cleaning of caches"),
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
        why: "required to grant it: on OpenShift, the role of Glance's pods includes it",
    },
    right("k8s.cni.cncf.io", &["network-attachment-definitions"], WATCH, "networks that an API asks for"),
    right("", &["pods", "persistentvolumeclaims"], WATCH, "why pods are Pending"),
    right("events.k8s.io", &["events"], &["create"], "events about actions and their reasons"),
];

/// The operator's permissions to read cluster-scoped objects. It never writes any of them.
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
        why: "companion mode: the operator only reports on kinds whose CRD belongs to somebody else",
    },
];

/// Further inputs of kube-scheduler, in all namespaces: without them, fixes for Pending pods cannot be verified.
pub const SCHEDULER_VIEW: &[OperatorRight] = &[
    right("", &["namespaces", "replicationcontrollers"], &["list"], "kube-scheduler's view"),
    right("apps", &["replicasets"], &["list"], "kube-scheduler's view"),
    right("policy", &["poddisruptionbudgets"], &["list"], "kube-scheduler's view"),
    right("storage.k8s.io", &["csistoragecapacities"], &["list"], "kube-scheduler's view"),
    right("resource.k8s.io", &["deviceclasses"], &["list"], "kube-scheduler's view"),
];

/// The operator's permissions if it works in all namespaces.
pub fn cluster_wide() -> impl Iterator<Item = &'static OperatorRight> {
    NAMESPACED.iter().chain(CLUSTER_SCOPED).chain(SCHEDULER_VIEW)
}

/// The operator's permissions in its own namespace.
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

/// The kinds that users work with.
const KINDS: [(&str, &[&str]); 3] =
    [(TOPOLOGY, &["topologies"]), (GLANCE, &["glances", "glanceapis"]), (PLANE, &["openstackcontrolplanes"])];

fn rule(right: &OperatorRight) -> Value {
    let mut rule = json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
    if !right.names.is_empty() {
        rule["resourceNames"] = json!(right.names);
    }
    rule
}

/// Builds the roles and bindings.
///
/// Users who may view a namespace may view our kinds too (`stead-view`). Editing them is more powerful: a user who can
/// write a Glance can run any container as Glance's user, or, with a Cinder store, as root on a node. So `stead-edit`
/// is bound to nobody.
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
        // The operator's own namespace may be one of those that it works in: then one Role has both.
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

/// The role for users who edit our kinds.
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
    let object = binding_object("ClusterRoleBinding", json!({"name": NAME}), "ClusterRole", own);
    Manifest::new(Part::Operator, "clusterrolebindings", object)
}

fn binding(namespace: &str, own: &str) -> Manifest {
    let object = binding_object("RoleBinding", json!({"name": NAME, "namespace": namespace}), "Role", own);
    Manifest::new(Part::Operator, "rolebindings", object)
}

/// Builds a binding of the operator's role to its ServiceAccount in the namespace `own`.
fn binding_object(kind: &str, metadata: Value, role: &str, own: &str) -> Value {
    json!({
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": own}],
    })
}

/// Returns the namespaces in which RoleBindings of an installation with [`Options::namespaces`] exist. `own` is the
/// operator's namespace.
pub fn scoped_namespaces<'a>(bindings: impl IntoIterator<Item = &'a Value>, own: &str) -> Vec<String> {
    let ours = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let mut accounts = subjects.filter(|s| s["kind"] == "ServiceAccount");
        binding["metadata"]["name"] == NAME && accounts.any(|s| s["name"] == NAME && s["namespace"] == own)
    };
    let namespaces = bindings.into_iter().filter(ours).filter_map(|b| b["metadata"]["namespace"].as_str());
    namespaces.filter(|namespace| *namespace != own).map(str::to_owned).collect()
}
