//! Reconciles one object: asks its loop, and sends the writes that the loop wants, in order, if they change anything.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use stead_client::{ApiPath, ApiRequest, DeletePolicy, Preconditions};
use stead_loops::{
    Failures, LoopEvent, LoopSettings, LoopStep, MANAGER, ObjectKey, Objects, Propagation, World, Write, applied,
    foreign_fields, ownership, recent_events, trim,
};
use stead_model::Kind;
use tracing::{debug, error, info, warn};

use crate::api::{Api, Fault, get, path_of};
use crate::cluster::Reader;
use crate::queue::Ended;
use crate::references;
use crate::shared::Shared;

/// After how many transient failures in a row the loop is told, and a conflict is no longer retried at once.
const PERSISTENT: u32 = 3;

/// Runs loops and sends their writes.
pub(crate) struct Executor<A> {
    api: A,
    shared: Arc<Shared>,
    settings: LoopSettings,
    /// The reporting instance of events.
    instance: String,
    reader: Reader,
    memory: Mutex<Memory>,
}

/// What is remembered between reconciles. It is lost with the process; without it, some requests are repeated.
#[derive(Debug, Default)]
struct Memory {
    troubles: BTreeMap<ObjectKey, Trouble>,
    recent_events: recent_events::RecentEvents,
    /// Applies after which the object still differs from what was wanted: digests of the object and of what was wanted.
    unsettled: BTreeMap<ObjectKey, (u64, u64)>,
}

/// The failures of the writes for one object.
#[derive(Debug, Default)]
struct Trouble {
    failures: Failures,
    /// Transient failures in a row, by the object to be written.
    strikes: BTreeMap<ObjectKey, u32>,
}

/// A loop panicked. It has been logged.
struct Panicked;

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
enum Made {
    /// There was nothing to write.
    Nothing,
    /// Something was written: the verb.
    Wrote(&'static str),
}

impl<A: Api> Executor<A> {
    /// An executor without memory.
    pub(crate) fn new(api: A, shared: Arc<Shared>, settings: LoopSettings, instance: String) -> Executor<A> {
        Executor { api, shared, settings, instance, reader: Reader::default(), memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reconciles an object, unless its CRD turned out to belong to somebody else in the meantime.
    pub(crate) async fn look(&self, key: &ObjectKey) -> Ended {
        if !self.shared.is_ours(&key.kind) {
            return Ended::Well { again: None };
        }
        let began = self.shared.clock.now();
        let mut log = Vec::new();
        let ended = self.reconcile(key, &mut log).await;
        if !log.is_empty() {
            info!(object = %key, "{}", log.join(", "));
        }
        let result = match ended {
            Ended::Well { .. } => "ok",
            Ended::Outdated => "again",
            Ended::Badly { .. } => "error",
        };
        self.shared.metrics.reconciled(&key.kind, result, self.shared.clock.now().saturating_sub(began));
        ended
    }

    async fn reconcile(&self, key: &ObjectKey, log: &mut Vec<String>) -> Ended {
        let troubled = self.memory().troubles.get(key).is_some_and(|t| !t.failures.is_empty());
        for reference in references::stale(&self.shared, key) {
            if let Err(fault) = references::read(&self.api, &self.shared, &reference).await {
                // The last known version is used until the object can be read.
                if self.live(&reference).is_none() {
                    return self.failed(key, None, &reference, fault, log).await;
                }
                debug!(object = %key, "reading {reference}: {fault}");
            }
            self.forget(key, &reference);
        }
        let Ok(mut step) = self.step(key).await else { return Ended::Badly { at_least: None } };
        let mut changed = false;
        let mut next = 0;
        while let Some(mut write) = step.writes.get(next).cloned() {
            next += 1;
            if matches!(write, Write::Status { .. }) && std::mem::take(&mut changed) {
                // A write changes the status: a StatefulSet with a new template has not rolled it out yet.
                let Ok(fresh) = self.step(key).await else { return Ended::Badly { at_least: None } };
                let status = fresh.writes.iter().find(|w| matches!(w, Write::Status { .. })).cloned();
                step.again = fresh.again;
                write = status.unwrap_or(write);
            }
            let write = &write;
            let Some(target) = target(write) else { continue };
            match self.make(write, &target).await {
                Ok(made) => {
                    changed |= matches!(made, Made::Wrote(_)) && !matches!(write, Write::Event(_));
                    self.note(&made, write, &target, log);
                    if !matches!(write, Write::Event(_)) {
                        self.forget(key, &target);
                    }
                }
                Err(fault) => return self.failed(key, Some(write), &target, fault, log).await,
            }
        }
        // All writes succeeded.
        self.memory().troubles.remove(key);
        if troubled {
            return Ended::Outdated;
        }
        Ended::Well { again: step.again }
    }

    /// Asks the loop what to write; with the whole cluster if it needs that.
    async fn step(&self, key: &ObjectKey) -> Result<LoopStep, Panicked> {
        let step = self.ask(key, None)?;
        if !step.wants_cluster {
            return Ok(step);
        }
        let Some(cluster) = self.reader.read(&self.api, &self.shared).await else { return Ok(step) };
        // Placement may take long: it must not block other tasks.
        tokio::task::block_in_place(|| self.ask(key, Some(&cluster)))
    }

    fn ask(&self, key: &ObjectKey, cluster: Option<&Objects>) -> Result<LoopStep, Panicked> {
        let failures = self.memory().troubles.get(key).map(|t| t.failures.clone()).unwrap_or_default();
        let now = Timestamp::now();
        let world = |store| World { store, cluster, failures: &failures, now, settings: &self.settings };
        if cluster.is_some() {
            let store = self.shared.index().store().clone();
            return self.guarded(&world(&store), key);
        }
        self.guarded(&world(self.shared.index().store()), key)
    }

    /// A panic over one object must not stop the others: it is logged, and the object is retried later. A loop is pure, so
    /// nothing is left half done.
    fn guarded(&self, world: &World<'_>, key: &ObjectKey) -> Result<LoopStep, Panicked> {
        let step = AssertUnwindSafe(|| (self.shared.loops.step)(world, key));
        catch_unwind(step).map_err(|_| {
            error!(object = %key, "the loop panicked: this is a bug in Stead; the object is retried later");
            Panicked
        })
    }

    fn forget(&self, key: &ObjectKey, target: &ObjectKey) {
        if let Some(trouble) = self.memory().troubles.get_mut(key) {
            trouble.failures.remove(target);
            trouble.strikes.remove(target);
        }
    }

    /// A write failed, or an object that the loop depends on could not be read: the loop can report that in status and
    /// events, and runs again later.
    async fn failed(
        &self,
        key: &ObjectKey,
        write: Option<&Write>,
        target: &ObjectKey,
        fault: Fault,
        log: &mut Vec<String>,
    ) -> Ended {
        let (strikes, told) = {
            let mut memory = self.memory();
            let trouble = memory.troubles.entry(key.clone()).or_default();
            let strikes = trouble.strikes.entry(target.clone()).or_default();
            *strikes += 1;
            let strikes = *strikes;
            let told = !fault.is_transient() || strikes >= PERSISTENT;
            if told {
                trouble.failures.insert(target.clone(), fault.failure.clone());
            }
            (strikes, told)
        };
        let verb = if write.is_some() { "writing" } else { "reading" };
        if told {
            warn!(object = %key, "{verb} {target}: {fault}");
        } else {
            debug!(object = %key, "{verb} {target}: {fault}");
        }
        if fault.is_conflict() {
            self.refresh(target).await;
        }
        if told {
            self.say(key, write, log).await;
        }
        if fault.is_conflict() && strikes < PERSISTENT {
            return Ended::Outdated;
        }
        Ended::Badly { at_least: fault.retry_after }
    }

    /// Asks the loop once more, and sends only status and events.
    async fn say(&self, key: &ObjectKey, failed: Option<&Write>, log: &mut Vec<String>) {
        let Ok(step) = self.step(key).await else { return };
        for write in &step.writes {
            if !matches!(write, Write::Status { .. } | Write::Event(_)) || Some(write) == failed {
                continue;
            }
            let Some(target) = target(write) else { continue };
            match self.make(write, &target).await {
                Ok(made) => self.note(&made, write, &target, log),
                Err(fault) => debug!(object = %key, "reporting a failed write on {target}: {fault}"),
            }
        }
    }

    fn note(&self, made: &Made, write: &Write, target: &ObjectKey, log: &mut Vec<String>) {
        let Made::Wrote(verb) = made else { return };
        let kind = if matches!(write, Write::Event(_)) { "Event" } else { &target.kind };
        self.shared.metrics.wrote(kind, verb);
        log.push(match write {
            Write::Event(event) => format!("event {}", event.reason),
            Write::Status { .. } => format!("status of {target}"),
            _ => format!("{verb} {target}"),
        });
    }

    /// Sends a write if it changes anything.
    async fn make(&self, write: &Write, target: &ObjectKey) -> Result<Made, Fault> {
        if let Write::Event(event) = write {
            return Ok(self.event(event).await);
        }
        if !self.shared.is_ours(&target.kind) {
            debug!("{target} is not written: its CRD belongs to somebody else");
            return Ok(Made::Nothing);
        }
        let Some(kind) = Kind::named(&target.kind) else { return Err(Fault::unknown_kind(target)) };
        let path = ApiPath::from(kind);
        match write {
            Write::Apply { object, exclusive } => self.apply(path, target, object, exclusive).await,
            Write::Status { object } => self.status(path, target, object).await,
            Write::Patch { body, .. } => match self.api.send(patch(path, target, body)).await {
                Err(fault) if fault.is_not_found() => self.gone(target),
                answer => answer.map(|answer| self.learn(answer)).map(|()| Made::Wrote("patch")),
            },
            Write::Delete { uid, propagation, .. } => self.delete(path, target, uid, *propagation).await,
            Write::Event(_) => Ok(Made::Nothing),
        }
    }

    async fn apply(
        &self,
        path: ApiPath<'_>,
        target: &ObjectKey,
        wanted: &Value,
        paths: &[&'static str],
    ) -> Result<Made, Fault> {
        if let Some(conflict) = self.unseen(path, target).await?.and_then(|live| ownership::conflict(wanted, &live)) {
            return Err(Fault::precondition_failed(conflict));
        }
        let mut made = Made::Nothing;
        let body = wanted;
        // Objects in the index are trimmed: both sides are compared in the same form.
        let wanted = &trim(wanted.clone());
        if self.would_change(target, wanted) {
            let live = self.live(target);
            let answer = self.api.send(apply(path.object(&target.namespace, &target.name), body)).await?;
            if live.as_ref().is_none_or(|l| l["metadata"]["resourceVersion"] != answer["metadata"]["resourceVersion"]) {
                made = Made::Wrote("apply");
            }
            self.learn(answer);
            self.settle(target, wanted);
        }
        let extra = self.live(target).and_then(|live| foreign_fields::removal(&live, wanted, paths));
        if let Some(extra) = extra {
            let answer = self.api.send(patch(path, target, &extra)).await?;
            self.learn(answer);
            made = Made::Wrote("apply");
        }
        Ok(made)
    }

    /// Reads an object that no watch has shown: its kind is watched with a label selector that it may not match. It is not
    /// kept in the index, since no watch would update it.
    async fn unseen(&self, path: ApiPath<'_>, target: &ObjectKey) -> Result<Option<Value>, Fault> {
        if self.shared.loops.knows_all(&target.kind) || self.live(target).is_some() {
            return Ok(None);
        }
        match self.api.send(get(path, target)).await {
            Err(fault) if fault.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Whether an apply would change the object.
    fn would_change(&self, target: &ObjectKey, wanted: &Value) -> bool {
        let Some(live) = self.live(target) else { return true };
        if !applied::differs(&live, wanted) {
            return false;
        }
        let tried = self.memory().unsettled.get(target).copied();
        tried != Some((applicable_digest(&live), digest(wanted)))
    }

    /// Remembers an apply after which the object still differs: applying the same again changes nothing.
    fn settle(&self, target: &ObjectKey, wanted: &Value) {
        let unsettled = self.live(target).filter(|live| applied::differs(live, wanted));
        let mut memory = self.memory();
        match unsettled {
            Some(live) => {
                debug!("{target}: the server stores it in another form than it was applied");
                memory.unsettled.insert(target.clone(), (applicable_digest(&live), digest(wanted)));
            }
            None => {
                memory.unsettled.remove(target);
            }
        }
    }

    async fn status(&self, path: ApiPath<'_>, target: &ObjectKey, wanted: &Value) -> Result<Made, Fault> {
        let Some(live) = self.live(target) else { return Ok(Made::Nothing) };
        if live["status"] == wanted["status"] {
            return Ok(Made::Nothing);
        }
        match self.api.send(apply(format!("{}/status", path.object(&target.namespace, &target.name)), wanted)).await {
            Err(fault) if fault.is_not_found() => self.gone(target),
            answer => {
                let answer = answer?;
                let same = live["metadata"]["resourceVersion"] == answer["metadata"]["resourceVersion"];
                self.learn(answer);
                Ok(if same { Made::Nothing } else { Made::Wrote("status") })
            }
        }
    }

    async fn delete(
        &self,
        path: ApiPath<'_>,
        target: &ObjectKey,
        uid: &str,
        propagation: Propagation,
    ) -> Result<Made, Fault> {
        let same = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let policy = match propagation {
            Propagation::Background => DeletePolicy::Background,
            Propagation::Foreground => DeletePolicy::Foreground,
        };
        let request = ApiRequest::delete(path.object(&target.namespace, &target.name), &same, policy);
        match self.api.send(request).await {
            Err(fault) if fault.is_not_found() => self.shared.learn(|index| index.delete(target, uid)),
            Err(fault) => return Err(fault),
            // An object with finalizers is returned; otherwise the answer is a Status.
            Ok(answer) if answer["kind"] == target.kind.as_str() && answer["metadata"]["uid"] == uid => {
                self.learn(answer);
            }
            Ok(_) => self.shared.learn(|index| index.delete(target, uid)),
        }
        Ok(Made::Wrote("delete"))
    }

    /// An object to be changed no longer exists: there is nothing to do.
    fn gone(&self, target: &ObjectKey) -> Result<Made, Fault> {
        let uid = self.shared.index().uid(target).map(str::to_owned);
        if let Some(uid) = uid {
            self.shared.learn(|index| index.delete(target, &uid));
        }
        Ok(Made::Nothing)
    }

    /// Creates an event. If that fails, the reconcile goes on.
    async fn event(&self, event: &LoopEvent) -> Made {
        let now = self.shared.clock.now();
        if !self.memory().recent_events.is_new(now, event) {
            return Made::Nothing;
        }
        let about = &event.about;
        let live = self.live(about).unwrap_or_default();
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let time = Timestamp::now();
        let stem: String = about.name.chars().take(200).collect();
        let object = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": format!("{stem}.{:x}", time.as_nanosecond()), "namespace": namespace},
            "eventTime": format!("{time:.6}"),
            "reportingController": "stead-operator",
            "reportingInstance": self.instance,
            "action": "Reconcile",
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "note": recent_events::note(&event.message),
            "regarding": {
                "apiVersion": live["apiVersion"],
                "kind": about.kind,
                "name": about.name,
                "namespace": about.namespace,
                "uid": live["metadata"]["uid"],
                "resourceVersion": live["metadata"]["resourceVersion"],
            },
        });
        let events = ApiPath { api_version: "events.k8s.io/v1", plural: "events", namespaced: true };
        let request = ApiRequest::create(events.collection(Some(namespace)), &object).managed_by(MANAGER);
        match self.api.send(request).await {
            Ok(_) => Made::Wrote("create"),
            Err(fault) => {
                debug!("event {} about {about}: {fault}", event.reason);
                self.memory().recent_events.forget(event);
                Made::Nothing
            }
        }
    }

    fn live(&self, key: &ObjectKey) -> Option<Value> {
        self.shared.index().store().raw(key).cloned()
    }

    /// Puts the answer to a write into the index, so that the next reconcile sees it. An object of a kind that is not
    /// watched is not kept, since no watch would update it.
    fn learn(&self, answer: Value) {
        if answer["kind"].as_str().is_some_and(|kind| self.shared.loops.kind(kind).is_some()) {
            self.shared.learn(|index| index.put(trim(answer)));
        }
    }

    /// Reads an object after a conflict, without waiting for its watch.
    async fn refresh(&self, target: &ObjectKey) {
        let Some(watched) = self.shared.loops.kind(&target.kind) else { return };
        match self.api.send(get(path_of(watched), target)).await {
            Ok(object) => self.learn(object),
            Err(fault) if fault.is_not_found() => {
                let _ = self.gone(target);
            }
            Err(fault) => debug!("reading {target}: {fault}"),
        }
    }

    /// The remembered failures of an object's writes.
    #[cfg(test)]
    fn failures(&self, key: &ObjectKey) -> Vec<(String, stead_loops::Failure)> {
        let memory = self.memory();
        let failures = memory.troubles.get(key).into_iter().flat_map(|t| &t.failures);
        failures.map(|(k, f)| (k.to_string(), f.clone())).collect()
    }
}

/// Applies an object, or its status.
fn apply(path: String, object: &Value) -> ApiRequest {
    ApiRequest::apply(path, object).managed_by(MANAGER)
}

/// Changes fields of an object.
fn patch(path: ApiPath<'_>, key: &ObjectKey, body: &Value) -> ApiRequest {
    ApiRequest::patch(path.object(&key.namespace, &key.name), body).managed_by(MANAGER)
}

/// The object that a write is about.
fn target(write: &Write) -> Option<ObjectKey> {
    match write {
        Write::Apply { object, .. } | Write::Status { object } => ObjectKey::of(object),
        Write::Patch { key, .. } | Write::Delete { key, .. } => Some(key.clone()),
        Write::Event(event) => Some(event.about.clone()),
    }
}

/// A digest of the fields that an apply could change.
fn applicable_digest(live: &Value) -> u64 {
    let mut live = live.clone();
    if let Some(map) = live.as_object_mut() {
        map.remove("status");
    }
    if let Some(meta) = live["metadata"].as_object_mut() {
        for field in ["resourceVersion", "managedFields", "generation"] {
            meta.remove(field);
        }
    }
    digest(&live)
}

fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
