//! A pod as the scheduler needs it, with compiled selectors and summed resources.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    self as core, PodAffinityTerm, PodSpec as RawSpec, Toleration, TopologySpreadConstraint,
};
use stead_model::KubernetesVersion;
use stead_semantics::labels::{Labels, Requirement, Selector};
use stead_semantics::node_selector::{self, PreferredNodeAffinity, RequiredNodeAffinity};
use stead_semantics::taints;

use crate::error::{FieldError, FieldResult, InField, InputError, ObjectName, Under};
use crate::profile::DEFAULT_SCHEDULER;
use crate::resources::{self, PodResources};
use crate::version_rules::VersionRules;

/// A pod's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within it.
    pub name: Arc<str>,
}

impl PodKey {
    /// The key of the pod with this namespace and name.
    pub fn new(namespace: &str, name: &str) -> PodKey {
        PodKey { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod, compiled.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// The UID; `uid-NAMESPACE-NAME` where the object has none.
    pub uid: Box<str>,
    /// The node that the pod is assigned to.
    pub node: Option<Box<str>>,
    /// The node that preemption nominated for the pod.
    pub nominated: Option<Box<str>>,
    /// Whether it has finished (Succeeded or Failed). Such a pod is not counted.
    pub finished: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it is being deleted because the scheduler preempted it.
    pub preempted: bool,
    /// When it started, in nanoseconds since 1970.
    pub started: Option<i128>,
    /// The names of its scheduling gates.
    pub gates: Vec<Box<str>>,
    /// Its scheduler, which selects the profile; none for the default one.
    pub scheduler: Option<Box<str>>,
    /// Everything else that placement depends on. Equal pods share it.
    pub spec: Arc<PodSpec>,
}

/// The part of a pod that placement depends on, without its identity and its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSpec {
    /// The namespace, which selectors and claims refer to.
    pub namespace: Arc<str>,
    /// The labels.
    pub labels: Labels,
    /// The priority; zero if none is set.
    pub priority: i32,
    /// Whether `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// The resources.
    pub resources: PodResources,
    /// The host ports of containers and sidecars.
    pub host_ports: Vec<HostPort>,
    /// The tolerations.
    pub tolerations: Tolerations,
    /// `nodeSelector` and required node affinity; none if the pod has neither.
    pub required_nodes: Option<RequiredNodeAffinity>,
    /// The nodes that the required affinity lists by name (`metadata.name In`), if every term does.
    pub named_nodes: NamedNodes,
    /// Preferred node affinity.
    pub preferred_nodes: Option<PreferredNodeAffinity>,
    /// The error in the preferred node affinity that kube-apiserver accepts and kube-scheduler fails on.
    pub preferred_fault: Option<Box<str>>,
    /// Required affinity to pods.
    pub affinity: Vec<AffinityTerm>,
    /// Required anti-affinity to pods.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Preferred affinity to pods, with weights.
    pub preferred_affinity: Vec<(AffinityTerm, i32)>,
    /// Preferred anti-affinity to pods, with weights.
    pub preferred_anti_affinity: Vec<(AffinityTerm, i32)>,
    /// The pod's own spread constraints. Without any, the cluster defaults apply.
    pub spread: Vec<SpreadConstraint>,
    /// The volumes that affect placement.
    pub volumes: Vec<Volume>,
    /// The images of containers, init containers and image volumes, normalized.
    pub images: Vec<Box<str>>,
    /// The number of containers whose images count.
    pub containers: usize,
    /// The features that a node has to declare.
    pub features: Vec<&'static str>,
    /// The owning controller.
    pub controller: Option<Owner>,
    /// The resource claims; these are not modelled.
    pub resource_claims: Vec<Box<str>>,
}

/// A port that a pod uses on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The address, `0.0.0.0` for all.
    pub ip: Box<str>,
    /// TCP, UDP or SCTP.
    pub protocol: Box<str>,
    /// The number.
    pub port: i32,
}

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The API group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// The nodes that a pod's required affinity lists by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedNodes {
    /// Some term lists no names: any node may match.
    Any,
    /// Every term lists names: only these nodes can match.
    Only(BTreeSet<Box<str>>),
}

/// A pod's tolerations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tolerations(pub Vec<Toleration>);

impl Tolerations {
    fn keys(&self) -> impl Iterator<Item = (Option<&str>, Option<&str>, Option<&str>, Option<&str>)> {
        self.0.iter().map(|t| (t.key.as_deref(), t.operator.as_deref(), t.value.as_deref(), t.effect.as_deref()))
    }
}

// `tolerationSeconds` matters to eviction, not to placement, so it is not compared.
impl Eq for Tolerations {}
impl Ord for Tolerations {
    fn cmp(&self, other: &Self) -> Ordering {
        self.keys().cmp(other.keys())
    }
}
impl PartialOrd for Tolerations {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A term of affinity or anti-affinity to pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// The listed namespaces, or the pod's own.
    pub namespaces: BTreeSet<Box<str>>,
    /// The selector of namespaces.
    pub namespace_selector: Selector,
    /// The selector of pods in these namespaces.
    pub selector: Selector,
    /// The node label whose values are the domains.
    pub topology_key: Box<str>,
}

/// A spread constraint, with its defaults.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadConstraint {
    /// By how many pods a domain may exceed the minimum.
    pub max_skew: i32,
    /// The node label whose values are the domains.
    pub topology_key: Box<str>,
    /// Whether it filters (`DoNotSchedule`) or only scores (`ScheduleAnyway`).
    pub hard: bool,
    /// The pods that are counted, with `matchLabelKeys` applied.
    pub selector: Selector,
    /// With fewer domains than this, the minimum is 0.
    pub min_domains: i32,
    /// Whether nodes that the pod's node affinity excludes are ignored.
    pub honor_affinity: bool,
    /// Whether nodes with untolerated taints are ignored.
    pub honor_taints: bool,
}

/// A volume of a pod, with the fields that affect placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volume {
    /// A claim by name.
    Claim(Box<str>),
    /// The claim of an ephemeral volume, by name.
    Ephemeral(Box<str>),
    /// A GCE disk.
    GcePersistentDisk {
        /// The disk's name.
        name: Box<str>,
        /// Whether it is read-only.
        read_only: bool,
    },
    /// An AWS volume.
    AwsElasticBlockStore(Box<str>),
    /// An Azure disk.
    AzureDisk {
        /// Its URI.
        uri: Box<str>,
        /// The volume's name in the pod.
        volume: Box<str>,
        /// `Shared`, `Dedicated` or `Managed`.
        kind: Box<str>,
    },
    /// A Cinder volume.
    Cinder(Box<str>),
    /// A Portworx volume.
    Portworx(Box<str>),
    /// An iSCSI target.
    Iscsi {
        /// The target's qualified name.
        iqn: Box<str>,
        /// Whether it is read-only.
        read_only: bool,
    },
    /// A RADOS block device.
    Rbd {
        /// The monitors.
        monitors: Vec<Box<str>>,
        /// The pool.
        pool: Box<str>,
        /// The image.
        image: Box<str>,
        /// Whether it is read-only.
        read_only: bool,
    },
}

impl Volume {
    /// The volume's claim, and whether the volume is ephemeral.
    pub fn claim(&self) -> Option<(&str, bool)> {
        match self {
            Volume::Claim(name) => Some((name, false)),
            Volume::Ephemeral(name) => Some((name, true)),
            _ => None,
        }
    }
}

impl Pod {
    /// Compiles an object, as kube-scheduler of this version reads it.
    pub fn compile(pod: &core::Pod, version: KubernetesVersion) -> Result<Pod, InputError> {
        let rules = VersionRules::of(version);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        compile(pod, namespace, name, &rules).map_err(|e| e.of(ObjectName("pod", namespace, name)))
    }

    /// The same pod on a node.
    pub fn on(&self, node: &str) -> Pod {
        Pod { node: Some(node.into()), nominated: None, ..self.clone() }
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.spec.labels
    }
}

fn compile(pod: &core::Pod, namespace: &str, name: &str, rules: &VersionRules) -> FieldResult<Pod> {
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "Required value"));
    }
    let empty = RawSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let status = pod.status.as_ref();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let key = PodKey::new(namespace, name);
    Ok(Pod {
        uid: match pod.metadata.uid.as_deref() {
            Some(uid) if !uid.is_empty() => uid.into(),
            _ => format!("uid-{namespace}-{name}").into(),
        },
        node: spec.node_name.as_deref().filter(|n| !n.is_empty()).map(Into::into),
        nominated: status.and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty()).map(Into::into),
        finished: matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")),
        terminating,
        preempted: terminating
            && status
                .and_then(|s| s.conditions.as_ref()?.iter().find(|c| c.type_ == "DisruptionTarget"))
                .is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler")),
        started: status.and_then(|s| s.start_time.as_ref()).map(|t| t.0.as_nanosecond()),
        scheduler: spec.scheduler_name.as_deref().filter(|name| *name != DEFAULT_SCHEDULER).map(Into::into),
        gates: spec.scheduling_gates.iter().flatten().map(|g| g.name.as_str().into()).collect(),
        spec: Arc::new(compile_spec(pod, spec, &key, rules)?),
        key,
    })
}

fn compile_spec(pod: &core::Pod, spec: &RawSpec, key: &PodKey, rules: &VersionRules) -> FieldResult<PodSpec> {
    let namespace = &*key.namespace;
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    for (i, t) in spec.tolerations.iter().flatten().enumerate() {
        taints::validate_toleration(t).in_field(format_args!("spec.tolerations[{i}]"))?;
    }
    let affinity = spec.affinity.as_ref();
    let node = affinity.and_then(|a| a.node_affinity.as_ref());
    let with = affinity.and_then(|a| a.pod_affinity.as_ref());
    let against = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let required_path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    if let Some(selector) = node.and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref()) {
        node_selector::validate(selector).in_field(required_path)?;
    }
    let required = RequiredNodeAffinity::of(spec).in_field(required_path)?;
    let preferred = node.and_then(|n| n.preferred_during_scheduling_ignored_during_execution.as_deref());
    if let Some(terms) = preferred {
        node_selector::validate_preferred(terms)
            .in_field("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution")?;
    }
    let (preferred_nodes, preferred_fault) = match preferred.map(PreferredNodeAffinity::of) {
        None => (None, None),
        Some(Ok(terms)) => (Some(terms), None),
        Some(Err(fault)) => (None, Some(fault.to_string().into())),
    };
    Ok(PodSpec {
        resources: resources::of_pod(pod, rules)?,
        priority: spec.priority.unwrap_or(0),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        host_ports: host_ports(spec, rules),
        tolerations: Tolerations(spec.tolerations.clone().unwrap_or_default()),
        named_nodes: named_nodes(node),
        required_nodes: (!required.is_none()).then_some(required),
        preferred_nodes,
        preferred_fault,
        affinity: terms(with.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()), namespace)
            .under("spec.affinity.podAffinity")?,
        anti_affinity: terms(
            against.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()),
            namespace,
        )
        .under("spec.affinity.podAntiAffinity")?,
        preferred_affinity: weighted_terms(
            with.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref()),
            namespace,
        )
        .under("spec.affinity.podAffinity")?,
        preferred_anti_affinity: weighted_terms(
            against.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref()),
            namespace,
        )
        .under("spec.affinity.podAntiAffinity")?,
        spread: spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .enumerate()
            .map(|(i, c)| spread_constraint(c, &labels).under(format_args!("spec.topologySpreadConstraints[{i}]")))
            .collect::<FieldResult<_>>()?,
        volumes: volumes(spec, &key.name)?,
        images: images(spec, rules),
        containers: spec.containers.len() + init_containers_with_images(spec, rules).count(),
        features: if rules.declared_features { features(spec) } else { Vec::new() },
        controller: controller(pod),
        resource_claims: spec.resource_claims.iter().flatten().map(|c| c.name.as_str().into()).collect(),
        namespace: Arc::clone(&key.namespace),
        labels,
    })
}

fn host_ports(spec: &RawSpec, rules: &VersionRules) -> Vec<HostPort> {
    let on_host = spec.host_network == Some(true);
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    sidecars
        .filter(|_| rules.sidecar_ports)
        .chain(&spec.containers)
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(|p| {
            // kube-apiserver: with host networking, a container port is a host port.
            let port = match p.host_port.unwrap_or(0) {
                0 if on_host => p.container_port,
                port => port,
            };
            (port > 0).then(|| HostPort {
                ip: p.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0").into(),
                protocol: p.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP").into(),
                port,
            })
        })
        .collect()
}

/// NodeAffinity's PreFilter: the nodes that the required terms list by name.
fn named_nodes(affinity: Option<&core::NodeAffinity>) -> NamedNodes {
    let Some(selector) = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()) else {
        return NamedNodes::Any;
    };
    let mut all: Option<BTreeSet<Box<str>>> = None;
    for term in &selector.node_selector_terms {
        let mut names: Option<BTreeSet<Box<str>>> = None;
        for field in term.match_fields.iter().flatten() {
            if field.key == "metadata.name" && field.operator == "In" {
                let these: BTreeSet<Box<str>> = field.values.iter().flatten().map(|v| v.as_str().into()).collect();
                names = Some(match names {
                    None => these,
                    Some(names) => names.intersection(&these).cloned().collect(),
                });
            }
        }
        match names {
            None => return NamedNodes::Any,
            Some(names) => all.get_or_insert_default().extend(names),
        }
    }
    all.map_or(NamedNodes::Any, NamedNodes::Only)
}

fn terms(raw: Option<&[PodAffinityTerm]>, namespace: &str) -> FieldResult<Vec<AffinityTerm>> {
    raw.into_iter()
        .flatten()
        .enumerate()
        .map(|(i, t)| term(t, namespace).under(format_args!("requiredDuringSchedulingIgnoredDuringExecution[{i}]")))
        .collect()
}

fn weighted_terms(
    raw: Option<&[core::WeightedPodAffinityTerm]>,
    namespace: &str,
) -> FieldResult<Vec<(AffinityTerm, i32)>> {
    raw.into_iter()
        .flatten()
        .enumerate()
        .map(|(i, t)| {
            let field = format!("preferredDuringSchedulingIgnoredDuringExecution[{i}]");
            if !(1..=100).contains(&t.weight) {
                return Err(FieldError::new(
                    format!("{field}.weight"),
                    format!("Invalid value: {}: must be in the range 1-100", t.weight),
                ));
            }
            Ok((term(&t.pod_affinity_term, namespace).under(format_args!("{field}.podAffinityTerm"))?, t.weight))
        })
        .collect()
}

fn term(t: &PodAffinityTerm, namespace: &str) -> FieldResult<AffinityTerm> {
    if t.topology_key.is_empty() {
        return Err(FieldError::new("topologyKey", "Required value: can not be empty"));
    }
    let mut namespaces: BTreeSet<Box<str>> = t.namespaces.iter().flatten().map(|n| n.as_str().into()).collect();
    if namespaces.is_empty() && t.namespace_selector.is_none() {
        namespaces.insert(namespace.into());
    }
    Ok(AffinityTerm {
        namespaces,
        namespace_selector: Selector::from_label_selector(t.namespace_selector.as_ref())
            .in_field("namespaceSelector")?,
        selector: Selector::from_label_selector(t.label_selector.as_ref()).in_field("labelSelector")?,
        topology_key: t.topology_key.as_str().into(),
    })
}

fn spread_constraint(c: &TopologySpreadConstraint, labels: &Labels) -> FieldResult<SpreadConstraint> {
    if c.max_skew <= 0 {
        return Err(FieldError::new("maxSkew", format!("Invalid value: {}: must be greater than zero", c.max_skew)));
    }
    if c.topology_key.is_empty() {
        return Err(FieldError::new("topologyKey", "Required value: can not be empty"));
    }
    let hard = match c.when_unsatisfiable.as_str() {
        "DoNotSchedule" => true,
        "ScheduleAnyway" => false,
        other => {
            return Err(FieldError::new(
                "whenUnsatisfiable",
                format!("Unsupported value: {other:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\""),
            ));
        }
    };
    if let Some(n) = c.min_domains.filter(|n| *n <= 0) {
        return Err(FieldError::new("minDomains", format!("Invalid value: {n}: must be greater than zero")));
    }
    let mut selector = Selector::from_label_selector(c.label_selector.as_ref()).in_field("labelSelector")?;
    if c.label_selector.is_some() {
        for key in c.match_label_keys.iter().flatten() {
            if let Some(value) = labels.get(key) {
                selector.add(Requirement::equals(key.clone(), value.clone()));
            }
        }
    }
    Ok(SpreadConstraint {
        max_skew: c.max_skew,
        topology_key: c.topology_key.as_str().into(),
        hard,
        selector,
        min_domains: c.min_domains.unwrap_or(1),
        honor_affinity: honors(c.node_affinity_policy.as_deref(), true, "nodeAffinityPolicy")?,
        honor_taints: honors(c.node_taints_policy.as_deref(), false, "nodeTaintsPolicy")?,
    })
}

fn honors(policy: Option<&str>, default: bool, field: &str) -> FieldResult<bool> {
    match policy {
        None => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => Err(FieldError::new(
            field,
            format!("Unsupported value: {other:?}: supported values: \"Honor\", \"Ignore\""),
        )),
    }
}

fn volumes(spec: &RawSpec, pod: &str) -> FieldResult<Vec<Volume>> {
    let mut out = Vec::new();
    for (i, v) in spec.volumes.iter().flatten().enumerate() {
        if let Some(c) = &v.persistent_volume_claim {
            if c.claim_name.is_empty() {
                return Err(FieldError::new(
                    format!("spec.volumes[{i}].persistentVolumeClaim.claimName"),
                    "Required value",
                ));
            }
            out.push(Volume::Claim(c.claim_name.as_str().into()));
        } else if v.ephemeral.is_some() {
            out.push(Volume::Ephemeral(format!("{pod}-{}", v.name).into()));
        } else if let Some(d) = &v.gce_persistent_disk {
            out.push(Volume::GcePersistentDisk {
                name: d.pd_name.as_str().into(),
                read_only: d.read_only == Some(true),
            });
        } else if let Some(d) = &v.aws_elastic_block_store {
            out.push(Volume::AwsElasticBlockStore(d.volume_id.as_str().into()));
        } else if let Some(d) = &v.azure_disk {
            out.push(Volume::AzureDisk {
                uri: d.disk_uri.as_str().into(),
                volume: v.name.as_str().into(),
                // kube-apiserver's default.
                kind: d.kind.as_deref().unwrap_or("Shared").into(),
            });
        } else if let Some(d) = &v.cinder {
            out.push(Volume::Cinder(d.volume_id.as_str().into()));
        } else if let Some(d) = &v.portworx_volume {
            out.push(Volume::Portworx(d.volume_id.as_str().into()));
        } else if let Some(d) = &v.iscsi {
            out.push(Volume::Iscsi { iqn: d.iqn.as_str().into(), read_only: d.read_only == Some(true) });
        } else if let Some(d) = &v.rbd {
            out.push(Volume::Rbd {
                monitors: d.monitors.iter().map(|m| m.as_str().into()).collect(),
                pool: d.pool.as_deref().filter(|p| !p.is_empty()).unwrap_or("rbd").into(),
                image: d.image.as_str().into(),
                read_only: d.read_only == Some(true),
            });
        }
    }
    Ok(out)
}

fn images(spec: &RawSpec, rules: &VersionRules) -> Vec<Box<str>> {
    let containers = init_containers_with_images(spec, rules).chain(&spec.containers).map(|c| c.image.as_deref());
    let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()).map(|i| i.reference.as_deref());
    containers
        .chain(volumes.filter(|_| rules.image_volumes))
        .map(|image| normalized_image(image.unwrap_or_default()))
        .collect()
}

/// The init containers whose images ImageLocality counts.
fn init_containers_with_images<'a>(
    spec: &'a RawSpec,
    rules: &VersionRules,
) -> impl Iterator<Item = &'a core::Container> {
    let counted = rules.init_images;
    spec.init_containers.iter().flatten().filter(move |_| counted)
}

/// ImageLocality's rule: the default tag is `latest`.
fn normalized_image(name: &str) -> Box<str> {
    let colon = name.rfind(':').map_or(-1, |i| i as i64);
    let slash = name.rfind('/').map_or(-1, |i| i as i64);
    if colon <= slash { format!("{name}:latest").into() } else { name.into() }
}

/// NodeDeclaredFeatures: the features that a kubelet has to declare to run the pod.
fn features(spec: &RawSpec) -> Vec<&'static str> {
    let mut out = Vec::new();
    let restarts_all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .flat_map(|c| c.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == "RestartAllContainers");
    if restarts_all {
        out.push("RestartAllContainersOnContainerExits");
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        out.push("UserNamespacesHostNetworkSupport");
    }
    out
}

fn controller(pod: &core::Pod) -> Option<Owner> {
    let owner = pod.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))?;
    Some(Owner {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
    })
}
