//! The pods that the StatefulSet asks for.

use crate::{HostName, InvalidName};

/// The desired pods of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    name: String,
    domain: String,
    /// The number of pods.
    pub replicas: u32,
    /// The ordinal of the first pod.
    pub start: u32,
}

impl PoolSpec {
    /// The pods of the StatefulSet `name`, with host names in `domain`: `SERVICE.NAMESPACE.svc.cluster.local`.
    pub fn new(name: &str, domain: &str, replicas: u32, start: u32) -> Result<PoolSpec, InvalidName> {
        let wanted = PoolSpec { name: name.to_owned(), domain: domain.to_owned(), replicas, start };
        // The longest ordinal: if this is a valid host name, all others are.
        wanted.host_of(u32::MAX)?;
        Ok(wanted)
    }

    /// The name of the StatefulSet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of a pod.
    pub fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The host name of a pod, by which other peers know its glusterd.
    pub fn host(&self, ordinal: u32) -> HostName {
        self.host_of(ordinal).expect("checked for the longest ordinal in `new`")
    }

    fn host_of(&self, ordinal: u32) -> Result<HostName, InvalidName> {
        format!("{}-{ordinal}.{}", self.name, self.domain).parse()
    }

    /// The ordinal of a pod name or host name of this pool; none for other names.
    pub fn ordinal(&self, name: &str) -> Option<u32> {
        let pod = name.strip_suffix(&self.domain).and_then(|n| n.strip_suffix('.')).unwrap_or(name);
        ordinal(&self.name, pod)
    }

    /// Whether the StatefulSet asks for a pod of this ordinal.
    pub fn includes(&self, ordinal: u32) -> bool {
        ordinal >= self.start && ordinal - self.start < self.replicas
    }
}

/// The ordinal in the name of a pod of the StatefulSet `set`; none for other pods.
pub fn ordinal(set: &str, pod: &str) -> Option<u32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    number.parse().ok().filter(|n: &u32| n.to_string() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_host_names_are_rejected() {
        let long = "n".repeat(60);
        for (name, domain, valid) in
            [("g", "g.n.svc.d", true), ("g", "g..d", false), ("g/x", "d", false), ("", "d", false), (&long, "d", false)]
        {
            assert_eq!(PoolSpec::new(name, domain, 3, 0).is_ok(), valid, "{name} in {domain}");
        }
    }

    #[test]
    fn only_pods_of_the_pool_have_an_ordinal() {
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
