//! Whose agent this is, and how it goes about it.

use std::net::SocketAddr;
use std::path::PathBuf;

use stead_pool::{HostName, InvalidName, PoolSpec};

/// Whose agent this is, and how it goes about it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The pool: the name of its StatefulSet.
    pub pool: String,
    /// The headless Service that its pods have their names from.
    pub service: String,
    /// The domain of the cluster's own names.
    pub cluster_domain: String,
    /// The namespace.
    pub namespace: String,
    /// This pod.
    pub pod: Pod,
    /// glusterd's state.
    pub state_dir: PathBuf,
    /// Where probes, Prometheus and the other agents find this one. The others listen on the same port.
    pub listen: SocketAddr,
    /// What runs glusterd in the foreground: the program and its arguments.
    pub glusterd: Vec<String>,
    /// The program that talks to it.
    pub gluster: String,
    /// The Secret with the pool's key; none where the pool was installed without one: nothing is signed then.
    pub key_secret: Option<String>,
    /// How long a pod that leaves for good waits to be detached.
    pub leave: std::time::Duration,
}

/// A pod, as the downward API tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its ordinal.
    pub ordinal: u32,
    /// Its uid.
    pub uid: String,
    /// Its address.
    pub address: HostName,
}

impl Settings {
    /// The domain in which the pods have names.
    pub fn domain(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }

    /// The pods that the pool should have, if so many are wanted.
    pub fn wanted(&self, replicas: u32, start: u32) -> Result<PoolSpec, InvalidName> {
        PoolSpec::new(&self.pool, &self.domain(), replicas, start)
    }

    /// The name of the record and of the Lease.
    pub fn record(&self) -> String {
        stead_pool::config_map::name(&self.pool)
    }
}
