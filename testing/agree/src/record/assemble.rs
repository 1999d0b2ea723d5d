//! Makes a recording of what was seen and done.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_testbed::ClusterSpec;

use super::perform::Done;
use super::watch::Seen;
use crate::recording::{Deed, Header, Moment, Recording, What, difference, key_of};
use crate::situation::Situation;

/// How long after a deed a snapshot is taken at the earliest.
const AFTER_DEED: SignedDuration = SignedDuration::from_millis(300);

/// A run that is over.
pub(super) struct Run<'a> {
    pub(super) situation: &'a Situation,
    pub(super) cluster: ClusterSpec,
    /// When the situation was set up.
    pub(super) began: Timestamp,
    pub(super) end: Timestamp,
    pub(super) done: &'a [Done],
    pub(super) pod_gc_run: Option<Timestamp>,
}

/// The recording of a run.
pub(super) fn recording(run: &Run<'_>, seen: &[Seen]) -> Recording {
    let snapshot_at = snapshot_at(run);
    let mut seen: Vec<&Seen> = seen.iter().collect();
    seen.sort_by_key(|seen| seen.version);
    let version = seen.iter().filter(|seen| seen.at <= snapshot_at).map(|seen| seen.version).max().unwrap_or_default();
    let (before, after) = seen.split_at(seen.partition_point(|seen| seen.version <= version));
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    for seen in before {
        match seen.removed {
            true => drop(objects.remove(&key_of(&seen.object))),
            false => drop(objects.insert(key_of(&seen.object), seen.object.clone())),
        }
    }
    let snapshot = objects.values().cloned().collect();
    let since = |at: Timestamp| i64::try_from(at.duration_since(snapshot_at).as_millis()).unwrap_or_default().max(0);
    let mut moments = changes(after, &mut objects, since);
    let done = run.done.iter().filter(|done| done.at > snapshot_at).map(|done| Moment {
        at: since(done.at),
        what: What::Did { action: done.action.clone(), deed: done.deed.clone(), refused: done.refused.clone() },
    });
    moments.extend(done);
    moments.sort_by_key(|moment| moment.at);
    Recording { header: header(run, snapshot_at), snapshot, moments }
}

/// The planned time of the snapshot, or the end of what is being done then.
fn snapshot_at(run: &Run<'_>) -> Timestamp {
    let millis = i64::try_from(run.situation.snapshot_at).unwrap_or_default();
    let mut at = run.began + SignedDuration::from_millis(millis);
    for done in run.done {
        if done.began <= at && at <= done.at + AFTER_DEED {
            at = done.at + AFTER_DEED;
        }
    }
    at
}

/// The changes of objects. Heartbeats are implied.
fn changes(seen: &[&Seen], objects: &mut BTreeMap<String, Value>, since: impl Fn(Timestamp) -> i64) -> Vec<Moment> {
    let mut moments = Vec::new();
    for seen in seen.iter().filter(|seen| seen.object["kind"] != "Lease") {
        let key = key_of(&seen.object);
        let what = if seen.removed {
            objects.remove(&key);
            What::Removed(key)
        } else {
            match objects.insert(key.clone(), seen.object.clone()) {
                Some(before) => What::Changed(key, difference(&before, &seen.object)),
                None => What::Created(seen.object.clone()),
            }
        };
        moments.push(Moment { at: since(seen.at), what });
    }
    // An object is not seen before the change that caused it.
    for i in (1..moments.len()).rev() {
        moments[i - 1].at = moments[i - 1].at.min(moments[i].at);
    }
    moments
}

fn header(run: &Run<'_>, snapshot_at: Timestamp) -> Header {
    let situation = run.situation;
    let (mut down, mut detach_errors, mut driver_errors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for done in run.done.iter().filter(|done| done.at <= snapshot_at) {
        match &done.deed {
            Deed::Fail { node, how } => drop(down.insert(node.clone(), *how)),
            Deed::Heal { node } => drop(down.remove(node)),
            Deed::DetachError { volume, message } => set(&mut detach_errors, volume, message.as_ref()),
            Deed::DriverError { driver, message } => set(&mut driver_errors, driver, message.as_ref()),
            Deed::Kubectl { .. } | Deed::Evict { .. } => {}
        }
    }
    Header {
        format: Header::FORMAT,
        name: situation.name(),
        situation: situation.to_string(),
        actions: situation.actions.iter().map(|action| action.kind.name().to_owned()).collect(),
        workloads: situation.workloads.iter().map(|workload| workload.kind.name().to_owned()).collect(),
        attached: situation.has_attached_volumes(),
        node_fails: situation.node_fails(),
        real_timers: situation.timers.real,
        cluster: run.cluster.clone(),
        jobs_fail: situation.jobs_fail,
        began: snapshot_at,
        length: i64::try_from(run.end.duration_since(snapshot_at).as_millis()).unwrap_or_default(),
        pod_gc_run: run.pod_gc_run,
        down,
        detach_errors,
        driver_errors,
    }
}

fn set(errors: &mut BTreeMap<String, String>, name: &str, message: Option<&String>) {
    match message {
        Some(message) => drop(errors.insert(name.to_owned(), message.clone())),
        None => drop(errors.remove(name)),
    }
}
