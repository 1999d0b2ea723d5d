//! Options of the control plane.

/// Options of the control plane. The default is a complete one with Kubernetes' default timeouts.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Use a tenth of the default timeouts: an unreachable node is Unknown after 8 s, its pods are evicted 30 s later,
    /// and its volumes are force-detached after 36 s. Nodes must then send a heartbeat every second.
    pub fast: bool,
    /// Run the API server and etcd only: nothing is scheduled, and no controller runs.
    pub bare: bool,
    /// Write an audit log, without bodies.
    pub audit: bool,
    /// Additional admission plugins, such as `OwnerReferencesPermissionEnforcement`.
    pub admission: Vec<String>,
    /// Additional users.
    pub users: Vec<User>,
    /// Let the API server reach pods and kubelets through a proxy, which has to listen at
    /// [`crate::ControlPlane::egress`]: for pods whose addresses are not reachable from this host.
    pub egress: bool,
    /// Additional flags of the API server.
    pub api_server: Vec<String>,
    /// Additional flags of the controller manager.
    pub controller_manager: Vec<String>,
}

/// A user with a static token. RBAC decides about permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// The groups.
    pub groups: Vec<String>,
}
