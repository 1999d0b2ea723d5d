//! In-tree volumes, and their handles in the CSI drivers that replaced the in-tree drivers.
//!
//! Mirrors the part of `k8s.io/csi-translation-lib` that NodeVolumeLimits uses.

use k8s_openapi::api::core::v1 as core;
use stead_semantics::labels::Labels;

use crate::status::CsiTranslationError;
use crate::storage::VolumeSource;

pub(crate) const AWS_EBS: &str = "ebs.csi.aws.com";
pub(crate) const GCE_PD: &str = "pd.csi.storage.gke.io";
pub(crate) const AZURE_DISK: &str = "disk.csi.azure.com";
pub(crate) const CINDER: &str = "cinder.csi.openstack.org";
pub(crate) const PORTWORX: &str = "pxd.portworx.com";

/// The CSI driver that replaced an in-tree provisioner.
pub(crate) fn driver(provisioner: &str) -> Option<&'static str> {
    Some(match provisioner {
        "kubernetes.io/aws-ebs" => AWS_EBS,
        "kubernetes.io/gce-pd" => GCE_PD,
        "kubernetes.io/azure-disk" => AZURE_DISK,
        "kubernetes.io/cinder" => CINDER,
        "kubernetes.io/portworx-volume" => PORTWORX,
        _ => return None,
    })
}

/// The driver that attaches a persistent volume. A volume that cannot be translated counts towards no limit.
pub(crate) fn source(spec: &core::PersistentVolumeSpec, labels: Option<&Labels>) -> VolumeSource {
    if let Some(s) = &spec.csi {
        return VolumeSource::Csi(s.driver.as_str().into(), s.volume_handle.as_str().into());
    }
    let translated = if let Some(s) = &spec.aws_elastic_block_store {
        ebs_handle(&s.volume_id).ok().map(|handle| (AWS_EBS, handle))
    } else if let Some(s) = &spec.gce_persistent_disk {
        gce_handle(&s.pd_name, labels).map(|handle| (GCE_PD, handle))
    } else if let Some(s) = &spec.azure_disk {
        s.kind.as_deref().is_none_or(is_managed).then(|| (AZURE_DISK, s.disk_uri.clone()))
    } else if let Some(s) = &spec.cinder {
        Some((CINDER, s.volume_id.clone()))
    } else {
        spec.portworx_volume.as_ref().map(|s| (PORTWORX, s.volume_id.clone()))
    };
    translated.map_or(VolumeSource::Other, |(driver, handle)| VolumeSource::Migrated(driver, handle.into()))
}

/// Whether an Azure disk has the only kind that CSI supports.
pub(crate) fn is_managed(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("Managed")
}

/// The handle of an AWS volume, whose ID can have the form `aws://ZONE/vol-…`.
pub(crate) fn ebs_handle(id: &str) -> Result<String, CsiTranslationError> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.into()) };
    let path = rest.find('/').map_or("", |at| &rest[at..]).trim_matches('/');
    if path.starts_with("vol-") && !path.contains('/') {
        return Ok(path.into());
    }
    Err(CsiTranslationError::AwsVolumeId(id.into()))
}

/// The handle of a GCE disk, with the zone or region from the volume's labels.
pub(crate) fn gce_handle(disk: &str, labels: Option<&Labels>) -> Option<String> {
    let label = |key: &str| labels.and_then(|l| l.get(key)).filter(|v| !v.is_empty());
    let zones = label("failure-domain.beta.kubernetes.io/zone").or_else(|| label("topology.kubernetes.io/zone"));
    let zones: Vec<&str> = zones.map_or("", String::as_str).split("__").collect();
    let place = match zones[..] {
        [""] => "zones/UNSPECIFIED".to_owned(),
        [zone] => format!("zones/{zone}"),
        [first, ..] => {
            let mut regions = zones.iter().map(|zone| gce_region(zone));
            let region = gce_region(first)?;
            if !regions.all(|r| r == Some(region)) {
                return None;
            }
            format!("regions/{region}")
        }
        [] => return None,
    };
    Some(format!("projects/UNSPECIFIED/{place}/disks/{disk}"))
}

/// The region of a zone such as `europe-west1-b`.
fn gce_region(zone: &str) -> Option<&str> {
    let (region, _) = zone.rsplit_once('-')?;
    (region.matches('-').count() == 1).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_volume_handles() {
        for (id, handle) in [
            ("vol-1", Some("vol-1")),
            ("anything", Some("anything")),
            ("aws://eu-west-1a/vol-1", Some("vol-1")),
            ("aws:///vol-1", Some("vol-1")),
            ("aws://eu-west-1a/disk", None),
            ("aws://vol-1", None),
        ] {
            assert_eq!(ebs_handle(id).ok().as_deref(), handle, "{id}");
        }
    }

    #[test]
    fn gce_disk_handles() {
        for (zone, handle) in [
            ("", Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d")),
            ("europe-west1-b", Some("projects/UNSPECIFIED/zones/europe-west1-b/disks/d")),
            ("europe-west1-b__europe-west1-c", Some("projects/UNSPECIFIED/regions/europe-west1/disks/d")),
            ("europe-west1-b__europe-west2-c", None),
            ("z1__z2", None),
        ] {
            let labels = Labels::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())]);
            assert_eq!(gce_handle("d", Some(&labels)).as_deref(), handle, "{zone}");
        }
    }
}
