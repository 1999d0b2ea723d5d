//! The settings of an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use stead_pool::{HostName, InvalidName, PoolSpec};

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The pool: the name of its StatefulSet.
    pub pool: String,
    /// The headless Service of the pods' DNS names.
    pub service: String,
    /// The DNS domain of the cluster.
    pub cluster_domain: String,
    /// The namespace.
    pub namespace: String,
    /// This pod.
    pub pod: PoolPod,
    /// glusterd's state directory.
    pub state_dir: PathBuf,
    /// The address for probes, Prometheus and the other agents. All agents listen on the same port.
    pub listen: SocketAddr,
    /// The command that runs glusterd in the foreground.
    pub glusterd: Vec<String>,
    /// The gluster command.
    pub gluster: String,
    /// The Secret with the pool's key; none if the pool was installed without one: then nothing is signed.
    pub key_secret: Option<String>,
    /// How long a pod that was scaled away waits to be detached.
    pub leave: std::time::Duration,
}

/// The pod that the agent runs in, from the downward API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPod {
    /// The pod's name.
    pub name: String,
    /// The pod's ordinal.
    pub ordinal: u32,
    /// The pod's uid.
    pub uid: String,
    /// The pod's IP address.
    pub address: HostName,
}

impl Settings {
    /// The DNS domain of the pods' names.
    pub fn domain(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }

    /// The pods that the pool should have with this many replicas.
    pub fn wanted(&self, replicas: u32, start: u32) -> Result<PoolSpec, InvalidName> {
        PoolSpec::new(&self.pool, &self.domain(), replicas, start)
    }

    /// The name of the record and of the Lease.
    pub fn record(&self) -> String {
        stead_pool::config_map::name(&self.pool)
    }
}
