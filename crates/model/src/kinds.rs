//! The kinds of objects that Stead reads or writes.

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The kind, such as `Pod`.
    pub kind: &'static str,
    /// The API group and version that it is read as, such as `apps/v1`.
    pub api_version: &'static str,
    /// Its name in a path, such as `pods`.
    pub plural: &'static str,
    /// Its name on kubectl's command line.
    pub kubectl: &'static str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// The list that a recorded scheduler case has its objects in; none for a kind that placement does not look at.
    pub case_list: Option<&'static str>,
}

impl Kind {
    /// The kind of this name. Where two API groups have one, such as Event, the first in the table.
    pub fn named(kind: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|k| k.kind == kind)
    }

    /// The kind of this name, for a table of constants: where it is evaluated at compile time, a name that is not in the
    /// table does not compile.
    pub const fn known(kind: &str) -> &'static Kind {
        let mut i = 0;
        while i < KINDS.len() {
            if same_text(KINDS[i].kind.as_bytes(), kind.as_bytes()) {
                return &KINDS[i];
            }
            i += 1;
        }
        panic!("the kind is not in the table")
    }

    /// The kind of this name and API group, whatever the version: the versions differ in nothing that is read.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|k| k.kind == kind && k.group() == group_of(api_version))
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &'static str {
        group_of(self.api_version)
    }
}

/// Equality of texts, which `==` cannot decide at compile time.
const fn same_text(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// The API group of an `apiVersion`; empty for the core group.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The kinds that placement looks at, nodes and pods first.
pub fn placement_kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| kind.case_list.is_some())
}

macro_rules! kinds {
    ($($api_version:literal { $($kind:literal $plural:literal $kubectl:literal $namespaced:literal $case_list:expr;)* })*) => {
        &[$($(Kind {
            kind: $kind,
            api_version: $api_version,
            plural: $plural,
            kubectl: $kubectl,
            namespaced: $namespaced,
            case_list: $case_list,
        },)*)*]
    };
}

/// All kinds. What a consumer needs on top, such as a label selector for a watch, stays with the consumer.
pub const KINDS: &[Kind] = kinds! {
    "v1" {
        "Node" "nodes" "nodes" false Some("nodes");
        "Pod" "pods" "pods" true Some("pods");
        "Namespace" "namespaces" "namespaces" false Some("namespaces");
        "PersistentVolume" "persistentvolumes" "pv" false Some("persistentVolumes");
        "PersistentVolumeClaim" "persistentvolumeclaims" "pvc" true Some("persistentVolumeClaims");
        "Service" "services" "services" true Some("services");
        "ReplicationController" "replicationcontrollers" "replicationcontrollers" true Some("replicationControllers");
        "Event" "events" "events" true None;
        "LimitRange" "limitranges" "limitranges" true None;
        "ResourceQuota" "resourcequotas" "quota" true None;
        "Secret" "secrets" "secrets" true None;
        "ConfigMap" "configmaps" "configmaps" true None;
        "ServiceAccount" "serviceaccounts" "serviceaccounts" true None;
    }
    "storage.k8s.io/v1" {
        "StorageClass" "storageclasses" "sc" false Some("storageClasses");
        "CSINode" "csinodes" "csinodes" false Some("csiNodes");
        "CSIDriver" "csidrivers" "csidrivers" false Some("csiDrivers");
        "CSIStorageCapacity" "csistoragecapacities" "csistoragecapacities" true Some("csiStorageCapacities");
        "VolumeAttachment" "volumeattachments" "volumeattachments" false Some("volumeAttachments");
    }
    "apps/v1" {
        "ReplicaSet" "replicasets" "replicasets" true Some("replicaSets");
        "StatefulSet" "statefulsets" "statefulsets" true Some("statefulSets");
        "Deployment" "deployments" "deployments" true None;
        "DaemonSet" "daemonsets" "daemonsets" true None;
        "ControllerRevision" "controllerrevisions" "controllerrevisions" true None;
    }
    "policy/v1" {
        "PodDisruptionBudget" "poddisruptionbudgets" "poddisruptionbudgets" true Some("podDisruptionBudgets");
    }
    "resource.k8s.io/v1" {
        "DeviceClass" "deviceclasses" "deviceclasses" false Some("deviceClasses");
    }
    "batch/v1" {
        "Job" "jobs" "jobs" true None;
        "CronJob" "cronjobs" "cronjobs" true None;
    }
    "discovery.k8s.io/v1" {
        "EndpointSlice" "endpointslices" "endpointslices" true None;
    }
    "coordination.k8s.io/v1" {
        "Lease" "leases" "leases" true None;
    }
    "events.k8s.io/v1" {
        "Event" "events" "events.events.k8s.io" true None;
    }
    "scheduling.k8s.io/v1" {
        "PriorityClass" "priorityclasses" "pc" false None;
    }
    "node.k8s.io/v1" {
        "RuntimeClass" "runtimeclasses" "runtimeclasses" false None;
    }
    "rbac.authorization.k8s.io/v1" {
        "Role" "roles" "roles" true None;
        "RoleBinding" "rolebindings" "rolebindings" true None;
        "ClusterRole" "clusterroles" "clusterroles" false None;
        "ClusterRoleBinding" "clusterrolebindings" "clusterrolebindings" false None;
    }
    "apiextensions.k8s.io/v1" {
        "CustomResourceDefinition" "customresourcedefinitions" "crd" false None;
    }
    "admissionregistration.k8s.io/v1" {
        "ValidatingAdmissionPolicy" "validatingadmissionpolicies" "validatingadmissionpolicies" false None;
        "ValidatingAdmissionPolicyBinding" "validatingadmissionpolicybindings" "validatingadmissionpolicybindings" false None;
    }
    "networking.k8s.io/v1" {
        "NetworkPolicy" "networkpolicies" "netpol" true None;
    }
    "k8s.cni.cncf.io/v1" {
        "NetworkAttachmentDefinition" "network-attachment-definitions" "net-attach-def" true None;
    }
    "topology.openstack.org/v1beta1" {
        "Topology" "topologies" "topology" true None;
    }
    "glance.openstack.org/v1beta1" {
        "Glance" "glances" "glance" true None;
        "GlanceAPI" "glanceapis" "glanceapi" true None;
    }
    "core.openstack.org/v1beta1" {
        "OpenStackControlPlane" "openstackcontrolplanes" "openstackcontrolplane" true None;
    }
    "stead.dev/v1alpha1" {
        "NodeRecovery" "noderecoveries" "noderecovery" false None;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_group_whatever_the_version() {
        for (api_version, kind, found) in [
            ("v1", "Pod", Some("v1")),
            ("policy/v1beta1", "PodDisruptionBudget", Some("policy/v1")),
            ("events.k8s.io/v1", "Event", Some("events.k8s.io/v1")),
            ("v1", "Event", Some("v1")),
            ("example.org/v1", "Pod", None),
            ("serving.knative.dev/v1", "Service", None),
        ] {
            assert_eq!(Kind::find(api_version, kind).map(|k| k.api_version), found, "{api_version} {kind}");
        }
    }

    #[test]
    fn every_kind_is_known_by_its_name() {
        for kind in KINDS {
            assert_eq!(Some(Kind::known(kind.kind)), Kind::named(kind.kind));
        }
    }

    #[test]
    fn plurals_are_lower_case_and_unique_in_their_group() {
        for (i, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.plural, kind.plural.to_lowercase());
            let same = |other: &&Kind| other.group() == kind.group() && other.plural == kind.plural;
            assert_eq!(KINDS.iter().position(|other| same(&other)), Some(i), "{}", kind.kind);
        }
        assert_eq!(placement_kinds().next().map(|kind| kind.kind), Some("Node"));
    }
}
