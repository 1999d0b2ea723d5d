//! Where the replacements of released pods go.

use std::collections::{BTreeMap, BTreeSet};

use stead_model::{ModelError, NodeHealth, OUT_OF_SERVICE, Objects, PodController, PodView, stateful_set};
use stead_placement::{Cluster, Node, Pod, PodKey, evaluate};

use crate::annotation;
use crate::record::ReplacementTarget;
use crate::record_size::BEST_NODES;

/// The prefix of the taints that the node controller sets.
const NODE_CONTROLLER_TAINTS: &str = "node.kubernetes.io/";

/// The replacements of the pods of a node, placed one after the other in the order in which they are asked for.
pub(crate) struct Replacements<'a> {
    objects: &'a Objects,
    node: &'a NodeHealth<'a>,
    /// The cluster with the node out of service and the replacements so far placed; none before its first use.
    cluster: Option<Cluster>,
    /// The UIDs of existing pods that are replacements already.
    used: BTreeSet<&'a str>,
    /// How many pods each controller, by UID, would still create for the pods so far.
    expected: BTreeMap<&'a str, i32>,
}

impl<'a> Replacements<'a> {
    pub(crate) fn new(objects: &'a Objects, node: &'a NodeHealth<'a>) -> Replacements<'a> {
        Replacements { objects, node, cluster: None, used: BTreeSet::new(), expected: BTreeMap::new() }
    }

    /// Where the replacement of a pod would go, and how many nodes can run it.
    pub(crate) fn target(&mut self, pod: PodView<'a>) -> Result<(ReplacementTarget, usize), ModelError> {
        let Some(owner) = pod.controller() else { return Ok((ReplacementTarget::NotRecreated, 0)) };
        let is_other = |other: &PodView<'_>| {
            !other.is_terminating()
                && !other.has_ended()
                && other.node() != Some(self.node.name())
                && other.controller().is_some_and(|controller| controller.uid == owner.uid)
        };
        let others: Vec<PodView<'a>> = self.objects.pods_in(pod.namespace()).filter(is_other).collect();
        let expected = self.expected.entry(&owner.uid).or_default();
        let existing = i32::try_from(others.len()).unwrap_or(i32::MAX).saturating_add(*expected);
        let enough = creates_no_more(self.objects, pod, existing);
        // A pod that was created as the replacement usually waits; if no more are created, it may be Ready by now.
        let unused =
            |other: &&PodView<'a>| pod.is_terminating() && other.uid().is_some_and(|uid| !self.used.contains(uid));
        let waiting = others.iter().filter(unused).find(|other| !other.is_ready());
        let ready = || others.iter().filter(unused).find(|other| enough && was_created_after_deletion(**other, pod));
        let next = match waiting.or_else(ready) {
            Some(other) => {
                self.used.extend(other.uid());
                if let Some(node) = other.node() {
                    return Ok((ReplacementTarget::Nodes(vec![node.into()]), 1));
                }
                *other
            }
            None if enough => return Ok((ReplacementTarget::NotRecreated, 0)),
            None => {
                *expected += 1;
                pod
            }
        };
        let compiled = Pod::from_objects(self.objects, next.key())?;
        let away = PodKey::new(pod.namespace(), pod.name());
        let node = self.node.name();
        let cluster = self.cluster()?;
        cluster.remove_pod(&away);
        cluster.remove_pod(&compiled.key);
        Ok(place(cluster, &compiled, node))
    }

    /// The cluster, with the node out of service.
    fn cluster(&mut self) -> Result<&mut Cluster, ModelError> {
        if self.cluster.is_none() {
            let mut cluster = Cluster::from_objects(self.objects, None);
            let mut node = self.node.typed().clone();
            // Taints of others may be removed at any moment.
            let stays = |key: &str| key.starts_with(NODE_CONTROLLER_TAINTS) && key != OUT_OF_SERVICE;
            let taints = self.node.taints().iter().filter(|taint| stays(&taint.key)).cloned();
            node.spec.get_or_insert_default().taints = Some(taints.chain([annotation::taint()]).collect());
            cluster.set_node(Node::compile(&node)?);
            self.cluster = Some(cluster);
        }
        Ok(self.cluster.as_mut().expect("it was set above"))
    }
}

/// Whether the controller of a pod creates no pod in its place, if so many others exist or are on their way.
fn creates_no_more(objects: &Objects, pod: PodView<'_>, existing: i32) -> bool {
    match PodController::of(objects, pod) {
        PodController::StatefulSet { set: Some(set) } => !stateful_set::pod_in_ordinal_range(set, pod.name()),
        PodController::ReplicaSet { set: Some(set) } => {
            let replicas = set.replicas().unwrap_or_default();
            // A ReplicaSet of an older revision wants none: the Deployment creates the next pod through another one.
            let old_revision = replicas == 0 && set.metadata().owner_references.is_some();
            !old_revision && existing >= replicas
        }
        _ => false,
    }
}

/// Whether a pod was created after the deletion of another was requested.
fn was_created_after_deletion(pod: PodView<'_>, deleted: PodView<'_>) -> bool {
    pod.created().zip(deleted.deletion_requested()).is_none_or(|(created, requested)| created >= requested)
}

/// Places a pod as the scheduler would, for the pods after it, and counts the nodes that can run it.
fn place(cluster: &mut Cluster, pod: &Pod, away_from: &str) -> (ReplacementTarget, usize) {
    let verdict = match evaluate(cluster, pod) {
        Ok(verdict) => verdict,
        Err(unmodelled) => return (ReplacementTarget::NoNode(unmodelled.to_string()), 0),
    };
    let mut feasible: Vec<_> = verdict.scores.iter().collect();
    let count = feasible.len();
    if feasible.iter().any(|(node, _)| ***node == *away_from) {
        let why = "it tolerates all taints of this node, so that its replacement could be scheduled to this node";
        return (ReplacementTarget::NoNode(why.into()), 0);
    }
    feasible.sort_by_key(|(node, scores)| (-scores.total, (*node).clone()));
    let nodes: Vec<String> = feasible.iter().take(BEST_NODES).map(|(node, _)| node.to_string()).collect();
    match nodes.first() {
        Some(best) => {
            // The node was just evaluated, so the cluster has it.
            let _ = cluster.assume(pod, best);
            (ReplacementTarget::Nodes(nodes), count)
        }
        None => {
            let why = verdict.message.or_else(|| verdict.error.map(|error| error.to_string()));
            (ReplacementTarget::NoNode(why.unwrap_or_else(|| "no node can run it".into())), 0)
        }
    }
}
