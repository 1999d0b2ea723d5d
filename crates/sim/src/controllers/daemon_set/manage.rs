//! Which daemon pods are created and deleted so that each node has the pods that it should have (`manage`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use stead_model::fork::Sorted;

use super::super::revisions::hash_of;
use super::view::{NodeState, View, oldest_first};
use crate::event_log::EventNote;
use crate::pods::{is_ready, is_terminating, node_of, phase};
use crate::step::Write;

/// The nodes that get a pod, and the pods that are deleted.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) create: Vec<&'a str>,
    pub(super) delete: Vec<&'a Pod>,
    pub(super) events: Vec<Write>,
    /// When to look again at failed pods that are not deleted yet.
    pub(super) retry: Option<SignedDuration>,
    /// The nodes that are not in order.
    pub(super) open: Vec<&'a str>,
}

/// The back-off of failed pods (`flowcontrol.Backoff` of client-go), by the set's UID and observed generation, and the
/// node.
#[derive(Debug, Clone, Default)]
pub(super) struct FailedPods {
    entries: Sorted<(Arc<str>, i64, Arc<str>), BackOff>,
}

#[derive(Debug, Clone, Copy)]
struct BackOff {
    delay: SignedDuration,
    since: Timestamp,
}

const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(15 * 60);

impl FailedPods {
    /// The delay that a failed pod of the node still has to wait for; none if it may be deleted, which is then counted.
    fn delay(&mut self, view: &View<'_>, node: &str) -> Option<SignedDuration> {
        let uid = view.set.metadata.uid.as_deref().unwrap_or_default();
        let generation = view.set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
        let key = (uid.into(), generation, node.into());
        // An entry that was not used for twice the longest delay starts again.
        let entry = self.entries.get(&key).filter(|entry| view.now.duration_since(entry.since) <= LONGEST_DELAY * 2);
        let delay = match entry {
            Some(entry) if view.now.duration_since(entry.since) < entry.delay => return Some(entry.delay),
            Some(entry) => (entry.delay * 2).min(LONGEST_DELAY),
            None => FIRST_DELAY,
        };
        self.entries.insert(key, BackOff { delay, since: view.now });
        None
    }

    /// A set was removed.
    pub(super) fn forget(&mut self, uid: &str) {
        let of_set = |key: &(Arc<str>, i64, Arc<str>)| (*key.0).cmp(uid).then(std::cmp::Ordering::Greater);
        let keys: Vec<_> = self
            .entries
            .iter_from(of_set)
            .map(|(key, _)| key.clone())
            .take_while(|(other, ..)| **other == *uid)
            .collect();
        for key in keys {
            self.entries.remove(|other| other.cmp(&key));
        }
    }
}

/// What to create and to delete on the nodes of a view.
pub(super) fn plan<'a>(view: &View<'a>, failed: &mut FailedPods) -> Plan<'a> {
    let mut plan = Plan::default();
    let surges = view.max_surge(1).is_some_and(|surge| surge > 0);
    for node in &view.nodes {
        let (before, retry) = ((plan.create.len(), plan.delete.len()), plan.retry.take());
        let pods = node.pods.iter().map(|(_, pod)| &***pod);
        match (node.verdict.should_run, node.verdict.should_continue) {
            // A pod for a node that is gone is never scheduled, and the pod garbage collector does not look at it.
            _ if !node.exists => plan.delete.extend(pods.filter(|pod| node_of(pod).is_none())),
            (true, _) if node.pods.is_empty() => plan.create.push(node.name),
            (_, true) if !node.pods.is_empty() => keep(view, node, failed, surges, &mut plan),
            (_, true) => {}
            (_, false) => plan.delete.extend(pods.filter(|pod| !is_terminating(pod))),
        }
        if before != (plan.create.len(), plan.delete.len()) || plan.retry.is_some() {
            plan.open.push(node.name);
        }
        plan.retry = [retry, plan.retry].into_iter().flatten().min();
    }
    plan
}

/// What to delete on a node that may keep its pods (`podsShouldBeOnNode`).
fn keep<'a>(view: &View<'a>, node: &NodeState<'a>, failed: &mut FailedPods, surges: bool, plan: &mut Plan<'a>) {
    let mut running: Vec<&'a Pod> = Vec::new();
    for pod in node.pods.iter().map(|(_, pod)| &***pod).filter(|pod| !is_terminating(pod)) {
        let named = |state: &str, verb: &str| {
            let metadata = &pod.metadata;
            let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            format!("Found {state} daemon pod {namespace}/{name} on node {}, will try to {verb} it", node.name)
        };
        match phase(pod) {
            "Failed" => match failed.delay(view, node.name) {
                Some(delay) => plan.retry = Some(plan.retry.map_or(delay, |retry| retry.min(delay))),
                None => {
                    let note = EventNote::warning(view.key, "FailedDaemonPod", named("failed", "kill"));
                    plan.events.push(Write::Event(note));
                    plan.delete.push(pod);
                }
            },
            "Succeeded" => {
                let note = EventNote::normal(view.key, "SucceededDaemonPod", named("succeeded", "delete"));
                plan.events.push(Write::Event(note));
                plan.delete.push(pod);
            }
            _ => running.push(pod),
        }
    }
    if running.is_empty() && surges && node.verdict.should_run {
        plan.create.push(node.name);
    }
    if running.len() < 2 {
        return;
    }
    running.sort_by(|a, b| oldest_first(a, b));
    if surges { plan.delete.extend(surplus(view, &running)) } else { plan.delete.extend(&running[1..]) }
}

/// The pods that are deleted while an update may have an old and a new pod on a node: both stay only if the old one is
/// ready and the new one is not available yet.
fn surplus<'a>(view: &View<'a>, running: &[&'a Pod]) -> Vec<&'a Pod> {
    let (mut newest, mut oldest) = (None, None);
    let mut surplus = Vec::new();
    for pod in running {
        let kept = if hash_of(&pod.metadata) == view.hash { &mut newest } else { &mut oldest };
        if kept.is_none() { *kept = Some(*pod) } else { surplus.push(*pod) }
    }
    if let (Some(new), Some(old)) = (newest, oldest)
        && (!is_ready(old) || view.is_available(new))
    {
        surplus.push(old);
    }
    surplus
}
