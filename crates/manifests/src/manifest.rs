//! One object of an installation.

use serde_json::{Map, Value};

/// The label that marks objects of Stead. Objects without it belong to somebody else.
const PART_OF: &str = "app.kubernetes.io/part-of";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const STEAD: &str = "stead";

/// The annotation with the version of Stead that a definition is from.
pub const VERSION_ANNOTATION: &str = "stead.dev/version";

/// The part of an installation that an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The CRDs, and the policies for them.
    Definitions,
    /// The operator and the objects that it needs.
    Operator,
    /// A Gluster pool.
    Pool,
}

/// One object of an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The object, with apiVersion, kind and metadata.
    pub object: Value,
    /// The plural name of the kind, for API paths.
    pub plural: &'static str,
    /// The part that it belongs to.
    pub part: Part,
    /// The CRD that the object is about. If that CRD belongs to somebody else, the object is left out.
    pub about: Option<String>,
}

impl Manifest {
    /// Creates a manifest with the labels of all of Stead's objects.
    pub(crate) fn new(part: Part, plural: &'static str, mut object: Value) -> Manifest {
        let labels = object["metadata"].as_object_mut().map(|m| m.entry("labels").or_insert(Value::Object(Map::new())));
        if let Some(Value::Object(labels)) = labels {
            labels.insert(PART_OF.to_owned(), STEAD.into());
            labels.insert(MANAGED_BY.to_owned(), STEAD.into());
        }
        Manifest { object, plural, part, about: None }
    }

    /// Sets the CRD that the object is about.
    pub(crate) fn about(mut self, definition: &str) -> Manifest {
        self.about = Some(definition.to_owned());
        self
    }

    /// Adds the version of Stead.
    pub(crate) fn versioned(mut self) -> Manifest {
        self.object["metadata"]["annotations"][VERSION_ANNOTATION] = env!("CARGO_PKG_VERSION").into();
        self
    }

    /// The object's kind.
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The object's namespace; none if it is cluster-scoped.
    pub fn namespace(&self) -> Option<&str> {
        self.object["metadata"]["namespace"].as_str()
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is a CRD.
    pub fn is_definition(&self) -> bool {
        self.kind() == "CustomResourceDefinition"
    }

    /// The API path of the objects of this kind.
    pub fn collection(&self) -> String {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        let root = if version.contains('/') { "/apis" } else { "/api" };
        match self.namespace() {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{version}/{}", self.plural),
        }
    }

    /// The API path of this object.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }
}

/// Prints kind and name, as kubectl does.
impl std::fmt::Display for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind().to_lowercase(), self.name())
    }
}

/// Whether an object of a cluster is part of Stead.
pub fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][PART_OF] == STEAD
}

/// A release of Helm that owns an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmRelease {
    /// The release.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// The release of Helm that an object of a cluster belongs to.
pub fn helm_release(object: &Value) -> Option<HelmRelease> {
    let annotation = |name: &str| Some(object["metadata"]["annotations"][name].as_str()?.to_owned());
    let (name, namespace) = (annotation("meta.helm.sh/release-name")?, annotation("meta.helm.sh/release-namespace")?);
    Some(HelmRelease { name, namespace })
}
