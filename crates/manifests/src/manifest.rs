//! One object of an installation.

use serde_json::{Map, Value};

/// The label that says what an object is part of. Whatever does not have it is somebody else's.
const PART_OF: &str = "app.kubernetes.io/part-of";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const STEAD: &str = "stead";

/// The annotation that says which version of Stead a definition is from.
const VERSION: &str = "stead.dev/version";

/// What an object is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The definitions of our kinds, and the policies that stand beside them.
    Definitions,
    /// The operator and what it needs to run.
    Operator,
    /// A Gluster pool.
    Pool,
}

/// One object of an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The object, with apiVersion, kind and metadata.
    pub object: Value,
    /// The kind's name in a path.
    pub plural: &'static str,
    /// What it is for.
    pub part: Part,
    /// The definition whose objects it is about. Where that definition is somebody else's, it is left out.
    pub about: Option<String>,
}

impl Manifest {
    /// An object with the labels that all of ours have.
    pub(crate) fn new(part: Part, plural: &'static str, mut object: Value) -> Manifest {
        let labels = object["metadata"].as_object_mut().map(|m| m.entry("labels").or_insert(Value::Object(Map::new())));
        if let Some(Value::Object(labels)) = labels {
            labels.insert(PART_OF.to_owned(), STEAD.into());
            labels.insert(MANAGED_BY.to_owned(), STEAD.into());
        }
        Manifest { object, plural, part, about: None }
    }

    /// The same object, as one that is about a definition.
    pub(crate) fn about(mut self, definition: &str) -> Manifest {
        self.about = Some(definition.to_owned());
        self
    }

    /// The same object, with the version of Stead that it is from.
    pub(crate) fn versioned(mut self) -> Manifest {
        self.object["metadata"]["annotations"][VERSION] = env!("CARGO_PKG_VERSION").into();
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

    /// The object's namespace, if it lives in one.
    pub fn namespace(&self) -> Option<&str> {
        self.object["metadata"]["namespace"].as_str()
    }

    /// The API group; empty for the core.
    pub fn group(&self) -> &str {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it defines a kind.
    pub fn is_definition(&self) -> bool {
        self.kind() == "CustomResourceDefinition"
    }

    /// Where the API server has objects of this kind.
    pub fn collection(&self) -> String {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        let root = if version.contains('/') { "/apis" } else { "/api" };
        match self.namespace() {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{version}/{}", self.plural),
        }
    }

    /// Where the API server has this object.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }
}

/// As kubectl would name it: kind and name, with the namespace where there is one.
impl std::fmt::Display for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind().to_lowercase(), self.name())
    }
}

/// Whether an object of a cluster is part of Stead.
pub fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][PART_OF] == STEAD
}
