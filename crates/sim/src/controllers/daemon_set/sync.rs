//! One look at a DaemonSet (`syncDaemonSet`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_model::times::seconds;

use super::super::pod_control;
use super::super::revisions::{HASH_LABEL, HashCollision, History, Versioned, hash_of};
use super::manage::{self, Plan};
use super::placement::{Placement, PodTemplate};
use super::tally::TallyBasis;
use super::view::{Placed, View, join};
use super::{DaemonSets, EXPECTATIONS, PodPlace, rolling_update, selector};
use crate::api::daemon_set_strategy::template_generation;
use crate::event_log::EventNote;
use crate::object::{SimKey, SimObject};
use crate::pods::{has_ended, is_terminating};
use crate::step::{Context, Write};

/// The most pods that are created, and the most that are deleted, in one step (`BurstReplicas`).
const BURST: usize = 250;

/// Pods have to be adopted or released before anything else.
pub(super) struct Adopting(pub(super) Vec<Write>);

impl DaemonSets {
    /// `syncDaemonSet`.
    pub(super) fn sync(
        &mut self,
        cx: &mut Context<'_>,
        key: &SimKey,
        set: &Arc<DaemonSet>,
    ) -> Result<Vec<Write>, Adopting> {
        let Some(spec) = set.spec.as_ref() else { return Ok(Vec::new()) };
        let selector = selector(set);
        if selector.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            return Ok(vec![Write::Event(EventNote::warning(key, "SelectingAll", message))]);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Vec::new());
        }
        let owner = SimObject::DaemonSet(Arc::clone(set));
        let claims = self.unclaimed.claim(cx.store, &owner, &selector, None);
        if !claims.is_empty() {
            return Err(Adopting(claims));
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let versioned = Versioned { owner: &owner, selector: &selector, template: &spec.template, collisions };
        let mut history = match self.revisions.history(cx, &versioned) {
            Ok(history) => history,
            Err(HashCollision) => {
                let status = set.status.clone().unwrap_or_default();
                let status = DaemonSetStatus { collision_count: Some(collisions + 1), ..status };
                return Ok(vec![write_status(set, status)]);
            }
        };
        let mut writes = std::mem::take(&mut history.writes);
        if history.relabel {
            writes.extend(relabel(self.placed(owner.uid()), &history.hash));
        }
        writes.extend(self.reconcile(cx, key, set, &owner, &history));
        Ok(writes)
    }

    /// Creates and deletes pods, updates the history and the status.
    fn reconcile(
        &mut self,
        cx: &mut Context<'_>,
        key: &SimKey,
        set: &Arc<DaemonSet>,
        owner: &SimObject,
        history: &History,
    ) -> Vec<Write> {
        let uid = owner.uid();
        let mut failed = std::mem::take(&mut self.failed);
        let mut tally = self.tallies.remove(|other| (**other).cmp(uid)).unwrap_or_default();
        let expecting = self.expecting.get(key).is_some_and(|until| cx.now < *until);
        let placement = Placement::of(set);
        let basis = TallyBasis {
            generation: set.metadata.generation,
            template_generation: template_generation(set),
            hash: history.hash.clone(),
        };
        let todo = Arc::make_mut(&mut tally).todo(basis);
        let pods: Vec<Placed<'_>> = match todo {
            Some(nodes) => nodes.iter().flat_map(|node| self.placed_on(uid, node)).filter(is_present).collect(),
            None => self.placed(uid).filter(is_present).collect(),
        };
        let nodes = match todo {
            Some(nodes) => join(nodes.iter().filter_map(|node| cx.store.get::<Node>("", node)), &placement, &pods),
            None => join(cx.store.all::<Node>(), &placement, &pods),
        };
        let view = |nodes| View {
            key,
            set,
            now: cx.now,
            nodes,
            hash: &history.hash,
            generation: template_generation(set).map(|generation| generation.to_string()),
        };
        let mut view = view(nodes);
        let mut plan = Plan::default();
        if expecting {
            plan.open = view.nodes.iter().map(|node| node.name).collect();
        } else {
            plan = manage::plan(&view, &mut failed);
        }
        Arc::make_mut(&mut tally).count(&view, &plan.open);
        let total = tally.total();
        let (retry, mut writes) = (plan.retry, std::mem::take(&mut plan.events));
        let all: Vec<Placed<'_>>;
        if !expecting && plan.create.is_empty() && plan.delete.is_empty() && total.may_update(&view) {
            all = self.placed(uid).filter(is_present).collect();
            view.nodes = join(cx.store.all::<Node>(), &placement, &all);
            plan = rolling_update::plan(&view, cx.choices);
        }
        let missing = !plan.create.is_empty() && pod_control::is_namespace_terminating(cx.store, &key.namespace);
        execute(cx, &view, plan, owner, missing, &mut writes);
        if !expecting {
            let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
            writes.extend(self.clean_up(uid, history, limit));
        }
        writes.extend(changed_status(set, total.status(set), !expecting).map(|status| write_status(set, status)));
        let minimum = seconds(i64::from(view.min_ready_seconds()));
        let lagging = Some(minimum).filter(|minimum| !minimum.is_zero() && total.is_lagging());
        self.failed = failed;
        self.tallies.insert(uid.into(), tally);
        if missing {
            self.expecting.insert(key.clone(), cx.now + EXPECTATIONS);
        }
        let delays: [Option<SignedDuration>; 2] = [retry, lagging];
        delays.into_iter().flatten().for_each(|delay| self.delayed.add(key, cx.now + delay));
        writes
    }

    /// The pods of a set, in the order of their nodes.
    fn placed<'a>(&'a self, uid: &str) -> impl Iterator<Item = Placed<'a>> {
        let first = |key: &PodPlace| (*key.0).cmp(uid).then(std::cmp::Ordering::Greater);
        let pods = self.pods.iter_from(first).take_while(move |((owner, ..), _)| **owner == *uid);
        pods.map(|((_, node, _), pod)| (&**node, pod))
    }

    /// The pods of a set for one node.
    fn placed_on<'a>(&'a self, uid: &str, node: &str) -> impl Iterator<Item = Placed<'a>> {
        let first = |key: &PodPlace| (*key.0).cmp(uid).then_with(|| (*key.1).cmp(node)).then(std::cmp::Ordering::Greater);
        let is_there = move |(owner, other, _): &PodPlace| **owner == *uid && **other == *node;
        let pods = self.pods.iter_from(first).take_while(move |(key, _)| is_there(key));
        pods.map(|((_, node, _), pod)| (&**node, pod))
    }

    /// Old revisions that no pod has, over the limit (`cleanupHistory`).
    fn clean_up(&self, uid: &str, history: &History, limit: i32) -> Vec<Write> {
        if history.old.len() <= usize::try_from(limit).unwrap_or_default() {
            return Vec::new();
        }
        let live: BTreeSet<&str> = self.placed(uid).map(|(_, pod)| hash_of(&pod.metadata)).collect();
        history.truncate(limit, |hash| live.contains(hash))
    }
}

/// Whether a pod still counts: the controller is done with one that has ended and is being deleted.
fn is_present((_, pod): &Placed<'_>) -> bool {
    !has_ended(pod) || !is_terminating(pod)
}

/// Creates and deletes pods (`syncNodes`). In a namespace that is being deleted none can be created.
fn execute(
    cx: &mut Context<'_>,
    view: &View<'_>,
    plan: Plan<'_>,
    owner: &SimObject,
    missing: bool,
    writes: &mut Vec<Write>,
) {
    if !plan.create.is_empty() && !missing {
        let template = PodTemplate::of(view.set, owner, view.hash);
        for node in plan.create.into_iter().take(BURST) {
            writes.extend(pod_control::create(cx, template.for_node(node), &format!(" on {node}"), view.key));
        }
    }
    writes.extend(plan.delete.into_iter().take(BURST).flat_map(|pod| pod_control::delete(pod, view.key)));
}

/// Gives the pods of duplicate revisions the hash of the one that stays.
fn relabel<'a>(pods: impl Iterator<Item = Placed<'a>>, hash: &str) -> Vec<Write> {
    let others = pods.filter(|(_, pod)| hash_of(&pod.metadata) != hash);
    let relabelled = others.map(|(_, pod)| {
        let mut pod = Pod::clone(pod);
        pod.metadata.labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.into());
        pod.metadata.resource_version = None;
        Write::Replace(pod.into())
    });
    relabelled.collect()
}

/// The status to write; none if it is as it was (`storeDaemonSetStatus`).
fn changed_status(set: &DaemonSet, mut status: DaemonSetStatus, observed: bool) -> Option<DaemonSetStatus> {
    let before = set.status.clone().unwrap_or_default();
    let is_observed = before.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
    if status == before && is_observed {
        return None;
    }
    if observed {
        status.observed_generation = set.metadata.generation;
    }
    Some(status)
}

fn write_status(set: &DaemonSet, status: DaemonSetStatus) -> Write {
    let mut set = set.clone();
    set.metadata.resource_version = None;
    set.status = Some(status);
    Write::Status(set.into())
}
