//! VolumeRestrictions: disks that only one node may use, and claims that only one pod may use.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::node::NodeInfo;
use crate::pod::{Pod, PodSpec, Volume};
use crate::status::{Code, Filtered, Plugin, Rejection, RejectionReason, reject};
use crate::version_rules::VersionRules;

/// The pod's claims with access mode ReadWriteOncePod, and how many are in use.
#[derive(Debug, Clone)]
pub(crate) struct State {
    claims: BTreeSet<Box<str>>,
    conflicts: i64,
}

impl State {
    /// PreFilter; none if there is nothing to check.
    pub(crate) fn new(cluster: &Cluster, pod: &PodSpec) -> Result<Option<State>, Rejection> {
        let mut claims = BTreeSet::new();
        for volume in &pod.volumes {
            let Volume::Claim(name) = volume else { continue };
            let Some(claim) = cluster.storage().claim(&pod.namespace, name) else {
                let reason = RejectionReason::ClaimNotFound { claim: name.clone() };
                return Err(Rejection::new(Plugin::VolumeRestrictions, Code::Unresolvable, reason));
            };
            if claim.access_modes.iter().any(|m| **m == *"ReadWriteOncePod") {
                claims.insert(name.clone());
            }
        }
        let in_use = |name: &str| {
            let uses = |p: &Pod| {
                p.key.namespace == pod.namespace
                    && p.spec.volumes.iter().any(|v| matches!(v, Volume::Claim(n) if **n == *name))
            };
            cluster.nodes().any(|info| info.pods.iter().any(|p| uses(p)))
        };
        let conflicts = claims.iter().filter(|name| in_use(name)).count() as i64;
        let needed = conflicts > 0 || pod.volumes.iter().any(is_exclusive);
        Ok(needed.then_some(State { claims, conflicts }))
    }

    /// Adds or removes a pod. Unlike PreFilter this compares only the claim's name, not its namespace.
    pub(crate) fn update(&mut self, other: &Pod, n: i64) {
        let uses = |v: &&Volume| matches!(v, Volume::Claim(name) if self.claims.contains(name));
        self.conflicts += n * other.spec.volumes.iter().filter(uses).count() as i64;
    }

    pub(crate) fn filter(&self, pod: &PodSpec, info: &NodeInfo, rules: &VersionRules) -> Filtered {
        let wanted = pod.volumes.iter().filter(|v| is_exclusive(v));
        for volume in wanted {
            if info.pods.iter().any(|p| p.spec.volumes.iter().any(|other| conflict(volume, other))) {
                return reject(Plugin::VolumeRestrictions, Code::Unschedulable, RejectionReason::DiskInUse);
            }
        }
        if self.conflicts > 0 {
            let reason = RejectionReason::ReadWriteOncePodInUse(rules.read_write_once_pod);
            return reject(Plugin::VolumeRestrictions, Code::Unschedulable, reason);
        }
        Ok(())
    }
}

fn is_exclusive(v: &Volume) -> bool {
    matches!(
        v,
        Volume::GcePersistentDisk { .. } | Volume::AwsElasticBlockStore(_) | Volume::Iscsi { .. } | Volume::Rbd { .. }
    )
}

fn conflict(a: &Volume, b: &Volume) -> bool {
    match (a, b) {
        (
            Volume::GcePersistentDisk { name: a, read_only: ro_a },
            Volume::GcePersistentDisk { name: b, read_only: ro_b },
        )
        | (Volume::Iscsi { iqn: a, read_only: ro_a }, Volume::Iscsi { iqn: b, read_only: ro_b }) => {
            a == b && !(*ro_a && *ro_b)
        }
        (Volume::AwsElasticBlockStore(a), Volume::AwsElasticBlockStore(b)) => a == b,
        (
            Volume::Rbd { monitors: m_a, pool: p_a, image: i_a, read_only: ro_a },
            Volume::Rbd { monitors: m_b, pool: p_b, image: i_b, read_only: ro_b },
        ) => p_a == p_b && i_a == i_b && m_a.iter().any(|m| m_b.contains(m)) && !(*ro_a && *ro_b),
        _ => false,
    }
}
