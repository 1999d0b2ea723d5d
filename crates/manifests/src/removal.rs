//! Finalizers that have to be removed before Stead is uninstalled.

use serde_json::{Value, json};

/// A kind whose objects have finalizers of Stead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalizedKind {
    /// The CRD.
    pub definition: &'static str,
    /// API group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural name of the kind, for API paths.
    pub plural: &'static str,
    /// Whether its objects are deleted when Stead is uninstalled. Others are deleted only with their CRD.
    pub deleted_on_uninstall: bool,
}

/// The kinds, owners first: their dependents are deleted after them.
pub const FINALIZED_KINDS: [FinalizedKind; 4] = [
    FinalizedKind {
        definition: "openstackcontrolplanes.core.openstack.org",
        api_version: "core.openstack.org/v1beta1",
        kind: "OpenStackControlPlane",
        plural: "openstackcontrolplanes",
        deleted_on_uninstall: true,
    },
    FinalizedKind {
        definition: "glances.glance.openstack.org",
        api_version: "glance.openstack.org/v1beta1",
        kind: "Glance",
        plural: "glances",
        deleted_on_uninstall: true,
    },
    FinalizedKind {
        definition: "glanceapis.glance.openstack.org",
        api_version: "glance.openstack.org/v1beta1",
        kind: "GlanceAPI",
        plural: "glanceapis",
        deleted_on_uninstall: true,
    },
    FinalizedKind {
        definition: "topologies.topology.openstack.org",
        api_version: "topology.openstack.org/v1beta1",
        kind: "Topology",
        plural: "topologies",
        deleted_on_uninstall: false,
    },
];

impl FinalizedKind {
    /// The API path of the objects of this kind in all namespaces.
    pub fn collection(&self) -> String {
        format!("/apis/{}/{}", self.api_version, self.plural)
    }

    /// The API path of the objects of this kind in a namespace.
    pub fn collection_in(&self, namespace: &str) -> String {
        format!("/apis/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
    }

    /// The API path of an object of this kind.
    pub fn path(&self, object: &Value) -> String {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        format!("/apis/{}/namespaces/{}/{}/{}", self.api_version, text("namespace"), self.plural, text("name"))
    }

    /// Whether Stead sets this finalizer on objects of this kind.
    fn is_our_finalizer(&self, finalizer: &str) -> bool {
        match self.kind {
            "Topology" => finalizer.starts_with("openstack.org/glanceapi-"),
            kind => finalizer.strip_prefix("openstack.org/") == Some(kind.to_lowercase().as_str()),
        }
    }

    /// Returns the merge patch that removes our finalizers from an object, if it has any. It fails if the object has
    /// changed.
    pub fn release(&self, object: &Value) -> Option<Value> {
        let finalizers = object["metadata"]["finalizers"].as_array()?;
        let others: Vec<&Value> =
            finalizers.iter().filter(|f| !f.as_str().is_some_and(|f| self.is_our_finalizer(f))).collect();
        let metadata = &object["metadata"];
        (others.len() < finalizers.len()).then(|| {
            json!({"metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": others,
            }})
        })
    }
}

/// Returns the commands that delete retained claims, one per namespace.
pub fn claim_commands<'a>(claims: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut by_namespace: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    for claim in claims {
        let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
        by_namespace.entry(text("namespace")).or_default().push(text("name"));
    }
    let command = |(namespace, mut names): (&str, Vec<&str>)| {
        names.sort_unstable();
        format!("kubectl -n {namespace} delete pvc {}", names.join(" "))
    };
    by_namespace.into_iter().map(command).collect()
}
