//! The kinds that can be read.

use stead_model::placement_kinds;

/// A kind to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// API group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The kind's name in a path.
    pub plural: String,
    /// Whether nothing can be said without it.
    pub needed: bool,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// The only namespace to read it from; none for all.
    pub namespace: Option<String>,
    /// What is lost where it may not be listed.
    pub lost: &'static str,
}

impl Resource {
    /// The path of its list.
    pub(crate) fn path(&self) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let (version, plural) = (self.api_version, &self.plural);
        match &self.namespace {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{version}/{plural}"),
        }
    }

    /// The same, but only what is in this namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Resource {
        Resource { namespace: Some(namespace.to_owned()), ..self }
    }
}

const AS_IF_NONE: &str = "the answer is as if there were none";

/// What placement looks at. Nodes come first: they are what everything else is about.
pub fn placement() -> Vec<Resource> {
    placement_kinds()
        .map(|k| Resource {
            api_version: k.api_version,
            kind: k.kind,
            plural: k.plural.to_owned(),
            needed: matches!(k.kind, "Node" | "Pod"),
            namespaced: k.namespaced,
            namespace: None,
            lost: match k.kind {
                "PersistentVolume" | "PersistentVolumeClaim" | "StorageClass" => {
                    "what claims and volumes allow is judged as if there were none"
                }
                "CSINode" | "VolumeAttachment" => "how many volumes a node can have attached is not judged",
                "CSIDriver" | "CSIStorageCapacity" => "whether there is room for a new volume is not judged",
                "Namespace" => "affinity to pods of selected namespaces is judged as if there were none",
                "Service" | "ReplicationController" | "ReplicaSet" | "StatefulSet" => {
                    "the scheduler's default spreading by workload is left out, and so is who owns what"
                }
                "PodDisruptionBudget" => "which pods preemption would choose is judged as if there were no budgets",
                "DeviceClass" => "extended resources that come from device claims are not judged",
                _ => AS_IF_NONE,
            },
        })
        .collect()
}

/// A kind, its API version, its name in a path, and what is lost without it.
pub type Further = (&'static str, &'static str, &'static str, &'static str);

const WHOSE: &str =
    "it is not said which Topology a rule comes from, who uses it, or what to change in OpenStack's objects";
const MADE_BY: &str = "it is not said what to change in the workload that makes a pod";

/// Kinds that tell where a rule comes from, and who owns what.
pub const OWNERS: [Further; 7] = [
    ("Topology", "topology.openstack.org/v1beta1", "topologies", WHOSE),
    ("Glance", "glance.openstack.org/v1beta1", "glances", WHOSE),
    ("GlanceAPI", "glance.openstack.org/v1beta1", "glanceapis", WHOSE),
    ("OpenStackControlPlane", "core.openstack.org/v1beta1", "openstackcontrolplanes", WHOSE),
    ("Deployment", "apps/v1", "deployments", MADE_BY),
    ("DaemonSet", "apps/v1", "daemonsets", MADE_BY),
    ("Job", "batch/v1", "jobs", MADE_BY),
];

/// Kinds that admission fills pods in from.
pub const DEFAULTS: [Further; 3] = [
    ("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", "the pod counts with priority 0"),
    ("LimitRange", "v1", "limitranges", "the namespace's default requests are left out"),
    ("RuntimeClass", "node.k8s.io/v1", "runtimeclasses", "a runtime's overhead and nodes are left out"),
];

/// Kinds that tell how a node stands and what was said of it, of which only some namespaces are read.
pub const OUTAGE: [Further; 2] = [
    ("Lease", "coordination.k8s.io/v1", "leases", "since when a node is silent is told by its conditions alone"),
    ("Event", "v1", "events", "what Kubernetes said of it is missing"),
];

impl From<Further> for Resource {
    fn from((kind, api_version, plural, lost): Further) -> Resource {
        Resource {
            api_version,
            kind,
            plural: plural.to_owned(),
            needed: false,
            namespaced: !matches!(kind, "PriorityClass" | "RuntimeClass"),
            namespace: None,
            lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let paths: Vec<String> = placement().iter().map(Resource::path).collect();
        for path in ["/api/v1/nodes", "/api/v1/persistentvolumeclaims", "/apis/storage.k8s.io/v1/csistoragecapacities"]
        {
            assert!(paths.iter().any(|p| p == path), "{path}: {paths:?}");
        }
        assert_eq!(paths[0], "/api/v1/nodes");
        let job = Resource::from(OWNERS[6]).within("openstack");
        assert_eq!(job.path(), "/apis/batch/v1/namespaces/openstack/jobs");
    }

    #[test]
    fn no_secret_is_ever_read() {
        let further = OWNERS.iter().chain(&DEFAULTS).chain(&OUTAGE).map(|f| Resource::from(*f));
        assert!(placement().into_iter().chain(further).all(|r| r.kind != "Secret" && r.kind != "ConfigMap"));
    }
}
