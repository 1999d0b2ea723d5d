//! The cause of a rejection, in terms of the user's objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorTerm, TopologySpreadConstraint};
use stead_model::{ObjectKey, PodView, Topology, topology_references};
use stead_placement::{AffinityTerm, Attempt, Claim, NodeInfo, Plugin, Pod, Rejection, RejectionReason, SpreadCounts};
use stead_semantics::labels::Selector;

use crate::change::Trial;
use crate::remedies::{expression, held_once, holds, in_domain, join, same_disk, selects, shown, skew};
use crate::topology::{constraints, node_affinity as node_affinity_of, same_rule};

/// The causes of a node's rejection, line by line.
pub(crate) fn causes(trial: &Trial, info: &NodeInfo, plugin: Plugin, reason: &RejectionReason) -> Vec<String> {
    let mut lines = by_plugin(trial, info, plugin, reason);
    if lines.is_empty() {
        lines.extend(nominated(trial, info));
    }
    lines
}

/// kube-scheduler counts pods that preemption has promised a node as if they were there already.
fn nominated(trial: &Trial, info: &NodeInfo) -> Option<String> {
    let promised = trial.objects.pods_with(|pod| pod.nominated_node() == Some(&*info.node.name));
    let names: Vec<String> = promised.filter(|pod| *pod.key() != trial.key).map(PodView::full_name).collect();
    let noun = if names.len() == 1 { "pod" } else { "pods" };
    (!names.is_empty()).then(|| format!("counting {noun} {}, nominated for this node", join(&names)))
}

fn by_plugin(trial: &Trial, info: &NodeInfo, plugin: Plugin, reason: &RejectionReason) -> Vec<String> {
    match plugin {
        Plugin::NodeUnschedulable => vec!["it is cordoned (spec.unschedulable)".into()],
        Plugin::TaintToleration => taints(trial, info),
        Plugin::NodeAffinity => node_affinity(trial, info),
        Plugin::NodePorts => ports(trial, info),
        Plugin::NodeResourcesFit => resources(trial, info, reason),
        Plugin::VolumeBinding => claims(trial, info, reason),
        Plugin::VolumeZone => zones(trial, info),
        Plugin::PodTopologySpread => spread(trial, info),
        Plugin::InterPodAffinity => pod_affinity(trial, info, reason),
        Plugin::NodeVolumeLimits => vec!["its CSI driver cannot attach more volumes to it".into()],
        Plugin::VolumeRestrictions => held(trial, info, reason),
        Plugin::NodeDeclaredFeatures => {
            vec![format!("its kubelet does not declare {}", trial.pod.spec.features.join(", "))]
        }
        _ => Vec::new(),
    }
}

/// The Topology that a spread constraint of the pod comes from, where one says the same; with the list and the place
/// in it. The draft of the resource spelled the list in the singular.
pub(crate) fn spread_origin<'a>(
    trial: &'a Trial,
    rule: &TopologySpreadConstraint,
) -> Option<(&'a ObjectKey, &'static str, usize)> {
    topologies(trial).find_map(|(key, topology)| {
        let (list, rules) = constraints(topology);
        let at = rules?.iter().position(|c| same_rule(c, rule))?;
        Some((key, list, at))
    })
}

/// The Topology that the pod's node affinity comes from, likewise.
pub(crate) fn affinity_origin<'a>(trial: &'a Trial, own: &NodeAffinity) -> Option<&'a ObjectKey> {
    topologies(trial).find(|(_, topology)| node_affinity_of(topology).as_ref() == Some(own)).map(|(key, _)| key)
}

/// The Topologies of the pod's namespace. Several may have the same rules, so the one that the pod's owner, such as a
/// GlanceAPI, refers to comes first.
fn topologies(trial: &Trial) -> impl Iterator<Item = (&ObjectKey, &Topology)> {
    let own = service(trial).and_then(|owner| {
        let references = topology_references(trial.objects.raw(&owner)?);
        references.into_iter().find_map(|found| Some(found.reference.topology()?.to_owned()))
    });
    let namespace = &trial.key.namespace;
    let there = move || trial.objects.all::<Topology>().filter(move |(key, _)| key.namespace == *namespace);
    let (first, others) = (there(), there());
    let named = own.clone();
    first
        .filter(move |(key, _)| Some(&key.name) == named.as_ref())
        .chain(others.filter(move |(key, _)| Some(&key.name) != own.as_ref()))
}

/// The resource of the OpenStack operators that the pod belongs to, such as a GlanceAPI.
pub(crate) fn service(trial: &Trial) -> Option<ObjectKey> {
    trial.objects.openstack_owner(&trial.key)
}

fn from(topology: Option<&ObjectKey>) -> String {
    topology.map(|t| format!(" (from Topology {})", t.name)).unwrap_or_default()
}

fn taints(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let tolerations = &trial.pod.spec.tolerations.0;
    let in_the_way = info.node.taints.iter().filter(|t| {
        matches!(t.effect.as_str(), "NoSchedule" | "NoExecute")
            && !tolerations.iter().any(|x| stead_semantics::taints::tolerates(x, t))
    });
    in_the_way
        .map(|t| {
            let value = t.value.as_deref().filter(|v| !v.is_empty()).map(|v| format!("={v}")).unwrap_or_default();
            format!("taint {}{value}:{} is not tolerated", t.key, t.effect)
        })
        .collect()
}

fn node_affinity(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let Some(spec) = trial.view().and_then(|pod| pod.spec()) else { return Vec::new() };
    let mut out = Vec::new();
    for (key, value) in spec.node_selector.iter().flatten() {
        let have = info.node.label(key);
        if have != Some(value) {
            let have = have.map_or("the node has none".into(), |v| format!("the node has {v}"));
            out.push(format!("nodeSelector requires {key}={value}: {have}"));
        }
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    if let (Some(affinity), Some(required)) = (affinity, required)
        && !required.node_selector_terms.iter().any(|t| holds(t, info))
    {
        let written: Vec<String> = required.node_selector_terms.iter().map(term).collect();
        let topology = from(affinity_origin(trial, affinity));
        out.push(format!("required node affinity{topology}: {}", written.join(" or ")));
    }
    out
}

/// A term of a node selector in words.
pub(crate) fn term(t: &NodeSelectorTerm) -> String {
    let parts = t.match_expressions.iter().flatten().chain(t.match_fields.iter().flatten());
    let parts: Vec<String> = parts.map(expression).collect();
    if parts.is_empty() { "a term that matches nothing".into() } else { parts.join(" and ") }
}

fn ports(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let taken = trial.pod.spec.host_ports.iter().filter(|p| info.port_taken(p));
    taken
        .map(|want| {
            let holder = info
                .pods
                .iter()
                .find(|p| p.spec.host_ports.iter().any(|h| h.port == want.port && h.protocol == want.protocol));
            let by = holder.map(|p| format!(" by pod {}", p.key)).unwrap_or_default();
            format!("host port {}/{} is taken{by}", want.port, want.protocol)
        })
        .collect()
}

fn resources(trial: &Trial, info: &NodeInfo, reason: &RejectionReason) -> Vec<String> {
    match reason {
        RejectionReason::TooManyPods => {
            vec![format!("it has {} pods and allows {}", info.pods.len(), info.node.max_pods)]
        }
        RejectionReason::InsufficientResource(name) => {
            let has = info.node.allocatable.amount(name);
            let free = has.saturating_sub(info.requested.amount(name)).max(0);
            let want = trial.pod.spec.resources.requests.amount(name);
            let [want, has, free] = [want, has, free].map(|amount| shown(name.as_str(), amount));
            vec![format!("the pod requests {name} {want}; {free} of {has} is free")]
        }
        _ => Vec::new(),
    }
}

fn claims(trial: &Trial, info: &NodeInfo, reason: &RejectionReason) -> Vec<String> {
    let storage = trial.cluster.storage();
    // A node that gives several reasons gets each explained by the claims that are behind that one.
    let of_bound = matches!(reason, RejectionReason::VolumeNodeAffinity(_));
    let mut out = Vec::new();
    for (name, _) in trial.pod.spec.volumes.iter().filter_map(|v| v.claim()) {
        let Some(claim) = storage.claim(&trial.pod.key.namespace, name) else { continue };
        let volume = claim.volume.as_deref().and_then(|v| storage.volume(v));
        match volume {
            Some(volume) if claim.bound && of_bound && !volume.usable_on(&info.node.labels) => {
                let there = trial.cluster.nodes().filter(|i| volume.usable_on(&i.node.labels));
                let there: Vec<String> = there.map(|i| i.node.name.to_string()).collect();
                let place =
                    if there.is_empty() { "on no node of this cluster".into() } else { format!("on {}", join(&there)) };
                out.push(format!("claim {name} is bound to volume {}, which can be used only {place}", volume.name));
            }
            _ if claim.bound || of_bound => {}
            _ => {
                if let Some(node) = claim.selected_node.as_deref().filter(|n| **n != *info.node.name) {
                    out.push(format!("the volume of claim {name} is being provisioned for node {node}"));
                } else if alone_refused(trial, info, name) {
                    out.extend(no_volume(trial, info, claim));
                }
            }
        }
    }
    out
}

/// Whether a node refuses the pod even where this claim is its only one.
fn alone_refused(trial: &Trial, info: &NodeInfo, claim: &str) -> bool {
    let mut spec = (*trial.pod.spec).clone();
    spec.volumes.retain(|v| v.claim().is_some_and(|(name, _)| name == claim));
    let pod = Pod { spec: Arc::new(spec), ..trial.pod.clone() };
    let Some(info) = trial.cluster.node(&info.node.name) else { return false };
    Attempt::new(&trial.cluster, &pod).and_then(|a| a.node(info)).is_err()
}

/// Why a claim that waits can get no volume on a node.
fn no_volume(trial: &Trial, info: &NodeInfo, claim: &Claim) -> Option<String> {
    let storage = trial.cluster.storage();
    let class = storage.class(&claim.class)?;
    let request = claim.request.as_ref();
    let size = request.map(|q| format!(" of {q}")).unwrap_or_default();
    let waits = format!("claim {}{size} in class {} has no volume yet", claim.name, claim.class);
    if *class.provisioner == *"kubernetes.io/no-provisioner" {
        return Some(format!("{waits}, and no free volume fits there"));
    }
    if !class.allows(&info.node.labels) {
        return Some(format!("{waits}, and the class provisions none there (allowedTopologies)"));
    }
    if !storage.publishes_room(&class.provisioner) {
        return None;
    }
    let Some(left) = storage.room(&claim.class, &info.node.labels) else {
        return Some(format!("{waits}, and its driver reports no capacity there"));
    };
    (left < request?.value()).then(|| format!("{waits}, and only {} is left there", shown("memory", left)))
}

/// The causes of a rejection that comes before any node is examined.
pub(crate) fn causes_for_all(trial: &Trial, rejection: &Rejection) -> Vec<String> {
    match rejection.reasons.first() {
        Some(RejectionReason::ClaimDeleting { .. }) => {
            vec!["it is not given to new pods, and is deleted once no pod uses it".into()]
        }
        Some(RejectionReason::EphemeralClaimNotCreated { .. }) => {
            vec!["the controller creates it within seconds of the pod; if it does not, see the pod's events".into()]
        }
        Some(RejectionReason::EphemeralClaimNotOwned(_)) => {
            vec!["a claim of another owner has the name that the pod's own claim needs".into()]
        }
        Some(RejectionReason::NodeAffinityConflict) => {
            vec!["each term of its required node affinity names two different nodes: none can match".into()]
        }
        Some(RejectionReason::ClaimNotFound { claim }) => {
            vec![format!("the pod refers to claim {claim}, which does not exist")]
        }
        Some(RejectionReason::ClaimLost { .. } | RejectionReason::VolumeNotFound { .. }) => {
            vec!["the claim's volume does not exist, unless it was not read".into()]
        }
        Some(RejectionReason::UnboundImmediateClaims) => unbound_claims(trial),
        _ => Vec::new(),
    }
}

/// Why the claims that bind immediately are not bound.
fn unbound_claims(trial: &Trial) -> Vec<String> {
    let storage = trial.cluster.storage();
    let names = trial.pod.spec.volumes.iter().filter_map(|v| v.claim());
    let claims = names.filter_map(|(name, _)| storage.claim(&trial.pod.key.namespace, name));
    let unbound = claims
        .filter(|c| !c.bound && storage.class(&c.class).is_none_or(|k| k.waits != Some(true) || c.volume.is_some()));
    unbound
        .map(|c| match (&*c.class, storage.class(&c.class), &c.volume) {
            (_, _, Some(volume)) => {
                format!("claim {} is to be bound to volume {volume}, but binding was never completed", c.name)
            }
            ("", _, _) => format!("claim {} has no class: nothing provisions a volume for it", c.name),
            (class, None, _) => format!("claim {} is in class {class}, which does not exist", c.name),
            (class, _, _) => {
                format!("claim {} is still waiting for a volume of class {class}: see its events", c.name)
            }
        })
        .collect()
}

/// The labels that say where a volume lies, with the names that they go by today on nodes.
const ZONES: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

fn zones(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let storage = trial.cluster.storage();
    let mut out = Vec::new();
    for (name, _) in trial.pod.spec.volumes.iter().filter_map(|v| v.claim()) {
        let claim = storage.claim(&trial.pod.key.namespace, name);
        let Some(volume) = claim.and_then(|c| storage.volume(c.volume.as_deref()?)) else { continue };
        for (key, current) in ZONES {
            let here = info.node.label(key).or_else(|| info.node.label(current));
            // A volume of several zones has them all in one label.
            let elsewhere = |v: &&String| !v.split("__").any(|zone| here == Some(zone.trim()));
            if let Some(value) = volume.labels.get(key).filter(elsewhere) {
                out.push(format!("claim {name} is bound to volume {}, which is in {key}={value}", volume.name));
            }
        }
    }
    out
}

fn held(trial: &Trial, info: &NodeInfo, reason: &RejectionReason) -> Vec<String> {
    let own = &trial.pod.spec.volumes;
    let here = |other: &Pod| other.node.as_deref() == Some(&*info.node.name);
    let of_disk = *reason == RejectionReason::DiskInUse;
    let mut out = Vec::new();
    for other in trial.cluster.nodes().flat_map(|i| &i.pods) {
        for volume in &other.spec.volumes {
            match volume.claim() {
                Some((name, _)) if !of_disk && own.contains(volume) && held_once(trial, other, name) => {
                    out.push(format!("claim {name} is in use by pod {}", other.key));
                }
                None if of_disk && here(other) && own.iter().any(|v| same_disk(v, volume)) => {
                    out.push(format!("pod {} uses the disk there", other.key));
                }
                _ => {}
            }
        }
    }
    out
}

fn spread(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let Ok(attempt) = Attempt::new(&trial.cluster, &trial.pod) else { return Vec::new() };
    let hard = trial.pod.spec.spread.iter().enumerate().filter(|(_, c)| c.hard).map(|(i, _)| i);
    for (at, spread) in hard.zip(attempt.spread_counts()) {
        let own = trial.view().and_then(|pod| pod.spec()?.topology_spread_constraints.as_ref()?.get(at));
        let key = &*spread.constraint.topology_key;
        let topology = from(own.and_then(|own| spread_origin(trial, own)).map(|(key, _, _)| key));
        let rule = format!("spread by node label {key}{topology}");
        match info.node.label(key) {
            None => return vec![format!("{rule}: it has no label {key}")],
            Some(value) => {
                let skew = skew(trial, &spread, value);
                if skew > i64::from(spread.constraint.max_skew) {
                    return vec![format!("{rule}, {}", skew_line(trial, &spread, value, skew))];
                }
            }
        }
    }
    Vec::new()
}

/// The counts by domain: `A 5, B 4, C 4`.
pub(crate) fn counts(spread: &SpreadCounts) -> String {
    let each: Vec<String> = spread.counts.iter().map(|(v, n)| format!("{v} {n}")).collect();
    each.join(", ")
}

fn skew_line(trial: &Trial, spread: &SpreadCounts, value: &str, skew: i64) -> String {
    let c = &spread.constraint;
    let mut line = format!(
        "maxSkew {}, counting {} in {}: {}; with this pod {value} would have {}, {skew} more than the lowest ({})",
        c.max_skew,
        selected(&c.selector),
        trial.pod.key.namespace,
        counts(spread),
        spread.least + skew,
        spread.least,
    );
    if i64::from(c.min_domains) > spread.counts.len() as i64 {
        line.push_str(&format!("; minDomains {} counts the missing domains as 0", c.min_domains));
    }
    line
}

/// The pods that a selector selects, in words.
fn selected(selector: &Selector) -> String {
    if selector.is_nothing() {
        "no pods (there is no selector)".into()
    } else if selector.is_empty() {
        "any pods".into()
    } else {
        format!("pods with {selector}")
    }
}

fn written(t: &AffinityTerm) -> String {
    format!("{} by {}", selected(&t.selector), t.topology_key)
}

fn pod_affinity(trial: &Trial, info: &NodeInfo, reason: &RejectionReason) -> Vec<String> {
    let spec = &trial.pod.spec;
    match reason {
        RejectionReason::PodAffinity => {
            let unmet = spec.affinity.iter().find_map(|t| match info.node.label(&t.topology_key) {
                None => Some((t, format!("it has no label {}", t.topology_key))),
                Some(_) if in_domain(trial, info, &t.topology_key).any(|p| selects(trial, t, p)) => None,
                Some(_) => Some((t, "there is none in its domain".into())),
            });
            unmet.into_iter().map(|(t, why)| format!("required affinity to {}: {why}", written(t))).collect()
        }
        RejectionReason::PodAntiAffinity => {
            let hits = spec.anti_affinity.iter().map(|t| {
                let hit = in_domain(trial, info, &t.topology_key).filter(|p| selects(trial, t, p));
                (t, hit.collect::<Vec<&Arc<Pod>>>())
            });
            hits.filter(|(_, hit)| !hit.is_empty())
                .map(|(t, hit)| format!("required anti-affinity to {}: {}", written(t), names(&hit)))
                .collect()
        }
        _ => kept_away(trial, info),
    }
}

/// The pods whose own anti-affinity keeps the pod from a node.
fn kept_away(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let mut by_term: BTreeMap<String, Vec<&Arc<Pod>>> = BTreeMap::new();
    for other in trial.cluster.nodes() {
        for pod in &other.pods {
            for t in pod.spec.anti_affinity.iter().filter(|t| selects(trial, t, &trial.pod)) {
                let value = other.node.label(&t.topology_key);
                if value.is_some() && value == info.node.label(&t.topology_key) {
                    by_term.entry(written(t)).or_default().push(pod);
                }
            }
        }
    }
    by_term.into_iter().map(|(t, pods)| format!("the anti-affinity of {} excludes {t}", names(&pods))).collect()
}

fn names(pods: &[&Arc<Pod>]) -> String {
    let shown: Vec<String> = pods.iter().take(3).map(|p| p.key.to_string()).collect();
    let more = pods.len().saturating_sub(3);
    let noun = if pods.len() == 1 { "pod" } else { "pods" };
    if more == 0 { format!("{noun} {}", join(&shown)) } else { format!("{noun} {} and {more} more", shown.join(", ")) }
}
