//! What kind of control plane.

/// What kind of control plane to start. The default is a whole one with Kubernetes' own waiting times.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A tenth of the waiting times: a silent node is Unknown after 8 s, its pods are evicted 30 s later, and its
    /// volumes are detached by force after 36 s. Nodes must then report every second.
    pub fast: bool,
    /// The API server and etcd alone: nothing is scheduled, and no controller acts.
    pub bare: bool,
    /// Keep an audit log: who asked for what, without the bodies.
    pub audit: bool,
    /// Admission plugins beyond the default ones, such as `OwnerReferencesPermissionEnforcement`.
    pub admission: Vec<String>,
    /// Users beside `admin`, each with a token.
    pub users: Vec<User>,
    /// The API server reaches pods and kubelets through a proxy, for which somebody has to listen at
    /// [`crate::ControlPlane::egress`]: for pods whose addresses mean nothing on this host.
    pub egress: bool,
    /// More flags for the API server.
    pub api_server: Vec<String>,
    /// More flags for the controller manager.
    pub controller_manager: Vec<String>,
}

/// Somebody who may ask the API server, with a token that never changes. What they may do is for RBAC to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// The groups.
    pub groups: Vec<String>,
}
