//! EBSLimits, GCEPDLimits and AzureDiskLimits: how many in-tree disks a node without a CSINode can have attached. Kubernetes
//! 1.31 removed these plugins from the default profile.

use std::collections::BTreeSet;

use super::volume_limits::{is_created_for, not_owner};
use crate::cluster::Cluster;
use crate::csi_migration::{self, AWS_EBS, AZURE_DISK, GCE_PD};
use crate::node::{Node, NodeInfo};
use crate::pod::{Pod, Volume};
use crate::status::{AttemptFault, Code, ExtensionPoint, Filtered, Plugin, RejectionReason, SchedulingError, reject};
use crate::storage::{StorageState, VolumeSource};

/// A kind of disk with a plugin of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InTreeDisk {
    plugin: Plugin,
    /// The CSI driver that replaced it.
    driver: &'static str,
    /// The allocatable resource that limits it.
    resource: &'static str,
}

/// The kinds that are checked before NodeVolumeLimits, and those after it.
pub(crate) const BEFORE_CSI: [InTreeDisk; 2] = [
    InTreeDisk { plugin: Plugin::EBSLimits, driver: AWS_EBS, resource: "attachable-volumes-aws-ebs" },
    InTreeDisk { plugin: Plugin::GCEPDLimits, driver: GCE_PD, resource: "attachable-volumes-gce-pd" },
];
pub(crate) const AFTER_CSI: [InTreeDisk; 1] =
    [InTreeDisk { plugin: Plugin::AzureDiskLimits, driver: AZURE_DISK, resource: "attachable-volumes-azure-disk" }];

/// Checks the limits of some kinds, in the versions that have these plugins.
pub(crate) fn filter(disks: &[InTreeDisk], cluster: &Cluster, pod: &Pod, info: &NodeInfo) -> Filtered {
    if !cluster.rules().in_tree_limits {
        return Ok(());
    }
    disks.iter().try_for_each(|disk| {
        disk.filter(cluster.storage(), pod, info).map_err(|f| f.in_plugin(ExtensionPoint::Filter, disk.plugin))
    })
}

impl InTreeDisk {
    fn filter(self, storage: &StorageState, pod: &Pod, info: &NodeInfo) -> Filtered {
        let wanted = self.volumes(storage, pod)?;
        if wanted.is_empty() || storage.csi_nodes.contains_key(&*info.node.name) {
            return Ok(());
        }
        let mut all = BTreeSet::new();
        for other in &info.pods {
            all.extend(self.volumes(storage, other)?);
        }
        all.extend(wanted);
        if all.len() as i64 > self.limit(&info.node) {
            // The reason and the remedies are those of NodeVolumeLimits.
            return reject(Plugin::NodeVolumeLimits, Code::Unschedulable, RejectionReason::TooManyVolumes);
        }
        Ok(())
    }

    /// The disks of a pod. A claim without a volume counts by its class.
    fn volumes(self, storage: &StorageState, pod: &Pod) -> Result<BTreeSet<String>, AttemptFault> {
        let mut out = BTreeSet::new();
        for volume in &pod.spec.volumes {
            let Some((name, ephemeral)) = volume.claim() else {
                out.extend(self.inline(volume));
                continue;
            };
            let Some(claim) = storage.claim(&pod.key.namespace, name) else { continue };
            if ephemeral && !is_created_for(claim, pod) {
                return Err(AttemptFault::Error(SchedulingError::EphemeralClaimNotOwned(not_owner(claim, pod))));
            }
            match claim.volume.as_deref().and_then(|v| storage.volume(v)) {
                Some(volume) => out.extend(match &volume.source {
                    VolumeSource::Migrated(driver, handle) if *driver == self.driver => Some(disk_name(handle)),
                    _ => None,
                }),
                None => {
                    let class = storage.class(&claim.class);
                    let provisions = class.is_some_and(|c| csi_migration::driver(&c.provisioner) == Some(self.driver));
                    // A placeholder for a disk that does not exist yet.
                    out.extend(provisions.then(|| format!("\0{}/{}", claim.namespace, claim.name)));
                }
            }
        }
        Ok(out)
    }

    fn inline(self, volume: &Volume) -> Option<String> {
        match volume {
            Volume::AwsElasticBlockStore(id) if self.driver == AWS_EBS => {
                Some(csi_migration::ebs_handle(id).unwrap_or_else(|_| id.to_string()))
            }
            Volume::GcePersistentDisk { name, .. } if self.driver == GCE_PD => Some(name.to_string()),
            Volume::AzureDisk { uri, .. } if self.driver == AZURE_DISK => Some(uri.to_string()),
            _ => None,
        }
    }

    fn limit(self, node: &Node) -> i64 {
        if let Some((_, limit)) = node.allocatable.scalars.iter().find(|(name, _)| **name == *self.resource) {
            return *limit;
        }
        if self.driver != AWS_EBS {
            return 16;
        }
        let label = |key: &str| node.label(key);
        let instance = label("beta.kubernetes.io/instance-type").or_else(|| label("node.kubernetes.io/instance-type"));
        if instance.is_some_and(is_nitro) { 25 } else { 39 }
    }
}

/// Whether an instance type has fewer slots for disks (`EBSNitroLimitRegex`).
fn is_nitro(instance: &str) -> bool {
    ["c5", "m5", "r5"].iter().any(|family| instance.starts_with(family))
        || ["t3", "z1d"].iter().any(|family| instance.contains(family))
}

/// The name of a disk in the handle of a volume: a GCE handle also has the project and the zone.
fn disk_name(handle: &str) -> String {
    handle
        .rsplit_once("/disks/")
        .filter(|_| handle.starts_with("projects/"))
        .map_or(handle, |(_, name)| name)
        .to_owned()
}
