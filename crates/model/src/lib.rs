//! Kubernetes objects: keys, kinds, typed views, and the rules that several crates need.
//!
//! [`Objects`] holds a cluster's objects as raw JSON, as a value or as text ([`UnreadObject`]). An object is parsed into its Kubernetes type when it is first asked
//! for, and at most once; a malformed object is an error that names the object and the field for whoever asked about it,
//! and a warning ([`Objects::warnings`]) for everybody else. [`KINDS`] is the one table of kinds.
//!
//! On top of the types there are views of what the other crates ask about ([`PodView`], [`NodeView`] and [`NodeHealth`],
//! [`WorkloadView`], [`EventView`]) and rules that mirror Kubernetes controllers: who controls an object
//! ([`controller_of`]), StatefulSet ordinals and claims ([`stateful_set`]), tolerations ([`min_toleration_time`]), who
//! recreates a pod ([`PodController`]), which volumes a pod uses and how they are attached ([`pod_volumes`]), and how the
//! resources of the OpenStack operators use a Topology ([`topology_references`]).
//!
//! This crate knows no client, no clock (callers pass the time) and no files, and it predicts nothing.

mod component_flags;
mod error;
mod event;
pub mod fork;
mod json;
mod key;
mod kinds;
mod kubernetes_version;
mod node;
mod objects;
mod openshift;
mod openstack;
mod outline;
mod owner;
mod pod;
mod reader;
mod recreation;
pub mod stateful_set;
pub mod times;
mod tokenizer;
mod tokens;
mod tolerations;
mod topology_use;
mod typed;
mod unread;
mod volumes;
mod workload;
mod workload_outline;

pub use component_flags::{Component, ComponentFlag, component_flags};
pub use error::ModelError;
pub use event::{Event, EventView};
pub use key::ObjectKey;
pub use kinds::{KINDS, Kind, placement_kinds};
pub use kubernetes_version::{ClusterVersion, KubernetesVersion, NotAVersion};
pub use node::{
    BootId, HeartbeatClock, LeaseView, NODE_LEASES, NOT_READY, NodeHealth, NodeView, OUT_OF_SERVICE, Readiness,
    SHUTDOWN, UNREACHABLE,
};
pub use objects::{Object, ObjectRef, Objects};
pub use openshift::{NODE_CONFIG, OPENSHIFT_SETTINGS, SchedulerConfig, SchedulerConfigSpec, is_openshift_setting};
pub use openstack::{
    Condition, ConditionedStatus, DbPurge, EndpointTls, ExtraMounts, ExtraVolumes, Glance, GlanceApi,
    GlanceApiOverride, GlanceApiSpec, GlanceApiStatus, GlanceSection, GlanceSpec, GlanceStatus, GlanceTls, ImageCache,
    MetadataOverride, OpenStackControlPlane, OpenStackControlPlaneSpec, PasswordSelectors, ProbeOverrides,
    ServiceOverride, Storage, TlsSecret, Topology, TopologyCondition, TopologyRef, TopologySpec, TopologyStatus,
    reported_conditions,
};
pub use outline::PodOutline;
pub use owner::{controller_of, is_controlled_by, same_controller};
pub use pod::PodView;
pub use recreation::{NotRecreated, PodController, deployment_of, not_recreated, replacement_of, same_workload};
pub use tolerations::{TolerationTime, min_toleration_time};
pub use topology_use::{
    ALL_OPENSTACK_KINDS, FoundTopologyRef, TopologyFinalizer, applied_topology, is_openstack,
    is_openstack_intermediate, topology_references,
};
pub use typed::{ParsedJson, Typed, metadata_of, parse, parse_json, pod_template};
pub use unread::{ObjectText, TextPart, UnreadObject};
pub use volumes::{
    PodVolume, VolumeAttachmentView, attachments_on, claim_of, csi_driver, pod_volumes, unique_volume_name,
};
pub use workload::WorkloadView;
pub use workload_outline::WorkloadOutline;
