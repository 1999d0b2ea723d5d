//! Compiled volumes, claims, classes and CSI objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use stead_semantics::labels::{Labels, Selector};
use stead_semantics::node_selector::{self, LazyNodeSelector};
use stead_semantics::quantity::Quantity;

use crate::csi_migration;
use crate::error::{FieldError, FieldResult, InField, InputError, ObjectName};
use crate::resources;

const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A claim, compiled.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The UID.
    pub uid: Box<str>,
    /// The storage class; empty for none.
    pub class: Box<str>,
    /// The volume (`spec.volumeName`).
    pub volume: Option<Box<str>>,
    /// Whether binding has been completed.
    pub bound: bool,
    /// Whether its volume was deleted (phase Lost).
    pub lost: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The node that a volume is being provisioned for.
    pub selected_node: Option<Box<str>>,
    /// The requested size.
    pub request: Option<Quantity>,
    /// The selector of volumes.
    pub selector: Option<Selector>,
    /// The access modes.
    pub access_modes: Vec<Box<str>>,
    /// Whether the volume mode is `Block`.
    pub block: bool,
    /// The volume attributes class.
    pub attributes_class: Box<str>,
    /// The UID of the owning pod, for ephemeral volumes.
    pub controller_uid: Option<Box<str>>,
}

/// A volume, compiled.
#[derive(Debug, Clone)]
pub struct PersistentVolume {
    /// The name.
    pub name: Box<str>,
    /// The labels.
    pub labels: Labels,
    /// The storage class.
    pub class: Box<str>,
    /// Its size.
    pub capacity: Option<Quantity>,
    /// The access modes.
    pub access_modes: Vec<Box<str>>,
    /// Whether the volume mode is `Block`.
    pub block: bool,
    /// The volume attributes class.
    pub attributes_class: Box<str>,
    /// Whether its phase is `Available`.
    pub available: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The claim that it is bound to or reserved for: namespace, name, UID.
    pub claim: Option<(Box<str>, Box<str>, Box<str>)>,
    /// The nodes that can use it.
    pub nodes: Option<LazyNodeSelector>,
    /// The driver that attaches it, with its handle.
    pub source: VolumeSource,
}

/// How a volume is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    /// By a CSI driver, with the volume's handle.
    Csi(Box<str>, Box<str>),
    /// By the CSI driver that replaced an in-tree driver, with the handle.
    Migrated(&'static str, Box<str>),
    /// By a driver that does not count towards a limit.
    Other,
}

/// Labels that a node must have, each with its allowed values.
pub type TopologyTerm = Vec<(Box<str>, Vec<Box<str>>)>;

/// A storage class, compiled.
#[derive(Debug, Clone)]
pub struct StorageClass {
    /// The name.
    pub name: Box<str>,
    /// The provisioner.
    pub provisioner: Box<str>,
    /// Whether the binding mode is `WaitForFirstConsumer`; none if the class has no binding mode.
    pub waits: Option<bool>,
    /// The allowed topologies, of which one must match. Empty: no restriction.
    pub topologies: Vec<TopologyTerm>,
}

/// A CSIStorageCapacity, compiled.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// The storage class.
    pub class: Box<str>,
    /// The nodes that can access it; none if no node can.
    pub nodes: Option<Selector>,
    /// The largest volume that can be provisioned.
    pub limit: Option<i64>,
}

/// A VolumeAttachment, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) node: Box<str>,
    pub(crate) driver: Box<str>,
    pub(crate) volume: Box<str>,
}

/// All storage objects.
#[derive(Debug, Clone, Default)]
pub struct StorageState {
    pub(crate) claims: BTreeMap<(Box<str>, Box<str>), Arc<Claim>>,
    pub(crate) volumes: BTreeMap<Box<str>, Arc<PersistentVolume>>,
    pub(crate) classes: BTreeMap<Box<str>, Arc<StorageClass>>,
    /// The CSINodes, by name.
    pub(crate) csi_nodes: BTreeMap<Box<str>, CsiNode>,
    /// Whether a driver publishes its capacity.
    pub(crate) tracks_capacity: BTreeMap<Box<str>, bool>,
    pub(crate) capacities: BTreeMap<(Box<str>, Box<str>), Arc<Capacity>>,
    /// Attachments by name.
    pub(crate) attachments: BTreeMap<Box<str>, Attachment>,
}

impl StorageState {
    /// The claim with this name.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(&(namespace.into(), name.into())).map(|c| &**c)
    }

    /// The volume with this name.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.get(name).map(|v| &**v)
    }

    /// The largest volume of a class that can still be provisioned for a node with these labels.
    pub fn room(&self, class: &str, labels: &Labels) -> Option<i64> {
        let reach = |c: &&Arc<Capacity>| *c.class == *class && c.nodes.as_ref().is_some_and(|n| n.matches(labels));
        self.capacities.values().filter(reach).filter_map(|c| c.limit).max()
    }

    /// Whether a driver publishes its capacity.
    pub fn publishes_room(&self, driver: &str) -> bool {
        self.tracks_capacity.get(driver) == Some(&true)
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name).map(|c| &**c)
    }
}

fn text(s: Option<&String>) -> Box<str> {
    s.map(String::as_str).unwrap_or_default().into()
}

fn boxed(list: Option<&Vec<String>>) -> Vec<Box<str>> {
    list.into_iter().flatten().map(|s| s.as_str().into()).collect()
}

impl Claim {
    pub(crate) fn compile(c: &core::PersistentVolumeClaim) -> Result<Claim, InputError> {
        let m = &c.metadata;
        let name = m.name.as_deref().unwrap_or_default();
        let namespace = m.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let inner = || -> FieldResult<Claim> {
            required(name)?;
            let spec = c.spec.clone().unwrap_or_default();
            let annotation = |key: &str| m.annotations.as_ref().and_then(|a| a.get(key));
            let volume = spec.volume_name.as_deref().filter(|v| !v.is_empty()).map(Into::into);
            let phase = c.status.as_ref().and_then(|s| s.phase.as_deref());
            let requests = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
            Ok(Claim {
                namespace: namespace.into(),
                name: name.into(),
                uid: text(m.uid.as_ref()),
                class: text(annotation(BETA_CLASS).or(spec.storage_class_name.as_ref())),
                bound: volume.is_some() && annotation(BIND_COMPLETED).is_some(),
                volume,
                lost: phase == Some("Lost"),
                deleting: m.deletion_timestamp.is_some(),
                selected_node: annotation(SELECTED_NODE).map(|n| n.as_str().into()),
                request: resources::storage(requests, "spec.resources.requests")?,
                selector: match &spec.selector {
                    Some(s) => Some(Selector::from_label_selector(Some(s)).in_field("spec.selector")?),
                    None => None,
                },
                access_modes: boxed(spec.access_modes.as_ref()),
                block: spec.volume_mode.as_deref() == Some("Block"),
                attributes_class: text(spec.volume_attributes_class_name.as_ref()),
                controller_uid: m
                    .owner_references
                    .iter()
                    .flatten()
                    .find(|o| o.controller == Some(true))
                    .map(|o| o.uid.as_str().into()),
            })
        };
        inner().map_err(|e| e.of(ObjectName("persistentvolumeclaim", namespace, name)))
    }
}

fn required(name: &str) -> FieldResult<()> {
    if name.is_empty() { Err(FieldError::new("metadata.name", "Required value")) } else { Ok(()) }
}

impl PersistentVolume {
    pub(crate) fn compile(v: &core::PersistentVolume) -> Result<PersistentVolume, InputError> {
        let m = &v.metadata;
        let name = m.name.as_deref().unwrap_or_default();
        let inner = || -> FieldResult<PersistentVolume> {
            required(name)?;
            let spec = v.spec.clone().unwrap_or_default();
            let beta = m.annotations.as_ref().and_then(|a| a.get(BETA_CLASS));
            let nodes = spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
            Ok(PersistentVolume {
                name: name.into(),
                labels: m.labels.clone().unwrap_or_default(),
                class: text(beta.or(spec.storage_class_name.as_ref())),
                capacity: resources::storage(spec.capacity.as_ref(), "spec.capacity")?,
                access_modes: boxed(spec.access_modes.as_ref()),
                block: spec.volume_mode.as_deref() == Some("Block"),
                attributes_class: text(spec.volume_attributes_class_name.as_ref()),
                available: v.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available"),
                deleting: m.deletion_timestamp.is_some(),
                claim: spec
                    .claim_ref
                    .as_ref()
                    .map(|r| (text(r.namespace.as_ref()), text(r.name.as_ref()), text(r.uid.as_ref()))),
                nodes: match nodes {
                    Some(n) => {
                        node_selector::validate(n).in_field("spec.nodeAffinity.required")?;
                        Some(LazyNodeSelector::compile(n))
                    }
                    None => None,
                },
                source: csi_migration::source(&spec, m.labels.as_ref()),
            })
        };
        inner().map_err(|e| e.of(ObjectName("persistentvolume", "", name)))
    }

    /// Whether a node with these labels can use it. As in Kubernetes the node's name is not compared.
    pub fn usable_on(&self, labels: &Labels) -> bool {
        self.nodes.as_ref().is_none_or(|n| n.matches("", labels).unwrap_or(false))
    }

    /// Whether it is bound to or reserved for this claim.
    pub fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|(namespace, name, uid)| {
            *namespace == claim.namespace && *name == claim.name && (uid.is_empty() || *uid == claim.uid)
        })
    }
}

impl StorageClass {
    pub(crate) fn compile(c: &storage::StorageClass) -> Result<StorageClass, InputError> {
        let name = c.metadata.name.as_deref().unwrap_or_default();
        let inner = || -> FieldResult<StorageClass> {
            required(name)?;
            let waits = match c.volume_binding_mode.as_deref() {
                None => None,
                Some("WaitForFirstConsumer") => Some(true),
                Some("Immediate") => Some(false),
                Some(other) => {
                    return Err(FieldError::new(
                        "volumeBindingMode",
                        format!(
                            "Unsupported value: {other:?}: supported values: \"Immediate\", \"WaitForFirstConsumer\""
                        ),
                    ));
                }
            };
            let topologies = c.allowed_topologies.iter().flatten().map(|term| {
                let labels = term.match_label_expressions.iter().flatten();
                labels.map(|e| (e.key.as_str().into(), boxed(Some(&e.values)))).collect()
            });
            Ok(StorageClass {
                name: name.into(),
                provisioner: c.provisioner.as_str().into(),
                waits,
                topologies: topologies.collect(),
            })
        };
        inner().map_err(|e| e.of(ObjectName("storageclass", "", name)))
    }

    /// Whether a volume can be provisioned for a node with these labels.
    pub fn allows(&self, labels: &Labels) -> bool {
        self.topologies.is_empty()
            || self.topologies.iter().any(|term| {
                !term.is_empty()
                    && term
                        .iter()
                        .all(|(key, values)| labels.get(&**key).is_some_and(|v| values.iter().any(|x| **x == **v)))
            })
    }
}

impl Capacity {
    pub(crate) fn compile(c: &storage::CSIStorageCapacity) -> Result<Capacity, InputError> {
        let name = c.metadata.name.as_deref().unwrap_or_default();
        let namespace = c.metadata.namespace.as_deref().unwrap_or_default();
        let inner = || -> FieldResult<Capacity> {
            required(name)?;
            let limit = match (&c.maximum_volume_size, &c.capacity) {
                (Some(q), _) => Some(resources::quantity(q, "maximumVolumeSize")?),
                (None, Some(q)) => Some(resources::quantity(q, "capacity")?),
                (None, None) => None,
            };
            Ok(Capacity {
                class: c.storage_class_name.as_str().into(),
                nodes: match &c.node_topology {
                    Some(s) => Some(Selector::from_label_selector(Some(s)).in_field("nodeTopology")?),
                    None => None,
                },
                limit: limit.map(|q| q.value()),
            })
        };
        inner().map_err(|e| e.of(ObjectName("csistoragecapacity", namespace, name)))
    }
}

/// A CSINode, compiled.
#[derive(Debug, Clone)]
pub(crate) struct CsiNode {
    /// How many volumes a driver can attach, by driver.
    pub(crate) limits: BTreeMap<Box<str>, i64>,
    /// The in-tree drivers that the kubelet has migrated to CSI.
    pub(crate) migrated: Vec<Box<str>>,
}

impl CsiNode {
    pub(crate) fn compile(c: &storage::CSINode) -> CsiNode {
        let limit =
            |d: &storage::CSINodeDriver| Some((d.name.as_str().into(), i64::from(d.allocatable.as_ref()?.count?)));
        let migrated = c.metadata.annotations.as_ref().and_then(|a| a.get(MIGRATED_PLUGINS));
        CsiNode {
            limits: c.spec.drivers.iter().filter_map(limit).collect(),
            migrated: migrated.into_iter().flat_map(|list| list.split(',')).map(Into::into).collect(),
        }
    }
}
