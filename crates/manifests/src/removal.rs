//! What has to be let go of before Stead is taken away.

use serde_json::{Value, json};

/// A kind whose objects hold on to something until Stead lets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Its definition.
    pub definition: &'static str,
    /// API group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The kind's name in a path.
    pub plural: &'static str,
    /// Whether its objects go when Stead goes. Those that stay go with their definition.
    pub goes: bool,
}

/// The kinds, owners first: what they own follows them.
pub const HELD: [Held; 4] = [
    Held {
        definition: "openstackcontrolplanes.core.openstack.org",
        api_version: "core.openstack.org/v1beta1",
        kind: "OpenStackControlPlane",
        plural: "openstackcontrolplanes",
        goes: true,
    },
    Held {
        definition: "glances.glance.openstack.org",
        api_version: "glance.openstack.org/v1beta1",
        kind: "Glance",
        plural: "glances",
        goes: true,
    },
    Held {
        definition: "glanceapis.glance.openstack.org",
        api_version: "glance.openstack.org/v1beta1",
        kind: "GlanceAPI",
        plural: "glanceapis",
        goes: true,
    },
    Held {
        definition: "topologies.topology.openstack.org",
        api_version: "topology.openstack.org/v1beta1",
        kind: "Topology",
        plural: "topologies",
        goes: false,
    },
];

impl Held {
    /// Where the API server has the objects of this kind, of all namespaces.
    pub fn collection(&self) -> String {
        format!("/apis/{}/{}", self.api_version, self.plural)
    }

    /// Where the API server has one object of this kind.
    pub fn path(&self, object: &Value) -> String {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        format!("/apis/{}/namespaces/{}/{}/{}", self.api_version, text("namespace"), self.plural, text("name"))
    }

    /// Whether a finalizer on an object of this kind is one that Stead puts there.
    fn is_our_finalizer(&self, finalizer: &str) -> bool {
        match self.kind {
            "Topology" => finalizer.starts_with("openstack.org/glanceapi-"),
            kind => finalizer.strip_prefix("openstack.org/") == Some(kind.to_lowercase().as_str()),
        }
    }

    /// The merge patch that takes our finalizers from an object, if it has any. It is refused where the object is no
    /// longer the one that was looked at.
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

/// The command that deletes claims that were kept, one for each namespace.
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
