//! Which storage drivers revoke a machine's access to a volume when it is detached.
//!
//! Kubernetes detaches a volume and attaches it elsewhere. Whether the old machine can still write to it afterwards is up
//! to the driver: some take the disk away from the machine, some only forget that it had it, and some never attach at all.
//! A machine that was only suspended, and is resumed later, can write to volumes of the second and third kind.

use std::fmt;

use serde_json::Value;
use stead_explain::outage::volumes_of;
use stead_model::{ObjectKey, Objects, csi_driver};

use crate::follow;
use crate::policy::Policy;
use crate::record::Plan;

/// Whether detaching a volume revokes the machine's access to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachRevokes {
    /// The machine cannot write any more.
    Yes,
    /// The machine can still write.
    No,
    /// It depends on how the driver is configured. Counts as no, unless a policy names the driver.
    Depends,
}

/// What is known about a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageDriver {
    /// Its name; a driver whose name ends with a dot and this name is the same one, installed under a prefix.
    pub name: &'static str,
    /// Whether its volumes are attached to a node, so that there is something to detach.
    pub attaches: bool,
    /// Whether that revokes access.
    pub revokes: DetachRevokes,
    /// Why, or on what it depends.
    pub reason: &'static str,
}

const fn driver(name: &'static str, attaches: bool, revokes: DetachRevokes, reason: &'static str) -> StorageDriver {
    StorageDriver { name, attaches, revokes, reason }
}

/// The drivers that are known. All others count as not revoking.
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

/// Volumes of Kubernetes' own kinds that are on the network and that nothing detaches.
const NETWORK_KINDS: [&str; 8] = ["nfs", "iscsi", "fc", "rbd", "cephfs", "glusterfs", "azureFile", "flexVolume"];

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
pub(crate) fn unrevoked(objects: &Objects, plan: &Plan, policy: &Policy) -> Vec<UnrevokedVolume> {
    let mut found = Vec::new();
    for pod in plan.pods.iter().filter(|pod| !pod.taken) {
        let Some(seen) = follow::object(objects, pod) else { continue };
        let of = Some(format!("{}/{}", pod.namespace, pod.name));
        found.extend(
            volumes_of_pod(objects, &pod.namespace, seen.value, policy).map(|(volume, driver)| UnrevokedVolume {
                volume,
                driver,
                pod: of.clone(),
            }),
        );
    }
    found.extend(plan.volumes.iter().filter_map(|volume| {
        let driver = unrevoked_driver(objects, volume, policy)?;
        Some(UnrevokedVolume { volume: volume.clone(), driver, pod: None })
    }));
    found
}

/// Whether a pod has such a volume.
pub(crate) fn has_unrevoked(objects: &Objects, namespace: &str, pod: &Value, policy: &Policy) -> bool {
    volumes_of_pod(objects, namespace, pod, policy).next().is_some()
}

/// The pod's volumes that its machine can still write to after they were detached, with their drivers.
fn volumes_of_pod<'a>(
    objects: &'a Objects,
    namespace: &str,
    pod: &'a Value,
    policy: &'a Policy,
) -> impl Iterator<Item = (String, String)> + use<'a> {
    let volumes = move || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let read_only = move |claim: &str| {
        let source = volumes().map(|v| &v["persistentVolumeClaim"]).find(|source| source["claimName"] == claim);
        source.is_some_and(|source| source["readOnly"] == true)
    };
    let held = volumes_of(objects, namespace, pod).into_iter().filter(move |v| !v.is_local() && !read_only(&v.claim));
    let persistent = held.filter_map(|v| {
        let volume = v.volume?;
        let driver = unrevoked_driver(objects, &volume, policy)?;
        Some((volume, driver))
    });
    let inline = volumes().filter_map(|volume| {
        let kind = NETWORK_KINDS.into_iter().find(|kind| volume.get(kind).is_some())?;
        (volume[kind]["readOnly"] != true)
            .then(|| (volume["name"].as_str().unwrap_or_default().to_owned(), kind.to_owned()))
    });
    persistent.chain(inline)
}

/// The driver of a PersistentVolume that a machine can still write to after it was detached; none for other volumes.
fn unrevoked_driver(objects: &Objects, name: &str, policy: &Policy) -> Option<String> {
    let volume = objects.raw(&ObjectKey::new("PersistentVolume", "", name));
    let spec = volume.map_or(&Value::Null, |volume| &volume["spec"]);
    let mut modes = spec["accessModes"].as_array().into_iter().flatten().peekable();
    let only_read = modes.peek().is_some() && modes.all(|mode| mode == "ReadOnlyMany");
    let kind = NETWORK_KINDS.into_iter().find(|kind| spec.get(kind).is_some());
    let driver = objects.volume(name).and_then(csi_driver).or(kind).unwrap_or("unknown driver");
    let file = spec["csi"]["volumeHandle"].as_str().is_some_and(|handle| handle.starts_with("file:"));
    let revokes = policy.detach_revokes.contains(driver)
        || (detach_revokes(driver) == DetachRevokes::Yes && !(driver == "csi.vsphere.vmware.com" && file));
    (!only_read && !revokes).then(|| driver.to_owned())
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
