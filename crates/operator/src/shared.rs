//! State that is shared by watches, workers, the election and the web server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use stead_election::{Leadership, MonotonicClock};
use stead_loops::ObjectKey;
use tokio::sync::Notify;

use crate::index::Index;
use crate::loop_set::LoopSet;
use crate::metrics::Metrics;
use crate::queue::{Ended, Queue};

/// The state of the operator.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) loops: LoopSet,
    pub(crate) clock: MonotonicClock,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) metrics: Metrics,
    index: RwLock<Index>,
    queue: Mutex<Queue>,
    definitions: Mutex<Definitions>,
    /// When objects were last read by name.
    reads: Mutex<BTreeMap<ObjectKey, Duration>>,
    wake: Notify,
}

/// The CRDs of the kinds that have a loop.
#[derive(Debug, Default)]
struct Definitions {
    /// Kinds whose CRD exists, and whether it belongs to somebody else.
    foreign: BTreeMap<&'static str, bool>,
    /// CRDs that do not exist, by name.
    missing: BTreeSet<String>,
}

impl Shared {
    /// Whether a kind's CRD exists and belongs to somebody else.
    pub(crate) fn is_foreign(&self, kind: &str) -> bool {
        self.definitions().foreign.get(kind).copied().unwrap_or_default()
    }

    /// The state at the start.
    pub(crate) fn new(loops: LoopSet, namespaces: Vec<String>) -> Shared {
        Shared {
            loops,
            clock: MonotonicClock::new(),
            leadership: Arc::default(),
            metrics: Metrics::new(),
            index: RwLock::new(Index::new(loops, namespaces)),
            queue: Mutex::default(),
            definitions: Mutex::default(),
            reads: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// The observed state of the cluster. Whoever holds this must not wait for anything.
    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn definitions(&self) -> MutexGuard<'_, Definitions> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reads(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Duration>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an object was last read by name.
    pub(crate) fn last_read(&self, key: &ObjectKey) -> Option<Duration> {
        self.reads().get(key).copied()
    }

    /// An object was read by name, by a request that began at this time.
    pub(crate) fn was_read(&self, key: &ObjectKey, began: Duration) {
        self.reads().insert(key.clone(), began);
    }

    /// Makes all objects that are read by name due.
    #[cfg(test)]
    pub(crate) fn expire_reads(&self) {
        self.reads().clear();
    }

    /// Forgets objects that were read by name, except these.
    pub(crate) fn forget_reads(&self, kept: &BTreeSet<ObjectKey>) {
        self.reads().retain(|key, _| kept.contains(key));
        let mut index = self.index_mut();
        for kind in self.loops.read_by_name {
            index.forget(kind.kind.kind, kept);
        }
    }

    /// Changes the index, and enqueues the objects whose loops the change affects.
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Index) -> Vec<ObjectKey>) {
        let affected = change(&mut self.index_mut());
        self.enqueue(affected);
    }

    /// Enqueues objects that are due now.
    fn enqueue(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        let now = self.clock.now();
        let mut added = false;
        {
            let mut queue = self.queue();
            for key in keys.into_iter().filter(|key| self.is_ours(&key.kind) && self.loops.reconciles(&key.kind)) {
                queue.add(key, now);
                added = true;
            }
        }
        if added {
            self.wake.notify_waiters();
        }
    }

    /// Enqueues all objects, as when this process becomes the leader.
    pub(crate) fn enqueue_all(&self) {
        let keys: Vec<ObjectKey> = {
            let index = self.index();
            self.loops.reconciled.iter().flat_map(|kind| index.store().keys(kind)).cloned().collect()
        };
        self.enqueue(keys);
        self.wake.notify_waiters();
    }

    /// The next object to reconcile; waits until there is one and this process may reconcile it.
    pub(crate) async fn next(&self) -> ObjectKey {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let now = self.clock.now();
            let pause = if !self.is_synced() || self.leadership.allows(now).is_none() {
                Some(Duration::from_millis(250))
            } else {
                let mut queue = self.queue();
                if let Some(key) = queue.take(now) {
                    return key;
                }
                queue.next_due().map(|due| due.saturating_sub(now))
            };
            let pause = pause.unwrap_or(Duration::from_secs(3600));
            // The queue is checked again in either case.
            let _ = tokio::time::timeout(pause, woken).await;
        }
    }

    /// A reconciliation has ended.
    pub(crate) fn end(&self, key: &ObjectKey, ended: Ended) {
        let now = self.clock.now();
        self.queue().end(key, now, ended);
        self.wake.notify_waiters();
    }

    /// How many objects are due.
    pub(crate) fn due(&self) -> usize {
        self.queue().due(self.clock.now())
    }

    /// How long the oldest reconciliation in progress has taken so far.
    pub(crate) fn oldest_work(&self) -> Option<Duration> {
        let since = self.queue().oldest_work()?;
        Some(self.clock.now().saturating_sub(since))
    }

    /// Whether nothing is being reconciled.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue().running() == 0
    }

    /// Whether every watched kind has been listed.
    pub(crate) fn is_synced(&self) -> bool {
        self.index().missing().is_empty()
    }

    /// What the operator waits for before it reconciles; empty if it is ready.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let missing: Vec<String> =
            self.definitions().missing.iter().map(|d| format!("the definition {d} is missing")).collect();
        if !missing.is_empty() {
            return missing;
        }
        self.index().missing().iter().map(|kind| format!("{kind} has not been listed yet")).collect()
    }

    /// Whether objects of this kind may be written. A kind that has a loop may be written only when its CRD is known to be
    /// Stead's.
    pub(crate) fn is_ours(&self, kind: &str) -> bool {
        self.definitions().foreign.get(kind).map_or(!self.loops.reconciles(kind), |foreign| !foreign)
    }

    /// Whether a kind's CRD exists, whoever installed it.
    pub(crate) fn is_defined(&self, kind: &str) -> bool {
        !self.loops.reconciles(kind) || self.definitions().foreign.contains_key(kind)
    }

    /// A CRD was deleted. The next one of that name may be somebody else's.
    pub(crate) fn undefine(&self, kind: &str) {
        self.definitions().foreign.remove(kind);
    }

    /// A CRD was found, or not. Returns whether that is a change.
    pub(crate) fn define(&self, kind: &'static str, definition: &str, found: Option<bool>) -> bool {
        let mut definitions = self.definitions();
        match found {
            Some(foreign) => {
                definitions.missing.remove(definition);
                definitions.foreign.insert(kind, foreign) != Some(foreign)
            }
            None => definitions.missing.insert(definition.to_owned()),
        }
    }
}
