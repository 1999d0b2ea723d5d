//! Which volumes a pod uses, and how they are attached to nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Volume};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use serde_json::Value;

use crate::key::ObjectKey;
use crate::node::NodeView;
use crate::objects::Objects;
use crate::pod::PodView;
use crate::times::{created, deletion, near};

/// A claim of a pod and the volume behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    /// The claim, in the pod's namespace.
    pub claim: String,
    /// The PersistentVolume; none while the claim does not exist or is not bound.
    pub volume: Option<String>,
    /// The CSI driver, where the volume has one.
    pub driver: Option<String>,
    /// Whether the pod only reads it.
    pub read_only: bool,
    /// Whether several nodes may use it at a time (ReadWriteMany, ReadOnlyMany).
    pub shared: bool,
    /// Whether it has to be attached to a node before it can be used there.
    pub needs_attach: bool,
    /// Its name in a node's `volumesInUse` and `volumesAttached`, where it has to be attached.
    pub unique_name: Option<String>,
    /// Its attachments, those that are being detached included.
    pub attachments: Vec<VolumeAttachmentView>,
    /// The label values that its node affinity requires; empty where every node can use it.
    pub node_affinity: Vec<(String, Vec<String>)>,
    /// Whether it is a directory or disk of a node.
    pub node_local: bool,
}

impl PodVolume {
    /// The name to show: of the volume, or of the claim while there is none.
    pub fn name(&self) -> &str {
        self.volume.as_deref().unwrap_or(&self.claim)
    }

    /// Whether it exists on one node only, because of its type or its affinity to a host.
    pub fn is_local(&self) -> bool {
        let host = |(key, values): &(String, Vec<String>)| {
            values.len() == 1
                && (key == "kubernetes.io/hostname" || key.ends_with("/hostname") || key.ends_with("/node"))
        };
        self.node_local || self.node_affinity.iter().any(host)
    }

    /// Whether one node at a time can use it, and has to have it attached.
    pub fn is_exclusive(&self) -> bool {
        self.needs_attach && !self.shared
    }

    /// Whether its node affinity allows a node.
    pub fn allows(&self, node: NodeView<'_>) -> bool {
        let has = |(key, values): &(String, Vec<String>)| {
            node.label(key).is_some_and(|value| values.iter().any(|allowed| allowed == value))
        };
        self.node_affinity.iter().all(has)
    }

    /// The nodes that its node affinity allows.
    pub fn nodes<'a>(&self, objects: &'a Objects) -> Vec<&'a str> {
        objects.nodes().filter(|node| self.allows(*node)).map(NodeView::name).collect()
    }

    /// Whether a Node reports that it has the volume attached or mounted.
    pub fn is_on(&self, node: NodeView<'_>) -> bool {
        self.unique_name.as_deref().is_some_and(|unique| node.has_volume(unique))
    }
}

/// A VolumeAttachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachmentView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The node.
    pub node: String,
    /// The PersistentVolume; none for an inline volume.
    pub volume: Option<String>,
    /// Whether the driver has reported that the volume is attached.
    pub attached: bool,
    /// When the attachment was requested.
    pub created: Option<Timestamp>,
    /// When the driver last wrote the status; known where `metadata.managedFields` was read.
    pub status_written: Option<Timestamp>,
    /// Since when it is being detached.
    pub detaching_since: Option<Timestamp>,
    /// Why attaching failed, in the driver's words.
    pub attach_error: Option<String>,
    /// Why detaching failed, in the driver's words.
    pub detach_error: Option<String>,
}

impl VolumeAttachmentView {
    /// What an attachment says.
    pub fn of(attachment: &VolumeAttachment) -> VolumeAttachmentView {
        let (metadata, status) = (&attachment.metadata, attachment.status.as_ref());
        let by_status = metadata.managed_fields.iter().flatten();
        let by_status = by_status.filter(|entry| entry.subresource.as_deref() == Some("status"));
        VolumeAttachmentView {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            node: attachment.spec.node_name.clone(),
            volume: attachment.spec.source.persistent_volume_name.clone(),
            attached: status.is_some_and(|status| status.attached),
            created: created(metadata),
            status_written: by_status.filter_map(|entry| near(entry.time.as_ref()?.0)).max(),
            detaching_since: deletion(metadata).map(|deletion| deletion.due),
            attach_error: status.and_then(|status| status.attach_error.as_ref()?.message.clone()),
            detach_error: status.and_then(|status| status.detach_error.as_ref()?.message.clone()),
        }
    }
}

/// The claims of a pod with the volumes behind them, in the order of the pod's volumes.
pub fn pod_volumes(objects: &Objects, pod: PodView<'_>) -> Vec<PodVolume> {
    let claims = pod.volumes().iter().filter_map(|volume| claim_of(volume, pod.name()));
    claims.map(|(claim, read_only)| pod_volume(objects, pod.namespace(), claim, read_only)).collect()
}

/// The claim behind a volume of a pod, and whether the pod only reads it. A generic ephemeral volume has a claim of its own
/// (`VolumeClaimName` in `k8s.io/component-helpers/storage/ephemeral`).
pub fn claim_of(volume: &Volume, pod: &str) -> Option<(String, bool)> {
    match &volume.persistent_volume_claim {
        Some(claim) => Some((claim.claim_name.clone(), claim.read_only == Some(true))),
        None => volume.ephemeral.as_ref().map(|_| (format!("{pod}-{}", volume.name), false)),
    }
}

fn pod_volume(objects: &Objects, namespace: &str, claim: String, read_only: bool) -> PodVolume {
    let bound = objects.find::<PersistentVolumeClaim>(namespace, &claim);
    let name = bound.and_then(|bound| bound.spec.as_ref()?.volume_name.clone()).filter(|name| !name.is_empty());
    let volume = name.as_ref().and_then(|name| objects.volume(name));
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    let driver = volume.and_then(csi_driver).map(str::to_owned);
    let by_driver = |driver: &String| {
        let known = objects.find::<CSIDriver>("", driver);
        // The default of attachRequired, and what is assumed of a driver that is not registered.
        known.and_then(|driver| driver.spec.attach_required).unwrap_or(true)
    };
    let needs_attach = driver.as_ref().is_some_and(by_driver);
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    PodVolume {
        attachments: name.as_ref().map(|name| attachments_of(objects, name)).unwrap_or_default(),
        shared: modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany"),
        node_affinity: spec.map(node_affinity).unwrap_or_default(),
        node_local: spec.is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some()),
        unique_name: volume.filter(|_| needs_attach).and_then(unique_volume_name),
        claim,
        read_only,
        volume: name,
        driver,
        needs_attach,
    }
}

fn attachments_of(objects: &Objects, volume: &str) -> Vec<VolumeAttachmentView> {
    attachments(objects, |raw| raw["spec"]["source"]["persistentVolumeName"] == volume)
}

/// The VolumeAttachments of a node.
pub fn attachments_on(objects: &Objects, node: &str) -> Vec<VolumeAttachmentView> {
    attachments(objects, |raw| raw["spec"]["nodeName"] == node)
}

/// The VolumeAttachments for which a check of their JSON holds: only these are parsed.
fn attachments(objects: &Objects, check: impl Fn(&Value) -> bool) -> Vec<VolumeAttachmentView> {
    let all = objects.of_kind("VolumeAttachment").filter(|object| check(object.raw()));
    all.filter_map(|object| object.typed().ok()).map(VolumeAttachmentView::of).collect()
}

/// The CSI driver of a PersistentVolume. Kubernetes once had drivers of its own; such a volume keeps its form, and
/// controllers and kubelets treat it as one of the driver that took over (`k8s.io/csi-translation-lib`).
pub fn csi_driver(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    if let Some(csi) = &spec.csi {
        return Some(&csi.driver);
    }
    migrated(spec).map(|(driver, _)| driver)
}

/// The driver that took over a volume of a former in-tree driver, and the disk's name there.
fn migrated(spec: &PersistentVolumeSpec) -> Option<(&'static str, &str)> {
    let aws = spec.aws_elastic_block_store.as_ref().map(|disk| ("ebs.csi.aws.com", disk.volume_id.as_str()));
    let azure = spec.azure_disk.as_ref().map(|disk| ("disk.csi.azure.com", disk.disk_uri.as_str()));
    let cinder = spec.cinder.as_ref().map(|disk| ("cinder.csi.openstack.org", disk.volume_id.as_str()));
    let gce = spec.gce_persistent_disk.as_ref().map(|disk| ("pd.csi.storage.gke.io", disk.pd_name.as_str()));
    let portworx = spec.portworx_volume.as_ref().map(|disk| ("pxd.portworx.com", disk.volume_id.as_str()));
    let vsphere = spec.vsphere_volume.as_ref().map(|disk| ("csi.vsphere.vmware.com", disk.volume_path.as_str()));
    aws.or(azure).or(cinder).or(gce).or(portworx).or(vsphere)
}

/// The name of a PersistentVolume in a node's `volumesInUse` and `volumesAttached`
/// (`GetUniqueVolumeNameFromSpec` in `pkg/volume/util`).
pub fn unique_volume_name(volume: &PersistentVolume) -> Option<String> {
    let spec = volume.spec.as_ref()?;
    let handle = match &spec.csi {
        Some(csi) => csi.volume_handle.clone(),
        None => match migrated(spec)? {
            // aws://ZONE/VOLUME
            ("ebs.csi.aws.com", disk) => disk.rsplit('/').next()?.to_owned(),
            ("pd.csi.storage.gke.io", disk) => gce_handle(volume, disk),
            (_, disk) => disk.to_owned(),
        },
    };
    Some(format!("kubernetes.io/csi/{}^{handle}", csi_driver(volume)?))
}

/// The handle of a Google persistent disk, which contains its zone, or the region of its zones.
fn gce_handle(volume: &PersistentVolume, disk: &str) -> String {
    let labels = volume.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).filter(|zone| !zone.is_empty());
    let zones = label("failure-domain.beta.kubernetes.io/zone").or(label("topology.kubernetes.io/zone"));
    let zones = zones.map_or("UNSPECIFIED", String::as_str);
    let place = match zones.split_once("__") {
        None => format!("zones/{zones}"),
        Some((zone, _)) => format!("regions/{}", zone.rsplit_once('-').map_or(zone, |(region, _)| region)),
    };
    format!("projects/UNSPECIFIED/{place}/disks/{disk}")
}

/// The values that a volume's node affinity requires, where it is one term of plain values.
fn node_affinity(spec: &PersistentVolumeSpec) -> Vec<(String, Vec<String>)> {
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let Some([term]) = required.map(|required| required.node_selector_terms.as_slice()) else { return Vec::new() };
    let expressions = term.match_expressions.iter().flatten().filter(|e| e.operator == "In");
    expressions.map(|e| (e.key.clone(), e.values.clone().unwrap_or_default())).collect()
}

impl Objects {
    /// The PersistentVolume of this name; none where it was not read or is malformed.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.get(&ObjectKey::cluster("PersistentVolume", name)).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(spec: Value, labels: Value) -> PersistentVolume {
        serde_json::from_value(json!({ "metadata": { "name": "v", "labels": labels }, "spec": spec }))
            .expect("a volume")
    }

    #[test]
    fn get_unique_volume_name_from_spec() {
        let zone = |zone: &str| json!({ "topology.kubernetes.io/zone": zone });
        for (spec, labels, expected) in [
            (json!({ "csi": { "driver": "d", "volumeHandle": "h" } }), json!({}), Some("kubernetes.io/csi/d^h")),
            (
                json!({ "awsElasticBlockStore": { "volumeID": "aws://eu-1a/vol-1" } }),
                json!({}),
                Some("kubernetes.io/csi/ebs.csi.aws.com^vol-1"),
            ),
            (
                json!({ "cinder": { "volumeID": "vol-1" } }),
                json!({}),
                Some("kubernetes.io/csi/cinder.csi.openstack.org^vol-1"),
            ),
            (
                json!({ "gcePersistentDisk": { "pdName": "disk" } }),
                zone("eu-1-a"),
                Some("kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/eu-1-a/disks/disk"),
            ),
            (
                json!({ "gcePersistentDisk": { "pdName": "disk" } }),
                zone("eu-1-a__eu-1-b"),
                Some("kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/regions/eu-1/disks/disk"),
            ),
            (
                json!({ "gcePersistentDisk": { "pdName": "disk" } }),
                json!({}),
                Some("kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
            ),
            (json!({ "hostPath": { "path": "/x" } }), json!({}), None),
        ] {
            assert_eq!(unique_volume_name(&volume(spec.clone(), labels)).as_deref(), expected, "{spec}");
        }
    }

    fn objects(volume: Value, driver: Value) -> Objects {
        Objects::from_items([
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n" }, "spec": { "volumes": [
                { "name": "config", "configMap": { "name": "c" } },
                { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
                { "name": "scratch", "ephemeral": {} },
            ] } }),
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": "n" },
                "spec": { "volumeName": "v" } }),
            json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": volume }),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "d" }, "spec": driver }),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "at" },
                "spec": { "attacher": "d", "nodeName": "a", "source": { "persistentVolumeName": "v" } },
                "status": { "attached": true, "detachError": { "message": "busy" } } }),
        ])
    }

    #[test]
    fn the_volumes_of_a_pod() {
        let csi = json!({ "driver": "d", "volumeHandle": "h" });
        let on_host = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] }] } });
        for (volume, driver, needs_attach, shared, local) in [
            (json!({ "csi": csi, "accessModes": ["ReadWriteOnce"] }), json!({}), true, false, false),
            (json!({ "csi": csi, "accessModes": ["ReadWriteMany"] }), json!({}), true, true, false),
            (json!({ "csi": csi }), json!({ "attachRequired": false }), false, false, false),
            (json!({ "csi": { "driver": "unregistered", "volumeHandle": "h" } }), json!({}), true, false, false),
            (json!({ "csi": csi, "nodeAffinity": on_host }), json!({}), true, false, true),
            (json!({ "hostPath": { "path": "/x" } }), json!({}), false, false, true),
            (json!({ "local": { "path": "/mnt/ssd" } }), json!({}), false, false, true),
            (json!({ "nfs": { "server": "s", "path": "/" } }), json!({}), false, false, false),
        ] {
            let objects = objects(volume.clone(), driver);
            let pod = objects.pods().next().expect("a pod");
            let volumes = pod_volumes(&objects, pod);
            let [data, scratch] = volumes.as_slice() else { panic!("{volumes:?}") };
            assert_eq!((data.name(), data.claim.as_str()), ("v", "data"));
            assert_eq!((data.needs_attach, data.shared, data.is_local()), (needs_attach, shared, local), "{volume}");
            assert_eq!(data.unique_name.is_some(), needs_attach, "{volume}");
            let attachment = &data.attachments[0];
            assert_eq!((attachment.node.as_str(), attachment.attached), ("a", true));
            assert_eq!(attachment.detach_error.as_deref(), Some("busy"));
            // The claim of a generic ephemeral volume, which is not there yet.
            assert_eq!((scratch.claim.as_str(), scratch.volume.as_deref()), ("p-scratch", None));
            assert_eq!(attachments_on(&objects, "a"), data.attachments);
            assert_eq!(attachments_on(&objects, "b"), []);
        }
    }
}
