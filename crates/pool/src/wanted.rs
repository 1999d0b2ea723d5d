//! What the StatefulSet wants.

use serde::{Deserialize, Serialize};

/// The pods that a pool should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// The StatefulSet's name.
    pub name: String,
    /// The domain in which its pods have names: `SERVICE.NAMESPACE.svc.cluster.local`.
    pub domain: String,
    /// How many pods.
    pub replicas: u32,
    /// The ordinal of the first one.
    pub start: u32,
}

impl Wanted {
    /// A pod's name.
    pub fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The name by which a pod's glusterd is known to the others.
    pub fn host(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}.{}", self.name, self.domain)
    }

    /// The ordinal of a pod's name or of a host's, if it is one of this pool's.
    pub fn ordinal(&self, name: &str) -> Option<u32> {
        let pod = name.strip_suffix(&self.domain).and_then(|n| n.strip_suffix('.')).unwrap_or(name);
        ordinal(&self.name, pod)
    }

    /// Whether a pod of this ordinal should be there.
    pub fn wants(&self, ordinal: u32) -> bool {
        ordinal >= self.start && ordinal - self.start < self.replicas
    }
}

/// The ordinal in the name of a StatefulSet's pod, if it is one of this StatefulSet's.
pub fn ordinal(set: &str, pod: &str) -> Option<u32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    number.parse().ok().filter(|n: &u32| n.to_string() == number)
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
