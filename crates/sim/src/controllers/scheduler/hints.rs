//! Which event may help which rejected pod: `EventsToRegister` of the plugins and their queueing hints.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use stead_placement::{AffinityTerm, Node, NodeInfo, Plugin, Pod, Resources, SpreadConstraint, Volume};
use stead_semantics::labels::Labels;
use stead_semantics::taints::{find_untolerated, tolerates};

use super::plugin_set::PluginSet;

/// An event that may make a rejected pod fit.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClusterEvent<'a> {
    NodeAdded(&'a Node),
    NodeRemoved(&'a Node),
    /// The allocatable resources changed.
    NodeAllocatable(&'a Node, &'a Node),
    NodeLabels(&'a Node, &'a Node),
    /// The taints changed, or the node was uncordoned.
    NodeTaints(&'a Node, &'a Node),
    /// The declared features changed.
    NodeFeatures,
    /// A pod with a node was added, or got its node.
    PodAdded(&'a Pod),
    /// A pod with a node was removed, or lost its nominated node.
    PodRemoved(&'a Pod),
    /// The labels of a pod with a node, or of the rejected pod itself.
    PodLabels(&'a Pod, &'a Pod),
    /// A pod with a node needs less than before.
    PodShrunk(&'a Pod, &'a Pod),
    /// The rejected pod got a toleration.
    PodTolerations(&'a Pod),
    VolumeAdded,
    /// A PersistentVolume changed; whether it is in another zone or region now.
    VolumeChanged {
        moved: bool,
    },
    /// Namespace and name of a claim that was added.
    ClaimAdded(&'a str, &'a str),
    ClaimChanged(&'a str, &'a str),
    /// A storage class was added; whether its volumes wait for a consumer.
    ClassAdded {
        waits: bool,
    },
    /// A storage class changed; whether its topologies did.
    ClassChanged {
        topologies: bool,
    },
    CsiNodeAdded,
    /// A CSINode changed; whether more volumes can be attached, and whether its migrated drivers changed.
    CsiNodeChanged {
        raised: bool,
        migrated: bool,
    },
    CapacityAdded,
    /// A CSIStorageCapacity changed; whether there is more now.
    CapacityChanged {
        grown: bool,
    },
    AttachmentRemoved,
}

/// The plugins that a new node may satisfy. Those of them that no change of taints interests are woken by every change of
/// taints (`buildQueueingHintMap`).
const NODE_ADDED: PluginSet = PluginSet::of(&[
    Plugin::NodeUnschedulable,
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::NodeDeclaredFeatures,
]);
const NODE_LABELS: PluginSet = PluginSet::of(&[
    Plugin::NodeAffinity,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
]);
const VOLUME_LIMITS: PluginSet = PluginSet::of(&[
    Plugin::EBSLimits,
    Plugin::GCEPDLimits,
    Plugin::NodeVolumeLimits,
    Plugin::AzureDiskLimits,
]);
const POD_REMOVED: PluginSet = PluginSet::of(&[
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
])
.with(VOLUME_LIMITS);
const OTHER_PODS: PluginSet = PluginSet::of(&[Plugin::PodTopologySpread, Plugin::InterPodAffinity]);
const TOLERATIONS: PluginSet =
    PluginSet::of(&[Plugin::TaintToleration, Plugin::NodeUnschedulable, Plugin::PodTopologySpread]);
const VOLUMES: PluginSet = PluginSet::of(&[Plugin::VolumeBinding, Plugin::VolumeZone]);
const CLAIM_ADDED: PluginSet =
    PluginSet::of(&[Plugin::VolumeBinding, Plugin::VolumeZone, Plugin::VolumeRestrictions]).with(VOLUME_LIMITS);
const BINDING: PluginSet = PluginSet::of(&[Plugin::VolumeBinding]);

impl ClusterEvent<'_> {
    /// The plugins that registered the event. Before 1.32 (without hints) all plugins that register new nodes also
    /// register changed labels and taints.
    pub(super) fn interested(&self, hints: bool) -> PluginSet {
        match self {
            ClusterEvent::NodeAdded(_) | ClusterEvent::NodeTaints(..) => NODE_ADDED,
            ClusterEvent::NodeRemoved(_) => PluginSet::of(&[Plugin::PodTopologySpread]),
            ClusterEvent::NodeAllocatable(..) => PluginSet::of(&[Plugin::NodeResourcesFit]),
            ClusterEvent::NodeLabels(..) if hints => NODE_LABELS,
            ClusterEvent::NodeLabels(..) => NODE_ADDED,
            ClusterEvent::NodeFeatures => PluginSet::of(&[Plugin::NodeDeclaredFeatures]),
            ClusterEvent::PodAdded(_) | ClusterEvent::PodLabels(..) => OTHER_PODS,
            ClusterEvent::PodRemoved(_) => POD_REMOVED,
            ClusterEvent::PodShrunk(..) => PluginSet::of(&[Plugin::NodeResourcesFit]),
            ClusterEvent::PodTolerations(_) => TOLERATIONS,
            ClusterEvent::VolumeAdded | ClusterEvent::VolumeChanged { .. } => VOLUMES,
            ClusterEvent::ClaimAdded(..) => CLAIM_ADDED,
            ClusterEvent::ClaimChanged(..) => VOLUMES,
            ClusterEvent::ClassAdded { .. } => VOLUMES,
            ClusterEvent::ClassChanged { .. } => BINDING,
            ClusterEvent::CsiNodeAdded | ClusterEvent::CsiNodeChanged { .. } => BINDING.with(VOLUME_LIMITS),
            ClusterEvent::CapacityAdded | ClusterEvent::CapacityChanged { .. } => BINDING,
            ClusterEvent::AttachmentRemoved => VOLUME_LIMITS,
        }
    }

    /// Whether the event may help a pod that a plugin rejected: the plugin's queueing hint. Only for plugins that
    /// registered the event.
    pub(super) fn may_help(&self, plugin: Plugin, pod: &Pod) -> bool {
        match (self, plugin) {
            (ClusterEvent::NodeAdded(node), _) => node_added(plugin, pod, node),
            (ClusterEvent::NodeRemoved(node), _) => has_topology_keys(pod, node),
            (ClusterEvent::NodeAllocatable(old, new), _) => fits_empty(pod, new) && has_more(pod, old, new),
            (ClusterEvent::NodeLabels(old, new), _) => labels_changed(plugin, pod, old, new),
            (ClusterEvent::NodeTaints(old, new), _) => taints_changed(plugin, pod, old, new),
            (ClusterEvent::PodAdded(other), Plugin::PodTopologySpread) => spreads_with(pod, other),
            (ClusterEvent::PodAdded(other), _) => all_select(&pod.spec.affinity, other),
            (ClusterEvent::PodLabels(old, new), _) => pod_labels_changed(plugin, pod, old, new),
            (ClusterEvent::PodRemoved(other), _) => pod_removed(plugin, pod, other),
            (ClusterEvent::PodShrunk(old, new), _) => pod.uid == new.uid || frees(pod, old, new),
            (ClusterEvent::PodTolerations(new), _) => tolerations_changed(plugin, new),
            (ClusterEvent::VolumeChanged { moved }, Plugin::VolumeZone) => *moved,
            (ClusterEvent::ClaimAdded(namespace, claim) | ClusterEvent::ClaimChanged(namespace, claim), _) => {
                let ephemeral = !matches!(plugin, Plugin::VolumeZone | Plugin::VolumeRestrictions);
                uses_claim(pod, namespace, claim, ephemeral)
            }
            (ClusterEvent::ClassAdded { waits }, Plugin::VolumeZone) => *waits,
            (ClusterEvent::ClassChanged { topologies }, _) => *topologies,
            (ClusterEvent::CsiNodeChanged { migrated, .. }, Plugin::VolumeBinding) => *migrated,
            (ClusterEvent::CsiNodeChanged { raised, .. }, _) => *raised,
            (ClusterEvent::CapacityChanged { grown }, _) => *grown,
            (ClusterEvent::AttachmentRemoved, _) => pod.spec.volumes.iter().any(|v| matches!(v, Volume::Claim(_))),
            _ => true,
        }
    }
}

fn prevents_scheduling(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

fn tolerates_all(pod: &Pod, node: &Node) -> bool {
    find_untolerated(&node.taints, &pod.spec.tolerations.0, prevents_scheduling).is_none()
}

fn matches_node(pod: &Pod, node: &Node) -> bool {
    pod.spec.required_nodes.as_ref().is_none_or(|required| required.matches(&node.name, &node.labels))
}

fn node_added(plugin: Plugin, pod: &Pod, node: &Node) -> bool {
    match plugin {
        Plugin::TaintToleration => tolerates_all(pod, node),
        Plugin::NodeUnschedulable => !node.unschedulable,
        Plugin::NodeAffinity => matches_node(pod, node),
        Plugin::NodeResourcesFit => fits_empty(pod, node),
        Plugin::PodTopologySpread => has_topology_keys(pod, node),
        Plugin::InterPodAffinity => {
            let has_key = |term: &AffinityTerm| node.labels.contains_key(&*term.topology_key);
            !pod.spec.anti_affinity.is_empty() || pod.spec.affinity.iter().any(has_key)
        }
        _ => true,
    }
}

fn taints_changed(plugin: Plugin, pod: &Pod, old: &Node, new: &Node) -> bool {
    match plugin {
        Plugin::TaintToleration => !tolerates_all(pod, old) && tolerates_all(pod, new),
        Plugin::NodeUnschedulable => old.unschedulable && !new.unschedulable,
        Plugin::PodTopologySpread => spread_changed(pod, old, new),
        // These register new nodes, but not taints: they are woken without a check.
        _ => true,
    }
}

fn labels_changed(plugin: Plugin, pod: &Pod, old: &Node, new: &Node) -> bool {
    match plugin {
        Plugin::NodeAffinity => !matches_node(pod, old) && matches_node(pod, new),
        Plugin::PodTopologySpread => spread_changed(pod, old, new),
        Plugin::InterPodAffinity => {
            let values = |term: &AffinityTerm| (old.label(&term.topology_key), new.label(&term.topology_key));
            let affinity = |term| matches!(values(term), (before, Some(after)) if before != Some(after));
            let anti_affinity = |term| matches!(values(term), (Some(before), after) if after != Some(before));
            pod.spec.affinity.iter().any(affinity) || pod.spec.anti_affinity.iter().any(anti_affinity)
        }
        _ => true,
    }
}

fn hard(pod: &Pod) -> impl Iterator<Item = &SpreadConstraint> {
    pod.spec.spread.iter().filter(|constraint| constraint.hard)
}

fn has_topology_keys(pod: &Pod, node: &Node) -> bool {
    hard(pod).all(|constraint| node.labels.contains_key(&*constraint.topology_key))
}

fn spread_changed(pod: &Pod, old: &Node, new: &Node) -> bool {
    let (before, after) = (has_topology_keys(pod, old), has_topology_keys(pod, new));
    let moved = || hard(pod).any(|c| old.label(&c.topology_key) != new.label(&c.topology_key));
    before != after || after && (moved() || old.taints != new.taints)
}

/// Whether a spread constraint of the pod counts the other pod.
fn spreads_with(pod: &Pod, other: &Pod) -> bool {
    pod.key.namespace == other.key.namespace && hard(pod).any(|constraint| constraint.selector.matches(other.labels()))
}

/// Whether all terms select the pod; none select no pod. As in kube-scheduler a namespace selector is matched against no
/// labels.
fn all_select(terms: &[AffinityTerm], pod: &Pod) -> bool {
    let selects = |term: &AffinityTerm| {
        (term.namespaces.contains(&*pod.key.namespace) || term.namespace_selector.matches(&Labels::new()))
            && term.selector.matches(pod.labels())
    };
    !terms.is_empty() && terms.iter().all(selects)
}

fn pod_labels_changed(plugin: Plugin, pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let own = pod.uid == new.uid;
    let spec = &pod.spec;
    match plugin {
        Plugin::PodTopologySpread => {
            let selected = |c: &SpreadConstraint| c.selector.matches(old.labels()) != c.selector.matches(new.labels());
            (own || pod.key.namespace == new.key.namespace) && hard(pod).any(selected)
        }
        _ => {
            own || !all_select(&spec.affinity, old) && all_select(&spec.affinity, new)
                || all_select(&spec.anti_affinity, old) && !all_select(&spec.anti_affinity, new)
        }
    }
}

fn pod_removed(plugin: Plugin, pod: &Pod, other: &Pod) -> bool {
    match plugin {
        Plugin::NodePorts => {
            let wanted = |want: &&stead_placement::HostPort| other.spec.host_ports.iter().any(|used| clash(want, used));
            pod.spec.host_ports.iter().any(|want| wanted(&want))
        }
        Plugin::VolumeRestrictions => shares_volume(pod, other),
        Plugin::PodTopologySpread => spreads_with(pod, other),
        Plugin::InterPodAffinity => {
            all_select(&pod.spec.anti_affinity, other) || all_select(&other.spec.anti_affinity, pod)
        }
        Plugin::NodeResourcesFit => true,
        // The limits of volumes.
        _ => other.spec.volumes.iter().any(|volume| !matches!(volume, Volume::Iscsi { .. } | Volume::Rbd { .. })),
    }
}

fn clash(a: &stead_placement::HostPort, b: &stead_placement::HostPort) -> bool {
    let any = |ip: &str| ip == "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (any(&a.ip) || any(&b.ip) || a.ip == b.ip)
}

/// Whether two pods of a namespace use the same claim or disk.
fn shares_volume(pod: &Pod, other: &Pod) -> bool {
    let same = |a: &Volume, b: &Volume| match (a, b) {
        (Volume::Ephemeral(_), _) | (_, Volume::Ephemeral(_)) => false,
        (Volume::GcePersistentDisk { name, .. }, Volume::GcePersistentDisk { name: other, .. }) => name == other,
        (Volume::Iscsi { iqn, .. }, Volume::Iscsi { iqn: other, .. }) => iqn == other,
        (a, b) => a == b,
    };
    let volumes = &other.spec.volumes;
    pod.key.namespace == other.key.namespace && pod.spec.volumes.iter().any(|a| volumes.iter().any(|b| same(a, b)))
}

fn uses_claim(pod: &Pod, namespace: &str, claim: &str, with_ephemeral: bool) -> bool {
    let claims = || pod.spec.volumes.iter().filter_map(Volume::claim);
    *pod.key.namespace == *namespace
        && claims().any(|(name, ephemeral)| name == claim && (with_ephemeral || !ephemeral))
}

fn tolerations_changed(plugin: Plugin, pod: &Pod) -> bool {
    match plugin {
        Plugin::NodeUnschedulable => {
            let key = "node.kubernetes.io/unschedulable".to_owned();
            let cordon = Taint { key, effect: "NoSchedule".into(), ..Taint::default() };
            pod.spec.tolerations.0.iter().any(|toleration: &Toleration| tolerates(toleration, &cordon))
        }
        Plugin::PodTopologySpread => hard(pod).any(|constraint| constraint.honor_taints),
        _ => true,
    }
}

/// The amounts that a pod asks for, with those of two lists.
fn asked<'a>(
    pod: &'a Pod,
    a: &'a Resources,
    b: &'a Resources,
) -> impl Iterator<Item = (i64, i64, i64)> {
    let want = &pod.spec.resources.requests;
    let scalars = want.scalars.iter().map(|(name, want)| (*want, a.scalar(name), b.scalar(name)));
    [
        (want.milli_cpu, a.milli_cpu, b.milli_cpu),
        (want.memory, a.memory, b.memory),
        (want.ephemeral_storage, a.ephemeral_storage, b.ephemeral_storage),
    ]
    .into_iter()
    .chain(scalars)
    .filter(|(want, ..)| *want > 0)
}

/// Whether the node would have enough resources for the pod if it were empty.
fn fits_empty(pod: &Pod, node: &Node) -> bool {
    node.max_pods >= 1 && asked(pod, &node.allocatable, &node.allocatable).all(|(want, has, _)| want <= has)
}

/// Whether the node has more of something that the pod asks for.
fn has_more(pod: &Pod, old: &Node, new: &Node) -> bool {
    new.max_pods > old.max_pods
        || asked(pod, &old.allocatable, &new.allocatable).any(|(_, before, after)| after > before)
}

/// Whether another pod needs less of something that the pod asks for.
fn frees(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let (old, new) = (&old.spec.resources, &new.spec.resources);
    asked(pod, &old.taken, &new.taken).any(|(_, before, after)| before > after)
}

/// Whether any request of a pod became smaller.
pub(super) fn shrank(old: &Pod, new: &Pod) -> bool {
    let (old, new) = (&old.spec.resources.taken, &new.spec.resources.taken);
    old.milli_cpu > new.milli_cpu
        || old.memory > new.memory
        || old.ephemeral_storage > new.ephemeral_storage
        || old.scalars.iter().any(|(name, amount)| *amount > new.scalar(name))
}

/// Before 1.32: a change of a node wakes only pods that the node could take (`preCheckForNode`).
pub(super) fn admits(info: &NodeInfo, pod: &Pod) -> bool {
    let node = &*info.node;
    let fits = asked(pod, &node.allocatable, &info.requested).all(|(want, has, taken)| want <= has - taken);
    fits && i64::try_from(info.pods.len()).is_ok_and(|pods| pods < node.max_pods)
        && matches_node(pod, node)
        && !pod.spec.host_ports.iter().any(|port| info.port_taken(port))
        && tolerates_all(pod, node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde_json::{Value, from_value, json};
    use stead_model::KubernetesVersion;

    fn pod(name: &str, labels: Value, spec: Value) -> Pod {
        let mut pod = json!({ "metadata": { "name": name, "namespace": "n", "uid": name, "labels": labels },
            "spec": spec });
        if pod["spec"]["containers"].is_null() {
            pod["spec"]["containers"] = json!([]);
        }
        let pod: core::Pod = from_value(pod).expect("a pod");
        Pod::compile(&pod, KubernetesVersion::NEWEST).expect("a pod")
    }

    fn node(labels: Value, spec: Value, cpu: &str) -> Node {
        let node: core::Node = from_value(json!({ "metadata": { "name": "a", "labels": labels }, "spec": spec,
            "status": { "allocatable": { "cpu": cpu, "memory": "1Gi", "pods": "10" } } }))
        .expect("a node");
        Node::compile(&node).expect("a node")
    }

    fn helps(event: ClusterEvent<'_>, plugin: Plugin, pod: &Pod) -> bool {
        event.interested(true).contains(plugin) && event.may_help(plugin, pod)
    }

    fn term(app: &str) -> Value {
        json!([{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": app } } }])
    }

    fn affinity(kind: &str, app: &str) -> Value {
        json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": term(app) } } })
    }

    #[test]
    fn nodes_that_are_added_or_changed() {
        let plain = node(json!({}), json!({}), "4");
        let tainted = node(json!({}), json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] }), "4");
        let soft = node(json!({}), json!({ "taints": [{ "key": "k", "effect": "PreferNoSchedule" }] }), "4");
        let cordoned = node(json!({}), json!({ "unschedulable": true }), "4");
        let zone = |zone: &str| node(json!({ "zone": zone }), json!({}), "4");
        let (zone_a, zone_b) = (zone("a"), zone("b"));
        let small = node(json!({}), json!({}), "1");
        let any = pod("p", json!({}), json!({}));
        let cpu = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] });
        let big = pod("p", json!({}), cpu);
        let in_zone = pod("p", json!({}), json!({ "nodeSelector": { "zone": "a" } }));
        let spread = pod("p", json!({}), json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "x" } } }] }));
        let with = pod("p", json!({}), affinity("podAffinity", "x"));
        let against = pod("p", json!({}), affinity("podAntiAffinity", "x"));
        use ClusterEvent::{NodeAdded, NodeAllocatable, NodeFeatures, NodeLabels, NodeRemoved, NodeTaints};
        for (number, (event, plugin, pod, expected)) in [
            (NodeAdded(&plain), Plugin::TaintToleration, &any, true),
            (NodeAdded(&tainted), Plugin::TaintToleration, &any, false),
            (NodeTaints(&tainted, &soft), Plugin::TaintToleration, &any, true),
            (NodeTaints(&plain, &soft), Plugin::TaintToleration, &any, false),
            (NodeAdded(&cordoned), Plugin::NodeUnschedulable, &any, false),
            (NodeTaints(&cordoned, &plain), Plugin::NodeUnschedulable, &any, true),
            (NodeTaints(&tainted, &plain), Plugin::NodeUnschedulable, &any, false),
            (NodeAdded(&zone_b), Plugin::NodeAffinity, &in_zone, false),
            (NodeLabels(&zone_b, &zone_a), Plugin::NodeAffinity, &in_zone, true),
            (NodeLabels(&zone_a, &zone_a), Plugin::NodeAffinity, &in_zone, false),
            // Taints mean nothing to it, but it registers new nodes and no taints.
            (NodeTaints(&tainted, &tainted), Plugin::NodeAffinity, &in_zone, true),
            (NodeTaints(&tainted, &tainted), Plugin::NodeVolumeLimits, &any, false),
            (NodeAdded(&small), Plugin::NodeResourcesFit, &big, false),
            (NodeAllocatable(&small, &plain), Plugin::NodeResourcesFit, &big, true),
            (NodeAllocatable(&plain, &plain), Plugin::NodeResourcesFit, &big, false),
            (NodeLabels(&zone_b, &zone_a), Plugin::NodeResourcesFit, &big, false),
            (NodeAdded(&plain), Plugin::PodTopologySpread, &spread, false),
            (NodeAdded(&zone_a), Plugin::PodTopologySpread, &spread, true),
            (NodeRemoved(&zone_a), Plugin::PodTopologySpread, &spread, true),
            (NodeRemoved(&zone_a), Plugin::InterPodAffinity, &with, false),
            (NodeLabels(&zone_a, &zone_b), Plugin::PodTopologySpread, &spread, true),
            (NodeLabels(&zone_a, &plain), Plugin::PodTopologySpread, &spread, true),
            (NodeTaints(&plain, &tainted), Plugin::PodTopologySpread, &spread, false),
            (NodeAdded(&plain), Plugin::InterPodAffinity, &with, false),
            (NodeAdded(&plain), Plugin::InterPodAffinity, &against, true),
            (NodeAdded(&plain), Plugin::InterPodAffinity, &any, false),
            (NodeLabels(&plain, &zone_a), Plugin::InterPodAffinity, &with, true),
            (NodeLabels(&zone_a, &plain), Plugin::InterPodAffinity, &with, false),
            (NodeLabels(&zone_a, &plain), Plugin::InterPodAffinity, &against, true),
            (NodeLabels(&plain, &zone_a), Plugin::InterPodAffinity, &against, false),
            (NodeLabels(&zone_a, &zone_b), Plugin::InterPodAffinity, &against, true),
            (NodeFeatures, Plugin::NodeDeclaredFeatures, &any, true),
            (NodeFeatures, Plugin::NodeAffinity, &any, false),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(helps(event, plugin, pod), expected, "{number}: {event:?} {plugin:?}");
        }
    }

    #[test]
    fn pods_that_are_added_changed_or_removed() {
        let port = |port: i32| {
            let ports = json!([{ "containerPort": port, "hostPort": port }]);
            json!({ "containers": [{ "name": "c", "ports": ports }] })
        };
        let claim = |claim: &str| json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] });
        let x = pod("x", json!({ "app": "x" }), json!({}));
        let y = pod("x", json!({ "app": "y" }), json!({}));
        let with = pod("p", json!({ "app": "p" }), affinity("podAffinity", "x"));
        let against = pod("p", json!({ "app": "p" }), affinity("podAntiAffinity", "x"));
        let hates_p = pod("h", json!({}), affinity("podAntiAffinity", "p"));
        let spread = pod("p", json!({}), json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "x" } } }] }));
        let (port_1, port_2) = (pod("p", json!({}), port(1)), pod("q", json!({}), port(2)));
        let (claim_a, claim_b) = (pod("p", json!({}), claim("a")), pod("q", json!({}), claim("b")));
        use ClusterEvent::{AttachmentRemoved, ClaimAdded, ClaimChanged, PodAdded, PodLabels, PodRemoved};
        for (number, (event, plugin, pod, expected)) in [
            (PodAdded(&x), Plugin::InterPodAffinity, &with, true),
            (PodAdded(&y), Plugin::InterPodAffinity, &with, false),
            (PodAdded(&x), Plugin::InterPodAffinity, &against, false),
            (PodAdded(&x), Plugin::PodTopologySpread, &spread, true),
            (PodAdded(&x), Plugin::NodeResourcesFit, &x, false),
            (PodLabels(&y, &x), Plugin::InterPodAffinity, &with, true),
            (PodLabels(&x, &y), Plugin::InterPodAffinity, &with, false),
            (PodLabels(&x, &y), Plugin::InterPodAffinity, &against, true),
            (PodLabels(&x, &y), Plugin::PodTopologySpread, &spread, true),
            (PodRemoved(&x), Plugin::InterPodAffinity, &with, false),
            (PodRemoved(&x), Plugin::InterPodAffinity, &against, true),
            (PodRemoved(&hates_p), Plugin::InterPodAffinity, &with, true),
            (PodRemoved(&y), Plugin::NodeResourcesFit, &x, true),
            (PodRemoved(&y), Plugin::TaintToleration, &x, false),
            (PodRemoved(&port_1), Plugin::NodePorts, &port_1, true),
            (PodRemoved(&port_2), Plugin::NodePorts, &port_1, false),
            (PodRemoved(&claim_a), Plugin::VolumeRestrictions, &claim_a, true),
            (PodRemoved(&claim_b), Plugin::VolumeRestrictions, &claim_a, false),
            (PodRemoved(&claim_b), Plugin::NodeVolumeLimits, &claim_a, true),
            (PodRemoved(&x), Plugin::NodeVolumeLimits, &claim_a, false),
            (AttachmentRemoved, Plugin::NodeVolumeLimits, &claim_a, true),
            (AttachmentRemoved, Plugin::VolumeBinding, &claim_a, false),
            (ClaimAdded("n", "a"), Plugin::VolumeRestrictions, &claim_a, true),
            (ClaimChanged("n", "a"), Plugin::VolumeRestrictions, &claim_a, false),
            (ClaimChanged("n", "a"), Plugin::VolumeBinding, &claim_a, true),
            (ClaimChanged("m", "a"), Plugin::VolumeBinding, &claim_a, false),
            (ClaimChanged("n", "b"), Plugin::VolumeZone, &claim_a, false),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(helps(event, plugin, pod), expected, "{number}: {plugin:?}");
        }
    }
}
