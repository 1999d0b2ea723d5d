//! Whose agent this is, and how it goes about it.

use std::net::SocketAddr;
use std::path::PathBuf;

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
    pub address: String,
}

impl Settings {
    /// The domain in which the pods have names.
    pub fn domain(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }

    /// The name of the record and of the Lease.
    pub fn record(&self) -> String {
        stead_pool::config_map::name(&self.pool)
    }
}

/// The ordinal in the name of a pool's pod.
pub fn ordinal(pool: &str, pod: &str) -> Option<u32> {
    let number = pod.strip_prefix(pool)?.strip_prefix('-')?;
    number.parse().ok().filter(|n: &u32| n.to_string() == number)
}

/// The agent of the first pod of pool `g`.
#[cfg(test)]
pub(crate) fn example() -> Settings {
    Settings {
        pool: "g".into(),
        service: "g".into(),
        cluster_domain: "d".into(),
        namespace: "n".into(),
        pod: Pod { name: "g-0".into(), ordinal: 0, uid: "uid".into(), address: "10.0.0.1".into() },
        state_dir: PathBuf::new(),
        listen: ([127, 0, 0, 1], 1).into(),
        glusterd: Vec::new(),
        gluster: "gluster".into(),
        leave: std::time::Duration::from_secs(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_of_this_pool() {
        for (pod, found) in [
            ("glusterfs-0", Some(0)),
            ("glusterfs-12", Some(12)),
            ("glusterfs-01", None),
            ("glusterfs-", None),
            ("glusterfs", None),
            ("other-1", None),
            ("glusterfs-a-1", None),
        ] {
            assert_eq!(ordinal("glusterfs", pod), found, "{pod}");
        }
    }
}
