//! What the StatefulSet wants.

use crate::{HostName, InvalidName};

/// The pods that a pool should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    name: String,
    domain: String,
    /// How many pods.
    pub replicas: u32,
    /// The ordinal of the first one.
    pub start: u32,
}

impl Wanted {
    /// The pods of the StatefulSet `name`, which have names in `domain`: `SERVICE.NAMESPACE.svc.cluster.local`.
    pub fn new(name: &str, domain: &str, replicas: u32, start: u32) -> Result<Wanted, InvalidName> {
        let wanted = Wanted { name: name.to_owned(), domain: domain.to_owned(), replicas, start };
        // The longest ordinal: where this is a host name, so are all others.
        wanted.host_of(u32::MAX)?;
        Ok(wanted)
    }

    /// The StatefulSet's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A pod's name.
    pub fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The name by which a pod's glusterd is known to the others.
    pub fn host(&self, ordinal: u32) -> HostName {
        self.host_of(ordinal).expect("checked for the longest ordinal when it was made")
    }

    fn host_of(&self, ordinal: u32) -> Result<HostName, InvalidName> {
        format!("{}-{ordinal}.{}", self.name, self.domain).parse()
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
    fn names_that_are_no_host_names_are_refused() {
        let long = "n".repeat(60);
        for (name, domain, valid) in
            [("g", "g.n.svc.d", true), ("g", "g..d", false), ("g/x", "d", false), ("", "d", false), (&long, "d", false)]
        {
            assert_eq!(Wanted::new(name, domain, 3, 0).is_ok(), valid, "{name} in {domain}");
        }
    }

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
