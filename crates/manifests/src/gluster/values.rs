//! What somebody decides about a pool.

use std::collections::BTreeMap;

use serde_json::Value;

/// What somebody decides about a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The StatefulSet's name, and that of all that stands around it.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Whether the namespace is made too.
    pub create_namespace: bool,
    /// The headless Service's name: part of the names by which the peers know each other.
    pub service: String,
    /// How many peers.
    pub replicas: u32,
    /// An image with glusterd and gluster. There is no default: none is maintained that could be named here.
    pub image: String,
    /// The image that the agent comes from.
    pub stead_image: String,
    /// The class of the bricks' claims; the cluster's default where none is named.
    pub storage_class: Option<String>,
    /// The class of the claims for `/var/lib/glusterd`; the bricks' where none is named.
    pub state_storage_class: Option<String>,
    /// A class to make.
    pub new_class: Option<PoolStorageClass>,
    /// The size of a bricks' claim.
    pub brick_size: String,
    /// The size of a claim for `/var/lib/glusterd`.
    pub state_size: String,
    /// The name of the claim templates for `/var/lib/glusterd`: a pod's claim is `TEMPLATE-POD`.
    pub state_claim: String,
    /// The name of the claim templates for the bricks.
    pub brick_claim: String,
    /// Where the bricks' claim is in a pod.
    pub brick_path: String,
    /// How the pods are spread.
    pub spread: Spread,
    /// The labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The pods' network.
    pub network: Network,
    /// What the pods may do to their node.
    pub privilege: Privilege,
    /// Whether OpenShift's security context constraints are asked for.
    pub openshift: bool,
    /// Whether the admission policy is part of it.
    pub policy: bool,
    /// Until the agent answers for the first time.
    pub startup: Probe,
    /// Whether the container has to be restarted.
    pub liveness: Probe,
    /// Whether the peer is in the pool and nothing waits to be healed.
    pub readiness: Probe,
    /// How many seconds a pod has to end.
    pub grace_seconds: u32,
    /// What a pod asks for, by resource.
    pub requests: BTreeMap<String, String>,
    /// What a pod gets at most, by resource.
    pub limits: BTreeMap<String, String>,
    /// The domain of the cluster's own names.
    pub cluster_domain: String,
    /// The port on which the agents answer.
    pub agent_port: u16,
    /// Who may connect to Gluster's ports, besides the pool's pods.
    pub allow_clients: Vec<Source>,
    /// Who may connect to the agents' port, besides the pool's pods and the kubelets.
    pub allow_agents: Vec<Source>,
}

/// Where connections may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From everywhere.
    Any,
    /// From these addresses, such as `10.0.0.0/8`.
    Addresses(String),
    /// From the pods of a namespace.
    Namespace(String),
}

/// A class to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStorageClass {
    /// Its provisioner.
    pub provisioner: String,
    /// What the provisioner is told.
    pub parameters: BTreeMap<String, String>,
}

/// How the pods are spread, beside that each keeps away from the others' nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// Nothing more.
    Nodes,
    /// Evenly over the values of a node label.
    Label(String),
    /// As a Topology's spec says.
    Topology(Value),
}

/// The pods' network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Their own.
    Pod,
    /// Their node's: one pod a node.
    Host,
}

/// What the pods may do to their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Everything.
    Privileged,
    /// What bricks need: a container's usual capabilities, and the one to write `trusted.*` attributes.
    Capabilities,
}

/// When a question is asked, and how often it may go unanswered. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// After the container's start.
    pub delay: u32,
    /// From question to question.
    pub period: u32,
    /// For an answer.
    pub timeout: u32,
    /// In a row, before it counts.
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
    /// The names of the pods by which the peers know each other end with this.
    pub fn domain(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }
}
