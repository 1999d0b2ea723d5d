//! The kinds that can be read.

use stead_client::ApiPath;
use stead_model::{Kind, placement_kinds};

/// A kind to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The kind.
    pub kind: &'static str,
    /// Where it is in the API.
    pub(crate) api: ApiPath<'static>,
    /// Whether reading fails without it.
    pub(crate) required: bool,
    /// The only namespace to read it from; none for all.
    namespace: Option<String>,
    /// What follows if it may not be listed.
    pub(crate) consequence: &'static str,
}

impl Resource {
    fn new(kind: &Kind, consequence: &'static str) -> Resource {
        let required = matches!(kind.kind, "Node" | "Pod");
        Resource { kind: kind.kind, api: kind.into(), required, namespace: None, consequence }
    }

    /// The path of its list.
    pub(crate) fn path(&self) -> String {
        self.api.collection(self.namespace.as_deref())
    }

    /// Its name as kubectl writes it, with the group of a kind that is not Kubernetes' own.
    pub fn full_name(&self) -> String {
        match self.api.api_version.split_once('/') {
            Some((group, _)) if group.contains('.') && !group.ends_with(".k8s.io") => {
                format!("{}.{group}", self.api.plural)
            }
            _ => self.api.plural.to_owned(),
        }
    }

    /// The API group and version that it is read as.
    pub fn api_version(&self) -> &'static str {
        self.api.api_version
    }

    /// The same kind, read from this namespace only.
    #[must_use]
    pub fn within(self, namespace: &str) -> Resource {
        Resource { namespace: Some(namespace.to_owned()), ..self }
    }
}

/// The kinds that placement needs. Nodes come first: everything else refers to them.
pub fn placement() -> Vec<Resource> {
    let consequence = |kind: &Kind| match kind.kind {
        "PersistentVolume" | "PersistentVolumeClaim" | "StorageClass" => {
            "claims and volumes are ignored, as if there were none"
        }
        "CSINode" | "VolumeAttachment" => "the limit of attached volumes per node is not checked",
        "CSIDriver" | "CSIStorageCapacity" => "the free capacity for a new volume is not checked",
        "Namespace" => "affinity to pods of selected namespaces is evaluated as if there were no such namespaces",
        "Service" | "ReplicationController" | "ReplicaSet" | "StatefulSet" => {
            "the scheduler's default spreading is left out, and owners are unknown"
        }
        "PodDisruptionBudget" => "preemption is evaluated as if there were no disruption budgets",
        "DeviceClass" => "extended resources of device classes are not checked",
        _ => "evaluated as if there were none",
    };
    placement_kinds().map(|kind| Resource::new(kind, consequence(kind))).collect()
}

/// A kind, and what follows if it may not be listed.
pub type Further = (&'static str, &'static str);

const NO_TOPOLOGY: &str =
    "the Topology that a rule comes from, its users, and changes to OpenStack resources are not shown";
const NO_WORKLOAD: &str = "changes to the workload that creates a pod are not shown";

/// Kinds that own pods, or that rules come from.
pub const OWNERS: [Further; 8] = [
    ("Topology", NO_TOPOLOGY),
    ("Glance", NO_TOPOLOGY),
    ("GlanceAPI", NO_TOPOLOGY),
    ("OpenStackControlPlane", NO_TOPOLOGY),
    ("Deployment", NO_WORKLOAD),
    ("DaemonSet", NO_WORKLOAD),
    ("Job", NO_WORKLOAD),
    ("CronJob", NO_WORKLOAD),
];

/// Kinds that admission takes defaults and limits from.
pub const DEFAULTS: [Further; 4] = [
    ("PriorityClass", "the pod has priority 0"),
    ("LimitRange", "default requests of the namespace are left out"),
    ("RuntimeClass", "overhead and node selector of the runtime class are left out"),
    ("ResourceQuota", "a quota that allows no more pods is known from conditions and events only"),
];

/// Where a kind is in the API, and its name: for kinds that only a dump has.
type DumpedKind = (&'static str, &'static str, &'static str, bool);

/// Kinds that no answer of today depends on, and that a dump has for those of tomorrow: what controllers remember, and the
/// settings of OpenShift's control plane. A cluster without a kind has no objects of it.
const DUMPED: [DumpedKind; 8] = [
    ("apps/v1", "ControllerRevision", "controllerrevisions", true),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    ("stead.dev/v1alpha1", "NodeRecovery", "noderecoveries", false),
    ("operator.openshift.io/v1", "KubeControllerManager", "kubecontrollermanagers", false),
    ("operator.openshift.io/v1", "KubeScheduler", "kubeschedulers", false),
    ("config.openshift.io/v1", "Node", "nodes", false),
    ("config.openshift.io/v1", "Scheduler", "schedulers", false),
    ("config.openshift.io/v1", "ClusterVersion", "clusterversions", false),
];

/// Everything that a dump has, from all namespaces, apart from the further kinds of the OpenStack operators. Nodes and pods
/// come first.
pub fn dumped() -> Vec<Resource> {
    let known = OWNERS.iter().chain(&DEFAULTS).chain(&OUTAGE).map(|further| Resource::from(*further));
    let more = DUMPED.iter().map(|&(api_version, kind, plural, namespaced)| Resource {
        kind,
        api: ApiPath { api_version, plural, namespaced },
        required: false,
        namespace: None,
        consequence: "answers that depend on it are incomplete",
    });
    placement().into_iter().chain(known).chain(more).collect()
}

/// Kinds that say how a node is and what was reported about it. They are read from some namespaces only.
pub const OUTAGE: [Further; 2] =
    [("Lease", "the last heartbeat of a node is taken from its conditions only"), ("Event", "events are not shown")];

impl From<Further> for Resource {
    fn from((kind, consequence): Further) -> Resource {
        Resource::new(Kind::named(kind).expect("a kind of the table"), consequence)
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
    fn no_secret_is_read() {
        assert!(dumped().iter().all(|r| r.kind != "Secret" && r.kind != "ConfigMap"));
        let paths: std::collections::BTreeSet<String> = dumped().iter().map(Resource::path).collect();
        assert_eq!(paths.len(), dumped().len(), "each list once");
    }
}
