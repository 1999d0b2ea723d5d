//! Where objects are in the API.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
use stead_model::Kind;

/// Where the objects of a kind are in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiPath<'a> {
    /// API group and version, such as `apps/v1`.
    pub api_version: &'a str,
    /// The kind's name in a path, such as `deployments`.
    pub plural: &'a str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
}

impl From<&Kind> for ApiPath<'static> {
    fn from(kind: &Kind) -> ApiPath<'static> {
        ApiPath { api_version: kind.api_version, plural: kind.plural, namespaced: kind.namespaced }
    }
}

/// Whether the objects of a kind have a namespace.
pub trait Scope {
    /// Whether they do.
    const NAMESPACED: bool;
}

impl Scope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl ApiPath<'static> {
    /// Where the objects of a Kubernetes type are.
    pub fn of<K: Resource<Scope: Scope>>() -> ApiPath<'static> {
        ApiPath { api_version: K::API_VERSION, plural: K::URL_PATH_SEGMENT, namespaced: K::Scope::NAMESPACED }
    }
}

impl ApiPath<'_> {
    /// The path of the objects in a namespace, or in the whole cluster. The namespace is ignored for a cluster-scoped
    /// kind.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural),
            None => format!("/{root}/{}/{}", self.api_version, self.plural),
        }
    }

    /// The path of one object. The namespace is ignored for a cluster-scoped kind.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(Some(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let glances = ApiPath { api_version: "glance.openstack.org/v1beta1", plural: "glances", namespaced: true };
        for (path, expected) in [
            (glances.collection(None), "/apis/glance.openstack.org/v1beta1/glances"),
            (glances.collection(Some("a")), "/apis/glance.openstack.org/v1beta1/namespaces/a/glances"),
            (glances.object("a", "g"), "/apis/glance.openstack.org/v1beta1/namespaces/a/glances/g"),
            (ApiPath::of::<Node>().object("", "worker-0"), "/api/v1/nodes/worker-0"),
            (ApiPath::of::<Lease>().object("a", "l"), "/apis/coordination.k8s.io/v1/namespaces/a/leases/l"),
        ] {
            assert_eq!(path, expected);
        }
    }

    #[test]
    fn the_table_of_kinds_and_the_kubernetes_types_agree() {
        assert_eq!(Kind::named("Lease").map(ApiPath::from), Some(ApiPath::of::<Lease>()));
        assert_eq!(Kind::named("Node").map(ApiPath::from), Some(ApiPath::of::<Node>()));
    }
}
