//! NodeVolumeLimits: how many volumes of a CSI driver a node can have attached.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::csi_migration::{self, AWS_EBS, AZURE_DISK, CINDER, GCE_PD, PORTWORX};
use crate::node::{Node, NodeInfo};
use crate::pod::{Pod, Volume};
use crate::status::{
    AttemptFault, ClaimNotOwned, Code, CsiTranslationError, Filtered, Plugin, Rejection, RejectionReason,
    SchedulingError, reject,
};
use crate::storage::{Attachment, Claim, CsiNode, StorageState, VolumeSource};
use crate::version_rules::{PortworxMigration, VersionRules};

/// The prefixes of allocatable resources that limit volumes: of any driver, and of a CSI driver.
const VOLUME_LIMIT: &str = "attachable-volumes-";
const CSI_VOLUME_LIMIT: &str = "attachable-volumes-csi-";

const IN_TREE_PORTWORX: &str = "kubernetes.io/portworx-volume";

/// An attachable volume: its driver and its handle.
type Attachable = (Box<str>, Box<str>);

/// PreFilter: whether the pod has a volume that could count.
pub(crate) fn applies(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|v| !matches!(v, Volume::Iscsi { .. } | Volume::Rbd { .. }))
}

pub(crate) fn filter(cluster: &Cluster, pod: &Pod, info: &NodeInfo) -> Filtered {
    let (storage, rules) = (cluster.storage(), cluster.rules());
    let csi_node = storage.csi_nodes.get(&*info.node.name);
    let migration = Migration::on(csi_node, rules);
    let mut wanted = attachable(storage, pod, migration, true)?;
    let limits = limits(csi_node, &info.node, rules);
    if limits.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut attached = BTreeSet::new();
    for other in &info.pods {
        attached.extend(attachable(storage, other, migration, false)?);
    }
    wanted.retain(|v| !attached.contains(v));
    let attachments = storage.attachments.values().filter(|_| rules.counts_attachments);
    for Attachment { node, driver, volume } in attachments {
        if **node == *info.node.name
            && !driver.is_empty()
            && let Some(VolumeSource::Csi(_, handle)) = storage.volume(volume).map(|v| &v.source)
        {
            attached.insert((driver.clone(), handle.clone()));
        }
    }
    let mut new: BTreeMap<&str, i64> = BTreeMap::new();
    for (driver, _) in &wanted {
        *new.entry(driver).or_default() += 1;
    }
    for (driver, new) in new {
        let there = attached.iter().filter(|(d, _)| **d == *driver).count() as i64;
        if limits.get(driver).is_some_and(|limit| there + new > *limit) {
            return reject(Plugin::NodeVolumeLimits, Code::Unschedulable, RejectionReason::TooManyVolumes);
        }
    }
    Ok(())
}

/// How many volumes each driver can attach to a node. A limit in the node's allocatable resources yields to the
/// CSINode's.
fn limits<'a>(csi_node: Option<&'a CsiNode>, node: &'a Node, rules: &VersionRules) -> BTreeMap<&'a str, i64> {
    let mut limits = BTreeMap::new();
    if rules.allocatable_volume_limits {
        let of_volumes = node.allocatable.scalars.iter().filter(|(name, _)| name.starts_with(VOLUME_LIMIT));
        limits.extend(of_volumes.map(|(name, n)| (name.strip_prefix(CSI_VOLUME_LIMIT).unwrap_or(name), *n)));
    }
    limits.extend(csi_node.iter().flat_map(|n| &n.limits).map(|(driver, n)| (&**driver, *n)));
    limits
}

/// Which in-tree volumes count as those of a CSI driver on a node.
#[derive(Debug, Clone, Copy)]
struct Migration {
    portworx: bool,
    others: bool,
}

impl Migration {
    fn on(csi_node: Option<&CsiNode>, rules: &VersionRules) -> Migration {
        let portworx = |node: &CsiNode| match rules.portworx {
            PortworxMigration::Off => false,
            PortworxMigration::Annotated => node.migrated.iter().any(|name| **name == *IN_TREE_PORTWORX),
            PortworxMigration::On => true,
        };
        Migration { portworx: csi_node.is_some_and(portworx), others: csi_node.is_some() }
    }

    fn applies_to(self, driver: &str) -> bool {
        if driver == PORTWORX { self.portworx } else { self.others }
    }
}

/// A pod's volumes that a CSI driver attaches. A claim without a volume counts by its class.
fn attachable(
    storage: &StorageState,
    pod: &Pod,
    migration: Migration,
    new: bool,
) -> Result<BTreeSet<Attachable>, AttemptFault> {
    let mut out = BTreeSet::new();
    for volume in &pod.spec.volumes {
        let inline = |driver: &str, handle: &str| migration.applies_to(driver).then(|| (driver.into(), handle.into()));
        let found = match volume {
            Volume::AwsElasticBlockStore(id) => match csi_migration::ebs_handle(id) {
                Ok(handle) => inline(AWS_EBS, &handle),
                Err(cause) if migration.others => return Err(not_translated(id, cause)),
                Err(_) => None,
            },
            Volume::GcePersistentDisk { name, .. } => {
                csi_migration::gce_handle(name, None).and_then(|handle| inline(GCE_PD, &handle))
            }
            Volume::AzureDisk { volume, kind, .. } if migration.others && !csi_migration::is_managed(kind) => {
                return Err(not_translated(volume, CsiTranslationError::AzureDiskKind(kind.clone())));
            }
            Volume::AzureDisk { uri, .. } => inline(AZURE_DISK, uri),
            Volume::Cinder(id) => inline(CINDER, id),
            Volume::Portworx(id) => inline(PORTWORX, id),
            Volume::Iscsi { .. } | Volume::Rbd { .. } => None,
            Volume::Claim(name) | Volume::Ephemeral(name) => {
                let namespace = &pod.key.namespace;
                match storage.claim(namespace, name) {
                    None if new => {
                        let reason =
                            RejectionReason::ClaimLookupFailed { namespace: (**namespace).into(), claim: name.clone() };
                        let rejection = Rejection::new(Plugin::NodeVolumeLimits, Code::Unresolvable, reason);
                        return Err(AttemptFault::Rejected(rejection));
                    }
                    None => None,
                    Some(claim) => {
                        if matches!(volume, Volume::Ephemeral(_)) && !is_created_for(claim, pod) {
                            return Err(AttemptFault::Error(SchedulingError::EphemeralClaimNotOwned(not_owner(
                                claim, pod,
                            ))));
                        }
                        of_claim(storage, claim, migration)
                    }
                }
            }
        };
        out.extend(found.filter(|(driver, handle): &Attachable| !driver.is_empty() && !handle.is_empty()));
    }
    Ok(out)
}

fn not_translated(volume: &str, cause: CsiTranslationError) -> AttemptFault {
    AttemptFault::Error(SchedulingError::CsiTranslation { volume: volume.into(), cause })
}

/// Whether an ephemeral volume's claim was created for the pod.
pub(crate) fn is_created_for(claim: &Claim, pod: &Pod) -> bool {
    claim.controller_uid.as_deref() == Some(&*pod.uid)
}

pub(crate) fn not_owner(claim: &Claim, pod: &Pod) -> ClaimNotOwned {
    ClaimNotOwned { claim: claim.name.clone(), pod: pod.key.clone() }
}

fn of_claim(storage: &StorageState, claim: &Claim, migration: Migration) -> Option<Attachable> {
    if let Some(volume) = claim.volume.as_deref().and_then(|v| storage.volume(v)) {
        return match &volume.source {
            VolumeSource::Csi(driver, handle) => Some((driver.clone(), handle.clone())),
            VolumeSource::Migrated(driver, handle) if migration.applies_to(driver) => {
                Some(((*driver).into(), handle.clone()))
            }
            _ => None,
        };
    }
    let class = storage.class(&claim.class)?;
    // A placeholder for the handle of a volume that does not exist yet. No driver uses such handles.
    let handle = format!("\0{}/{}", claim.namespace, claim.name).into();
    match csi_migration::driver(&class.provisioner) {
        Some(driver) => migration.applies_to(driver).then(|| (driver.into(), handle)),
        None => Some((class.provisioner.clone(), handle)),
    }
}
