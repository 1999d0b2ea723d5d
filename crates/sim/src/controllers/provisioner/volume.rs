//! The PersistentVolume that a driver creates.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NFSVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_semantics::{Format, Quantity};

use super::DELETION_PROTECTION;
use super::topology::Segments;
use crate::step::Context;
use crate::volumes::{PROVISIONED_BY, SELECTED_NODE, annotation};

/// Annotations of external-provisioner about a secret that the deletion needs; empty without one.
const DELETION_SECRET: [&str; 2] = [
    "volume.kubernetes.io/provisioner-deletion-secret-name",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace",
];

/// The volume for a claim.
pub(super) fn build(
    cx: &Context<'_>,
    driver: &str,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    name: &str,
    segments: Option<Segments>,
) -> PersistentVolume {
    let sidecars = cx.settings.storage.sidecars;
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).cloned();
    // The driver answers with a number of bytes.
    let bytes = |size: RawQuantity| match Quantity::parse(&size.0) {
        Ok(amount) if sidecars => RawQuantity(Quantity::from_value(amount.value(), Format::BinarySI).to_string()),
        _ => size,
    };
    let mut volume = PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(PROVISIONED_BY.to_owned(), driver.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: size.map(|size| [("storage".to_owned(), bytes(size))].into()),
            access_modes: spec.access_modes,
            volume_mode: spec.volume_mode,
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or_else(|| Some("Delete".into())),
            storage_class_name: class.metadata.name.clone(),
            mount_options: class.mount_options.clone(),
            claim_ref: Some(reference(claim, sidecars)),
            node_affinity: segments.map(affinity),
            volume_attributes_class_name: spec.volume_attributes_class_name.filter(|_| cx.settings.since(34)),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    };
    let source = volume.spec.get_or_insert_default();
    if !sidecars || is_csi_driver(cx, driver, claim) {
        let parameter = |key: &str| class.parameters.as_ref().and_then(|all| all.get(key)).cloned();
        source.csi = Some(CSIPersistentVolumeSource {
            driver: driver.to_owned(),
            volume_handle: name.to_owned(),
            fs_type: parameter("csi.storage.k8s.io/fstype").or_else(|| parameter("fstype")).filter(|_| sidecars),
            ..CSIPersistentVolumeSource::default()
        });
    } else {
        // A provisioner that is no CSI driver makes directories on a server or a node.
        let (server, path) = (driver.to_owned(), format!("/{name}"));
        source.nfs = Some(NFSVolumeSource { server, path, read_only: None });
    }
    if sidecars && source.csi.is_some() {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        DELETION_SECRET.into_iter().for_each(|key| drop(annotations.insert(key.into(), String::new())));
        if cx.settings.since(31) {
            volume.metadata.finalizers = Some(vec![DELETION_PROTECTION.into()]);
        }
    }
    volume
}

fn is_csi_driver(cx: &Context<'_>, driver: &str, claim: &PersistentVolumeClaim) -> bool {
    let registered = |node: &str| {
        let node = cx.store.get::<CSINode>("", node);
        node.is_some_and(|node| node.spec.drivers.iter().any(|other| other.name == driver))
    };
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    cx.store.get::<CSIDriver>("", driver).is_some() || selected.is_some_and(registered)
}

fn reference(claim: &PersistentVolumeClaim, with_version: bool) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone().filter(|_| with_version),
        ..ObjectReference::default()
    }
}

/// The node affinity of a volume that is accessible from one segment (`GenerateVolumeNodeAffinity`).
fn affinity(segments: Segments) -> VolumeNodeAffinity {
    let expressions = segments.into_iter().map(|(key, value)| NodeSelectorRequirement {
        key,
        operator: "In".into(),
        values: Some(vec![value]),
    });
    let term = NodeSelectorTerm { match_expressions: Some(expressions.collect()), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}
