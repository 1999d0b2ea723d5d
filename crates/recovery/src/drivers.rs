//! Which storage drivers revoke a machine's access to a volume when it is detached.
//!
//! Kubernetes detaches a volume and attaches it elsewhere. Whether the old machine can still write to it afterwards depends
//! on the driver: some take the disk away from the machine, some only update a record, and some never attach volumes.
//! A machine that was only suspended, and is resumed later, can write to volumes of the second and third kind.

use std::fmt;

use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Volume};
use stead_model::{Objects, PodView, csi_driver, pod_volumes};

use crate::policy::RecoveryPolicy;
use crate::progress;
use crate::record::RecoveryPlan;

/// Whether detaching a volume revokes the machine's access to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachRevokes {
    /// The machine can no longer write.
    Yes,
    /// The machine can still write.
    No,
    /// It depends on how the driver is configured. Counts as no, unless a policy names the driver.
    Depends,
}

/// What is known about a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageDriver {
    /// Its name. A driver whose name ends with a dot and this name is the same driver, installed under a prefix.
    pub name: &'static str,
    /// Whether its volumes are attached to a node, so that there is something to detach.
    pub attaches: bool,
    /// Whether that revokes access.
    pub revokes: DetachRevokes,
    /// Why, or what it depends on.
    pub reason: &'static str,
}

const fn driver(name: &'static str, attaches: bool, revokes: DetachRevokes, reason: &'static str) -> StorageDriver {
    StorageDriver { name, attaches, revokes, reason }
}

/// The known drivers. All others count as not revoking.
pub const DRIVERS: &[StorageDriver] = &[
    driver("cinder.csi.openstack.org", true, DetachRevokes::Yes, "Nova takes the disk from the server"),
    driver("ebs.csi.aws.com", true, DetachRevokes::Yes, "EC2 takes the disk from the instance"),
    driver("pd.csi.storage.gke.io", true, DetachRevokes::Yes, "Compute Engine takes the disk from the instance"),
    driver("disk.csi.azure.com", true, DetachRevokes::Yes, "Azure takes the disk from the machine"),
    driver("csi.vsphere.vmware.com", true, DetachRevokes::Yes, "vCenter takes block disks from the machine"),
    driver("csi-powerstore.dellemc.com", true, DetachRevokes::Yes, "the array removes the host mapping"),
    driver("rbd.csi.ceph.com", true, DetachRevokes::Depends, "only if ceph-csi runs with --enable-fencing"),
    driver("cephfs.csi.ceph.com", true, DetachRevokes::Depends, "only if ceph-csi runs with --enable-fencing"),
    driver("io.openebs.csi-mayastor", true, DetachRevokes::Depends, "only if the node of the target obeys"),
    driver("driver.longhorn.io", true, DetachRevokes::No, "the new engine restarts the replicas; not a fence"),
    driver("linstor.csi.linbit.com", true, DetachRevokes::No, "DRBD's quorum decides, not the detach"),
    driver("nfs.csi.k8s.io", false, DetachRevokes::No, "volumes are not attached"),
    driver("nfs.manila.csi.openstack.org", false, DetachRevokes::No, "volumes are not attached"),
    driver("cephfs.manila.csi.openstack.org", false, DetachRevokes::No, "volumes are not attached"),
    driver("pxd.portworx.com", false, DetachRevokes::No, "volumes are not attached"),
    driver("topolvm.io", false, DetachRevokes::No, "volumes are local to a node"),
    driver("local.csi.openebs.io", false, DetachRevokes::No, "volumes are local to a node"),
    driver("zfs.csi.openebs.io", false, DetachRevokes::No, "volumes are local to a node"),
];

/// Whether detaching a volume of this driver revokes access to it.
pub fn detach_revokes(driver: &str) -> DetachRevokes {
    let known = DRIVERS
        .iter()
        .find(|known| driver.strip_suffix(known.name).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.')));
    known.map_or(DetachRevokes::No, |known| known.revokes)
}

/// A volume that a machine can still write to after it was detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrevokedVolume {
    /// The PersistentVolume, or the volume's name in the pod.
    pub volume: String,
    /// The driver, or the kind of volume.
    pub driver: String,
    /// The pod on the node that uses it, by namespace and name.
    pub pod: Option<String>,
}

impl fmt::Display for UnrevokedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} ({})", self.volume, self.driver)?;
        self.pod.as_ref().map_or(Ok(()), |pod| write!(f, " of pod {pod}"))
    }
}

/// The volumes of a plan that the machine can still write to after they were detached.
pub(crate) fn unrevoked(objects: &Objects, plan: &RecoveryPlan, policy: &RecoveryPolicy) -> Vec<UnrevokedVolume> {
    let mut found = Vec::new();
    for planned in plan.pods.iter().filter(|pod| !pod.released_earlier) {
        let Some(pod) = progress::object(objects, planned) else { continue };
        let full_name = Some(planned.full_name());
        let volumes = volumes_of_pod(objects, pod, policy);
        found.extend(volumes.map(|(volume, driver)| UnrevokedVolume { volume, driver, pod: full_name.clone() }));
    }
    found.extend(plan.volumes.iter().filter_map(|volume| {
        let driver = unrevoked_driver(objects, volume, policy)?;
        Some(UnrevokedVolume { volume: volume.clone(), driver, pod: None })
    }));
    found
}

/// Whether a pod has such a volume.
pub(crate) fn has_unrevoked(objects: &Objects, pod: PodView<'_>, policy: &RecoveryPolicy) -> bool {
    volumes_of_pod(objects, pod, policy).next().is_some()
}

/// The volumes of a pod that its machine can still write to after they were detached, with their drivers.
fn volumes_of_pod<'a>(
    objects: &'a Objects,
    pod: PodView<'a>,
    policy: &'a RecoveryPolicy,
) -> impl Iterator<Item = (String, String)> + use<'a> {
    let written = pod_volumes(objects, pod).into_iter().filter(|volume| !volume.is_local() && !volume.read_only);
    let persistent = written.filter_map(|claimed| {
        let volume = claimed.volume?;
        let driver = unrevoked_driver(objects, &volume, policy)?;
        Some((volume, driver))
    });
    let inline = pod.volumes().iter().filter_map(|volume| {
        let (kind, read_only) = network_kind_of_inline(volume)?;
        (!read_only).then(|| (volume.name.clone(), kind.to_owned()))
    });
    persistent.chain(inline)
}

/// The driver of a PersistentVolume that a machine can still write to after it was detached; none for other volumes.
fn unrevoked_driver(objects: &Objects, name: &str, policy: &RecoveryPolicy) -> Option<String> {
    let volume = objects.volume(name);
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let only_read = !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany");
    let driver = volume.and_then(csi_driver).or_else(|| network_kind(spec?)).unwrap_or("unknown driver");
    let handle = spec.and_then(|spec| spec.csi.as_ref()).map(|csi| csi.volume_handle.as_str());
    let vsphere_file = driver == "csi.vsphere.vmware.com" && handle.is_some_and(|handle| handle.starts_with("file:"));
    let revokes =
        policy.detach_revokes.contains(driver) || (detach_revokes(driver) == DetachRevokes::Yes && !vsphere_file);
    (!only_read && !revokes).then(|| driver.to_owned())
}

/// The kind of a PersistentVolume of Kubernetes' own kinds that is on the network and that nothing detaches.
fn network_kind(spec: &PersistentVolumeSpec) -> Option<&'static str> {
    let kinds = [
        ("nfs", spec.nfs.is_some()),
        ("iscsi", spec.iscsi.is_some()),
        ("fc", spec.fc.is_some()),
        ("rbd", spec.rbd.is_some()),
        ("cephfs", spec.cephfs.is_some()),
        ("glusterfs", spec.glusterfs.is_some()),
        ("azureFile", spec.azure_file.is_some()),
        ("flexVolume", spec.flex_volume.is_some()),
    ];
    kinds.into_iter().find(|(_, has)| *has).map(|(kind, _)| kind)
}

/// The same for a volume in a pod's spec, and whether it is mounted read-only.
fn network_kind_of_inline(volume: &Volume) -> Option<(&'static str, bool)> {
    let kinds = [
        ("nfs", volume.nfs.as_ref().map(|source| source.read_only)),
        ("iscsi", volume.iscsi.as_ref().map(|source| source.read_only)),
        ("fc", volume.fc.as_ref().map(|source| source.read_only)),
        ("rbd", volume.rbd.as_ref().map(|source| source.read_only)),
        ("cephfs", volume.cephfs.as_ref().map(|source| source.read_only)),
        ("glusterfs", volume.glusterfs.as_ref().map(|source| source.read_only)),
        ("azureFile", volume.azure_file.as_ref().map(|source| source.read_only)),
        ("flexVolume", volume.flex_volume.as_ref().map(|source| source.read_only)),
    ];
    kinds.into_iter().find_map(|(kind, read_only)| Some((kind, read_only? == Some(true))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_found_by_name_and_by_suffix() {
        for (driver, expected) in [
            ("cinder.csi.openstack.org", DetachRevokes::Yes),
            ("rook-ceph.rbd.csi.ceph.com", DetachRevokes::Depends),
            ("notcephfs.csi.ceph.com", DetachRevokes::No),
            ("nfs.csi.k8s.io", DetachRevokes::No),
            ("example.com", DetachRevokes::No),
        ] {
            assert_eq!(detach_revokes(driver), expected, "{driver}");
        }
    }

    #[test]
    fn a_driver_that_does_not_attach_cannot_revoke() {
        for driver in DRIVERS.iter().filter(|driver| !driver.attaches) {
            assert_eq!(driver.revokes, DetachRevokes::No, "{}", driver.name);
        }
    }
}
