//! A node and its pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{self as core, Taint};
use stead_semantics::labels::Labels;
use stead_semantics::taints;

use crate::error::{FieldError, FieldResult, InField, InputError, ObjectName};
use crate::pod::{HostPort, Pod, PodKey};
use crate::resources::{self, Resources};

/// A node, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The name.
    pub name: Arc<str>,
    /// The labels.
    pub labels: Labels,
    /// The taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The allocatable resources.
    pub allocatable: Resources,
    /// The maximum number of pods.
    pub max_pods: i64,
    /// The images on the node, by each of their names, with their sizes.
    pub images: Vec<(Arc<str>, i64)>,
    /// The features that the kubelet declares.
    pub features: BTreeSet<Box<str>>,
}

impl Node {
    /// Compiles an object.
    pub fn compile(node: &core::Node) -> Result<Node, InputError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        compile(node, name).map_err(|e| e.of(ObjectName("node", "", name)))
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

fn compile(node: &core::Node, name: &str) -> FieldResult<Node> {
    if name.is_empty() {
        return Err(FieldError::new("metadata.name", "Required value"));
    }
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let taints = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
    for (i, t) in taints.iter().enumerate() {
        taints::validate_taint(t).in_field(format_args!("spec.taints[{i}]"))?;
    }
    let (allocatable, max_pods) = resources::allocatable(status.and_then(|s| s.allocatable.as_ref()))?;
    let mut images: Vec<(Arc<str>, i64)> = Vec::new();
    for image in status.and_then(|s| s.images.as_ref()).into_iter().flatten() {
        for name in image.names.iter().flatten() {
            if !images.iter().any(|(n, _)| **n == **name) {
                images.push((name.as_str().into(), image.size_bytes.unwrap_or(0)));
            }
        }
    }
    Ok(Node {
        name: name.into(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints,
        unschedulable: spec.and_then(|s| s.unschedulable) == Some(true),
        allocatable,
        max_pods,
        images,
        features: status
            .and_then(|s| s.declared_features.as_ref())
            .into_iter()
            .flatten()
            .map(|f| f.as_str().into())
            .collect(),
    })
}

/// A node with its pods and the sums of their requests (kube-scheduler's `NodeInfo`).
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// The node itself.
    pub node: Arc<Node>,
    /// The pods on the node that have not finished.
    pub pods: Vec<Arc<Pod>>,
    /// The sum of the pods' requests.
    pub requested: Resources,
    /// Cpu as NodeResourcesFit's score counts it.
    pub nonzero_cpu: i64,
    /// Memory as NodeResourcesFit's score counts it.
    pub nonzero_memory: i64,
    ports: BTreeSet<HostPort>,
    pods_with_anti_affinity: usize,
}

impl NodeInfo {
    pub(crate) fn new(node: Arc<Node>) -> NodeInfo {
        NodeInfo {
            node,
            pods: Vec::new(),
            requested: Resources::default(),
            nonzero_cpu: 0,
            nonzero_memory: 0,
            ports: BTreeSet::new(),
            pods_with_anti_affinity: 0,
        }
    }

    pub(crate) fn add(&mut self, pod: Arc<Pod>) {
        self.count(&pod, 1);
        self.ports.extend(pod.spec.host_ports.iter().cloned());
        self.pods_with_anti_affinity += usize::from(!pod.spec.anti_affinity.is_empty());
        self.pods.push(pod);
    }

    /// Removes a pod. As in kube-scheduler its ports are then free, even if another pod uses them too.
    pub(crate) fn remove(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let at = self.pods.iter().position(|p| p.key == *key)?;
        let pod = self.pods.swap_remove(at);
        self.count(&pod, -1);
        self.pods_with_anti_affinity -= usize::from(!pod.spec.anti_affinity.is_empty());
        for port in &pod.spec.host_ports {
            self.ports.remove(port);
        }
        Some(pod)
    }

    /// Moves a pod to the end, as kube-scheduler does when it replaces a pod.
    pub(crate) fn touch(&mut self, key: &PodKey) {
        if let Some(at) = self.pods.iter().position(|p| p.key == *key) {
            let pod = self.pods.swap_remove(at);
            self.pods.push(pod);
        }
    }

    fn count(&mut self, pod: &Pod, sign: i64) {
        let r = &pod.spec.resources;
        self.requested.add(&r.taken, sign);
        self.nonzero_cpu = self.nonzero_cpu.wrapping_add(sign * r.taken_nonzero_cpu);
        self.nonzero_memory = self.nonzero_memory.wrapping_add(sign * r.taken_nonzero_memory);
    }

    /// Whether a pod on this node has a required anti-affinity.
    pub(crate) fn has_anti_affinity(&self) -> bool {
        self.pods_with_anti_affinity > 0
    }

    /// Whether a pod on this node uses the port, or one that conflicts with it.
    pub fn port_taken(&self, want: &HostPort) -> bool {
        self.ports.iter().any(|p| {
            p.port == want.port
                && p.protocol == want.protocol
                && (*want.ip == *"0.0.0.0" || *p.ip == *"0.0.0.0" || p.ip == want.ip)
        })
    }
}
