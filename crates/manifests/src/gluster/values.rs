//! The values of a pool that a user can set.

use std::collections::BTreeMap;

use serde_json::Value;

/// The values of a pool that a user can set.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The name of the StatefulSet and of the other objects.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Whether to create the namespace.
    pub create_namespace: bool,
    /// The name of the headless Service: part of the peers' host names.
    pub service: String,
    /// The number of peers.
    pub replicas: u32,
    /// The image with glusterd and gluster. There is no default: no maintained image is known.
    pub image: String,
    /// The image with the agent.
    pub stead_image: String,
    /// The StorageClass of the bricks' claims; none for the cluster's default.
    pub storage_class: Option<String>,
    /// The StorageClass of the claims for `/var/lib/glusterd`; none for the bricks' class.
    pub state_storage_class: Option<String>,
    /// A StorageClass to create.
    pub new_class: Option<PoolStorageClass>,
    /// The size of a claim for bricks.
    pub brick_size: String,
    /// The size of a claim for `/var/lib/glusterd`.
    pub state_size: String,
    /// The name of the claim templates for `/var/lib/glusterd`: a pod's claim is `TEMPLATE-POD`.
    pub state_claim: String,
    /// The name of the claim templates for the bricks.
    pub brick_claim: String,
    /// Where the bricks' claim is mounted.
    pub brick_path: String,
    /// How the pods are spread.
    pub spread: Spread,
    /// The labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The pods' network.
    pub network: Network,
    /// The privileges of the pods.
    pub privilege: Privilege,
    /// Whether to grant the use of OpenShift's security context constraints.
    pub openshift: bool,
    /// Whether to install the admission policy.
    pub policy: bool,
    /// The startup probe: whether the agent has answered.
    pub startup: Probe,
    /// The liveness probe: whether the container has to be restarted.
    pub liveness: Probe,
    /// The readiness probe: whether the peer is in the pool and has no pending heals.
    pub readiness: Probe,
    /// The termination grace period in seconds.
    pub grace_seconds: u32,
    /// The resource requests of a pod.
    pub requests: BTreeMap<String, String>,
    /// The resource limits of a pod.
    pub limits: BTreeMap<String, String>,
    /// The DNS domain of the cluster.
    pub cluster_domain: String,
    /// The port of the agents.
    pub agent_port: u16,
    /// Who may connect to Gluster's ports, besides the pool's pods.
    pub allow_clients: Vec<Source>,
    /// Who may connect to the agents' port, besides the pool's pods and the kubelets.
    pub allow_agents: Vec<Source>,
}

/// Where connections may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Everywhere.
    Any,
    /// These addresses, such as `10.0.0.0/8`.
    Addresses(String),
    /// The pods of a namespace.
    Namespace(String),
}

/// A StorageClass to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStorageClass {
    /// The provisioner.
    pub provisioner: String,
    /// The parameters for the provisioner.
    pub parameters: BTreeMap<String, String>,
}

/// How the pods are spread, in addition to the preference for different nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// No further constraint.
    Nodes,
    /// Evenly over the values of a node label.
    Label(String),
    /// According to the spec of a Topology.
    Topology(Value),
}

/// The pods' network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// The pod network.
    Pod,
    /// The node's network: one pod per node.
    Host,
}

/// The privileges of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// A privileged container.
    Privileged,
    /// What bricks need: the default capabilities, and the one to write `trusted.*` attributes.
    Capabilities,
}

/// The settings of a probe. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The delay after the start of the container.
    pub delay: u32,
    /// The interval.
    pub period: u32,
    /// The time limit for an answer.
    pub timeout: u32,
    /// The number of consecutive failures that count.
    pub failures: u32,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            name: "glusterfs".to_owned(),
            namespace: "default".to_owned(),
            create_namespace: false,
            service: "glusterfs".to_owned(),
            replicas: 3,
            image: String::new(),
            stead_image: crate::Options::default().image,
            storage_class: None,
            state_storage_class: None,
            new_class: None,
            brick_size: "10Gi".to_owned(),
            state_size: "1Gi".to_owned(),
            state_claim: "glusterd".to_owned(),
            brick_claim: "bricks".to_owned(),
            brick_path: "/data/bricks".to_owned(),
            spread: Spread::Nodes,
            node_selector: BTreeMap::new(),
            network: Network::Pod,
            privilege: Privilege::Privileged,
            openshift: false,
            policy: true,
            startup: Probe { delay: 0, period: 2, timeout: 5, failures: 60 },
            liveness: Probe { delay: 0, period: 10, timeout: 5, failures: 6 },
            readiness: Probe { delay: 0, period: 5, timeout: 5, failures: 2 },
            grace_seconds: 120,
            requests: [("cpu", "100m"), ("memory", "256Mi")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            limits: BTreeMap::new(),
            cluster_domain: "cluster.local".to_owned(),
            agent_port: 24080,
            allow_clients: vec![Source::Any],
            allow_agents: Vec::new(),
        }
    }
}

impl Pool {
    /// The DNS domain of the peers' host names.
    pub fn domain(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }
}
