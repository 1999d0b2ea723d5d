//! One scheduling cycle, the reference path: every filter on every node, every score on every feasible node.
//!
//! It follows kube-scheduler step by step, without caches. The fast path (`fast/`) is tested against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::node::NodeInfo;
use crate::plugins::{
    fit, images, in_tree_limits, interpod, node, normalize, spread, volume_binding, volume_limits, volume_restrictions,
    volume_zone,
};
use crate::pod::{NamedNodes, Pod, SpreadConstraint};
use crate::preemption;
use crate::profile::{Point, Profile};
use crate::status::{
    AttemptFault, Code, ExtensionPoint, Filtered, Plugin, ReasonCounts, Rejection, RejectionReason, SchedulingError,
};
use crate::verdict::{NodeScores, Refusal, Unmodelled, Verdict};
use crate::wording::{NO_DEVICE_STATE, NO_NODES, fit_message, prefilter_message};

/// The state that PreFilter computes. Pods can be added and removed, as for nominated pods and preemption victims.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    profile: Arc<Profile>,
    restrictions: Option<volume_restrictions::State>,
    limits: bool,
    binding: Option<volume_binding::State<'a>>,
    zone: Option<volume_zone::State>,
    spread: Option<spread::State<'a>>,
    interpod: Option<interpod::State<'a>>,
}

impl<'a> State<'a> {
    /// Runs PreFilter in the order of the plugins, up to the first rejection.
    fn new(cluster: &'a Cluster, pod: &'a Pod) -> Result<State<'a>, AttemptFault> {
        let spec = &*pod.spec;
        let profile = cluster.profile(pod);
        let on = |plugin: Plugin| profile.runs(Point::PreFilter, plugin);
        if let NamedNodes::Only(names) = &spec.named_nodes
            && names.is_empty()
            && on(Plugin::NodeAffinity)
        {
            let reason = RejectionReason::NodeAffinityConflict;
            return Err(AttemptFault::Rejected(Rejection::new(Plugin::NodeAffinity, Code::Unresolvable, reason)));
        }
        Ok(State {
            cluster,
            pod,
            restrictions: match on(Plugin::VolumeRestrictions) {
                true => volume_restrictions::State::new(cluster, spec).map_err(AttemptFault::Rejected)?,
                false => None,
            },
            limits: on(Plugin::NodeVolumeLimits) && volume_limits::applies(pod),
            binding: match on(Plugin::VolumeBinding) {
                true => volume_binding::State::new(cluster, pod)
                    .map_err(|f| f.in_plugin(ExtensionPoint::PreFilter, Plugin::VolumeBinding))?,
                false => None,
            },
            zone: if on(Plugin::VolumeZone) { volume_zone::State::new(cluster, spec)? } else { None },
            spread: if on(Plugin::PodTopologySpread) { spread::State::new(cluster, spec) } else { None },
            interpod: if on(Plugin::InterPodAffinity) { interpod::State::new(cluster, spec) } else { None },
            profile,
        })
    }

    /// Adds a pod to a node (1) or removes it (-1) in the counts of PreFilter.
    pub(crate) fn update(&mut self, other: &Pod, info: &'a crate::node::Node, n: i64) {
        if let Some(s) = &mut self.restrictions {
            s.update(other, n);
        }
        if let Some(s) = &mut self.spread {
            s.update(&self.pod.spec, other, info, n);
        }
        if let Some(s) = &mut self.interpod {
            s.update(&self.pod.spec, other, info, n);
        }
    }

    fn filter(&self, info: &NodeInfo) -> Filtered {
        let (spec, rules) = (&*self.pod.spec, self.cluster.rules());
        let on = |plugin: Plugin| self.profile.runs(Point::Filter, plugin);
        if on(Plugin::NodeUnschedulable) {
            node::unschedulable(spec, &info.node)?;
        }
        if on(Plugin::TaintToleration) {
            node::taints(spec, &info.node, rules)?;
        }
        if on(Plugin::NodeAffinity) {
            node::affinity(spec, &info.node)?;
        }
        if on(Plugin::NodePorts) {
            node::ports(spec, info)?;
        }
        if on(Plugin::NodeResourcesFit) {
            fit::filter(spec, info, rules)?;
        }
        if let Some(s) = self.restrictions.as_ref().filter(|_| on(Plugin::VolumeRestrictions)) {
            s.filter(spec, info, rules)?;
        }
        if self.limits {
            in_tree_limits::filter(&in_tree_limits::BEFORE_CSI, self.cluster, self.pod, info)?;
        }
        if self.limits && on(Plugin::NodeVolumeLimits) {
            volume_limits::filter(self.cluster, self.pod, info)
                .map_err(|f| f.in_plugin(ExtensionPoint::Filter, Plugin::NodeVolumeLimits))?;
        }
        if self.limits {
            in_tree_limits::filter(&in_tree_limits::AFTER_CSI, self.cluster, self.pod, info)?;
        }
        if let Some(s) = self.binding.as_ref().filter(|_| on(Plugin::VolumeBinding)) {
            s.filter(self.cluster, &info.node)
                .map_err(|f| f.in_plugin(ExtensionPoint::Filter, Plugin::VolumeBinding))?;
        }
        if let Some(s) = self.zone.as_ref().filter(|_| on(Plugin::VolumeZone)) {
            s.filter(&info.node)?;
        }
        if let Some(s) = self.spread.as_ref().filter(|_| on(Plugin::PodTopologySpread)) {
            s.filter(spec, &info.node)?;
        }
        if let Some(s) = self.interpod.as_ref().filter(|_| on(Plugin::InterPodAffinity)) {
            s.filter(spec, &info.node)?;
        }
        if on(Plugin::NodeDeclaredFeatures) { node::features(spec, &info.node) } else { Ok(()) }
    }

    /// Runs the filters with the pods nominated for the node and again without them: the pod has to pass both.
    pub(crate) fn filter_with_nominated(&self, info: &NodeInfo, node: &'a crate::node::Node) -> Filtered {
        let yields_to = |p: &&Arc<Pod>| p.spec.priority >= self.pod.spec.priority && p.uid != self.pod.uid;
        let nominated: Vec<&Arc<Pod>> = self.cluster.nominated_to(&info.node.name).iter().filter(yields_to).collect();
        if !nominated.is_empty() {
            let (mut state, mut info) = (self.clone(), info.clone());
            for pod in nominated {
                state.update(pod, node, 1);
                info.add(Arc::clone(pod));
            }
            state.filter(&info)?;
        }
        self.filter(info)
    }
}

/// An attempt to place one pod, for questions about single nodes.
#[derive(Debug, Clone)]
pub struct Attempt<'a>(State<'a>);

impl<'a> Attempt<'a> {
    /// Runs PreFilter. A rejection here holds for all nodes.
    pub fn new(cluster: &'a Cluster, pod: &'a Pod) -> Result<Attempt<'a>, AttemptFault> {
        State::new(cluster, pod).map(Attempt)
    }

    /// Runs the filters on a node.
    pub fn node(&self, info: &'a NodeInfo) -> Result<(), AttemptFault> {
        named(self.0.cluster, self.0.pod, info).map_or(Ok(()), |r| Err(AttemptFault::Rejected(r)))?;
        self.0.filter_with_nominated(info, &info.node)
    }

    /// The number of pods in each domain, for each hard spread constraint.
    pub fn spread_counts(&self) -> Vec<SpreadCounts> {
        let Some(spread) = &self.0.spread else { return Vec::new() };
        let owned = |counts: &BTreeMap<&str, i64>| counts.iter().map(|(v, n)| ((*v).into(), *n)).collect();
        (0..spread.constraints.len())
            .map(|i| SpreadCounts {
                constraint: spread.constraints[i].clone().into_owned(),
                counts: owned(&spread.counts[i]),
                least: spread.least(i),
            })
            .collect()
    }
}

/// The pods that a spread constraint counts, by domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadCounts {
    /// The constraint.
    pub constraint: SpreadConstraint,
    /// The number of pods for each value of the topology key.
    pub counts: BTreeMap<Box<str>, i64>,
    /// The minimum over the domains (0 with fewer domains than `minDomains`).
    pub least: i64,
}

/// Rejects a node that is not listed, if the pod's required affinity lists nodes by name.
fn named(cluster: &Cluster, pod: &Pod, info: &NodeInfo) -> Option<Rejection> {
    match &pod.spec.named_nodes {
        NamedNodes::Only(names)
            if !names.contains(&*info.node.name)
                && cluster.profile(pod).runs(Point::PreFilter, Plugin::NodeAffinity) =>
        {
            let reason = RejectionReason::NodeNotNamed { reported: cluster.rules().reports_unlisted_nodes };
            Some(Rejection::new(Plugin::NodeAffinity, Code::Unresolvable, reason))
        }
        _ => None,
    }
}

/// Evaluates a pod as kube-scheduler would: all rejections, scores, ties, the message and preemption.
pub fn evaluate(cluster: &Cluster, pod: &Pod) -> Result<Verdict, Unmodelled> {
    let mut rejected = BTreeMap::new();
    let found = search(cluster, pod, |info, rejection| {
        rejected.insert(Arc::clone(&info.node.name), rejection);
    })?;
    Ok(match found {
        Found::Nodes(fitting) => {
            let mut verdict = Verdict { rejected, ..Verdict::default() };
            verdict.score(cluster, pod, &fitting);
            verdict
        }
        Found::None(refusal) => {
            // An error says nothing about nodes.
            let rejected = if refusal.error.is_some() { BTreeMap::new() } else { rejected };
            let Refusal { message, nominees, clears_nomination, error, .. } = refusal;
            Verdict { rejected, message, nominees, clears_nomination, error, ..Verdict::default() }
        }
    })
}

/// Why no node is feasible, as [`evaluate`] finds it, at a fraction of the cost; none if some node is feasible.
pub fn refusal(cluster: &Cluster, pod: &Pod) -> Result<Option<Refusal>, Unmodelled> {
    Ok(match search(cluster, pod, |_, _| {})? {
        Found::None(refusal) => Some(refusal),
        Found::Nodes(fitting) => {
            // Scoring can fail, too.
            let mut verdict = Verdict::default();
            verdict.score(cluster, pod, &fitting);
            verdict.error.map(Refusal::failed)
        }
    })
}

/// The result of PreFilter, Filter and PostFilter.
enum Found<'a> {
    /// The feasible nodes.
    Nodes(Vec<&'a NodeInfo>),
    /// None, and why.
    None(Refusal),
}

/// Looks for feasible nodes, and tells about each rejected one.
fn search<'a>(
    cluster: &'a Cluster,
    pod: &'a Pod,
    mut rejected: impl FnMut(&'a NodeInfo, Rejection),
) -> Result<Found<'a>, Unmodelled> {
    check_modelled(cluster, pod)?;
    if cluster.node_count() == 0 {
        let message = Some(NO_NODES.into());
        return Ok(Found::None(Refusal { message, clears_nomination: true, ..Refusal::default() }));
    }
    let state = match State::new(cluster, pod) {
        Ok(state) => state,
        Err(AttemptFault::Error(error)) => return Ok(Found::None(Refusal::failed(error))),
        Err(AttemptFault::Rejected(rejection)) => {
            cluster.nodes().for_each(|info| rejected(info, rejection.clone()));
            return Ok(Found::None(rejected_before_filtering(cluster, pod, &rejection)));
        }
    };
    let nominated = pod.nominated.as_deref().and_then(|n| cluster.node(n));
    if let Some(info) = nominated.filter(|i| state.filter_with_nominated(i, &i.node).is_ok()) {
        return Ok(Found::Nodes(vec![info]));
    }
    let mut fitting = Vec::new();
    let mut codes = Vec::with_capacity(cluster.node_count());
    let mut reasons = ReasonCounts::default();
    let mut plugins = BTreeSet::new();
    for info in cluster.nodes() {
        let fault = match named(cluster, pod, info) {
            Some(rejection) => Err(AttemptFault::Rejected(rejection)),
            None => state.filter_with_nominated(info, &info.node),
        };
        match fault {
            Ok(()) => {
                fitting.push(info);
                codes.push(None);
            }
            Err(AttemptFault::Rejected(rejection)) => {
                codes.push(Some(rejection.code));
                reasons.add_all(&rejection);
                plugins.insert(rejection.plugin);
                rejected(info, rejection);
            }
            Err(AttemptFault::Error(error)) => return Ok(Found::None(Refusal::failed(error))),
        }
    }
    if !fitting.is_empty() {
        return Ok(Found::Nodes(fitting));
    }
    let outcome = preemption::preempt(&state, cluster, pod, &codes);
    let mut message = fit_message(cluster.node_count(), reasons.iter());
    if let Some(more) = &outcome.message {
        message.push(' ');
        message.push_str(more);
    }
    let preemption::Outcome { nominees, clears_nomination, .. } = outcome;
    Ok(Found::None(Refusal { plugins, message: Some(message), nominees, clears_nomination, error: None }))
}

pub(crate) fn check_modelled(cluster: &Cluster, pod: &Pod) -> Result<(), Unmodelled> {
    let rules = cluster.rules();
    if let Some(claim) = pod.spec.resource_claims.first().filter(|_| rules.dynamic_resources) {
        return Err(Unmodelled {
            pod: pod.key.clone(),
            field: format!("spec.resourceClaims[{claim}]"),
            what: "devices claimed through dynamic resource allocation".into(),
        });
    }
    let device = pod.spec.resources.requests.scalars.iter().find(|(n, q)| *q > 0 && cluster.is_device_resource(n));
    match device.filter(|_| rules.device_extended_resources) {
        None => Ok(()),
        Some((name, _)) => Err(Unmodelled {
            pod: pod.key.clone(),
            field: format!("spec.containers[*].resources.requests[{name}]"),
            what: "an extended resource that a DeviceClass provides".into(),
        }),
    }
}

/// A rejection by a PreFilter plugin holds for every node.
fn rejected_before_filtering(cluster: &Cluster, pod: &Pod, rejection: &Rejection) -> Refusal {
    let (post_filter, clears_nomination) = if cluster.rules().dynamic_resources {
        (NO_DEVICE_STATE.to_owned(), false)
    } else {
        preemption::without_candidates(cluster, pod, rejection.code)
    };
    let message = Some(prefilter_message(cluster.node_count(), rejection, &post_filter));
    Refusal { plugins: BTreeSet::from([rejection.plugin]), message, clears_nomination, ..Refusal::default() }
}

impl Refusal {
    /// An attempt that ended with an error.
    fn failed(error: SchedulingError) -> Refusal {
        Refusal { error: Some(error), clears_nomination: true, ..Refusal::default() }
    }
}

impl Verdict {
    fn score(&mut self, cluster: &Cluster, pod: &Pod, fitting: &[&NodeInfo]) {
        let (spec, rules) = (&*pod.spec, cluster.rules());
        let zeros = || vec![0; fitting.len()];
        let profile = cluster.profile(pod);
        let on = |plugin: Plugin| profile.runs(Point::Score, plugin);
        if let Some(fault) = &spec.preferred_fault
            && profile.runs(Point::PreScore, Plugin::NodeAffinity)
        {
            let error = SchedulingError::PreferredNodeAffinity(fault.clone());
            self.error = Some(error.in_plugin(ExtensionPoint::PreScore, Plugin::NodeAffinity));
            self.clears_nomination = true;
            return;
        }
        let mut columns: Vec<(Plugin, Vec<i64>)> = Vec::new();
        let mut taints: Vec<i64> = fitting.iter().map(|i| node::taint_score(spec, &i.node)).collect();
        normalize(&mut taints, true);
        columns.push((Plugin::TaintToleration, taints));
        if let Some(mut scores) =
            fitting.iter().map(|i| node::affinity_score(spec, &i.node)).collect::<Option<Vec<_>>>()
        {
            normalize(&mut scores, false);
            columns.push((Plugin::NodeAffinity, scores));
        } else if rules.scores_without_preference {
            columns.push((Plugin::NodeAffinity, zeros()));
        }
        if rules.scores_without_preference {
            columns.push((Plugin::VolumeBinding, zeros()));
        }
        columns.push((Plugin::NodeResourcesFit, fitting.iter().map(|i| fit::score(spec, i, profile.fit)).collect()));
        if let Some(scores) = spread::score(cluster, spec, fitting) {
            columns.push((Plugin::PodTopologySpread, scores));
        }
        if let Some(scores) = interpod::score(cluster, spec, fitting) {
            columns.push((Plugin::InterPodAffinity, scores));
        }
        if rules.device_scores {
            columns.push((Plugin::DynamicResources, zeros()));
        }
        if fit::scores_balance(spec, rules) {
            let scores = fitting.iter().map(|i| fit::balance_score(spec, i, rules)).collect();
            columns.push((Plugin::NodeResourcesBalancedAllocation, scores));
        }
        let scores = fitting.iter().map(|i| images::score(cluster, spec, &i.node)).collect();
        columns.push((Plugin::ImageLocality, scores));
        columns.retain(|(plugin, _)| on(*plugin));
        for (at, info) in fitting.iter().enumerate() {
            let by_plugin: BTreeMap<Plugin, i64> =
                columns.iter().map(|(plugin, scores)| (*plugin, profile.weight(*plugin) * scores[at])).collect();
            let total = by_plugin.values().sum();
            self.scores.insert(Arc::clone(&info.node.name), NodeScores { by_plugin, total });
        }
        let best = self.scores.values().map(|s| s.total).max();
        self.best = self.scores.iter().filter(|(_, s)| Some(s.total) == best).map(|(n, _)| Arc::clone(n)).collect();
    }
}
