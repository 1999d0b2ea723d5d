//! The attach and detach operations of a volume: which are running, and when a failed one may be repeated
//! (`nestedpendingoperations`, `exponentialbackoff`, and the polling of `csi_attacher.go`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::state::VolumeSpec;
use crate::choices::Choices;
use crate::object::SimKey;

/// The first delay after a failed operation, doubled with each further one.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(500);
/// The longest delay after a failed operation.
const LAST_RETRY: SignedDuration = SignedDuration::from_secs(122);
/// How long an operation waits for the driver (`csiTimeout`).
const TIMEOUT: SignedDuration = SignedDuration::from_secs(120);
/// From the start of an operation to the first look at its VolumeAttachment. Each further one comes 5 % later.
const FIRST_POLL: SignedDuration = SignedDuration::from_millis(500);
/// The longest time between two looks.
const LAST_POLL: SignedDuration = SignedDuration::from_secs(7);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    Attach,
    Detach,
}

/// What an operation works on: the node, or the volume wherever it is if only one node can have it.
pub(super) type OperationKey = Option<Arc<str>>;

/// An operation that waits for the driver.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) key: OperationKey,
    pub(super) kind: OperationKind,
    pub(super) node: Arc<str>,
    pub(super) spec: Option<VolumeSpec>,
    /// The pods that waited for the volume when the operation was started.
    pub(super) pods: Vec<SimKey>,
    started: Timestamp,
    next_poll: Timestamp,
    interval: SignedDuration,
}

impl Running {
    pub(super) fn new(
        key: OperationKey,
        kind: OperationKind,
        node: &Arc<str>,
        started: Timestamp,
        choices: &mut Choices,
    ) -> Running {
        let node = Arc::clone(node);
        let (spec, pods, interval) = (None, Vec::new(), FIRST_POLL);
        let mut running = Running { key, kind, node, spec, pods, started, next_poll: started, interval };
        running.schedule(started, choices);
        running
    }

    /// Sets the time of the next look after one.
    fn schedule(&mut self, now: Timestamp, choices: &mut Choices) {
        let jitter = choices.jitter(self.interval / 10);
        self.next_poll = now + self.interval + jitter;
        self.interval = SignedDuration::min(self.interval * 21 / 20, LAST_POLL);
    }

    /// When something can happen: the next look, or the timeout.
    pub(super) fn due(&self) -> Timestamp {
        self.next_poll.min(self.started + TIMEOUT)
    }

    /// Goes on waiting. Gives whether there is still time.
    pub(super) fn wait(&mut self, now: Timestamp, choices: &mut Choices) -> bool {
        let in_time = now < self.started + TIMEOUT;
        if in_time {
            self.schedule(now, choices);
        }
        in_time
    }
}

/// An operation that is running or has failed.
#[derive(Debug, Clone)]
struct Operation {
    key: OperationKey,
    kind: OperationKind,
    running: Option<Running>,
    /// When it failed, and how long it is not repeated from then on.
    failed: Option<(Timestamp, SignedDuration)>,
}

impl Operation {
    /// Until when it is not repeated; none if it may be.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        let (at, wait) = self.failed?;
        Some(at + wait).filter(|until| now <= *until)
    }
}

/// The operations of a volume.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations(Vec<Operation>);

impl Operations {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operation that a new one has to respect: a running one on the same node, or on any if either is about the whole
    /// volume; else a failed one, with the same key if possible (`isOperationExists`).
    fn previous(&self, key: &OperationKey) -> Option<usize> {
        let matches = |other: &Operation| other.key.is_none() || key.is_none() || other.key == *key;
        let running = self.0.iter().position(|other| matches(other) && other.running.is_some());
        let same = || self.0.iter().position(|other| other.key == *key);
        running.or_else(same).or_else(|| self.0.iter().position(matches))
    }

    /// Whether an operation is running (`IsOperationPending`).
    pub(super) fn is_running(&self, key: &OperationKey) -> bool {
        self.previous(key).is_some_and(|at| self.0[at].running.is_some())
    }

    /// Whether an operation may be started (`IsOperationSafeToRetry`); if not, until when it has to wait for a failed one.
    pub(super) fn check(&self, key: &OperationKey, kind: OperationKind, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let Some(previous) = self.previous(key).map(|at| &self.0[at]) else { return Ok(()) };
        if previous.running.is_some() {
            return Err(None);
        }
        match previous.held_until(now) {
            Some(until) if previous.kind == kind => Err(Some(until)),
            _ => Ok(()),
        }
    }

    /// Starts an operation that may be started (`Run`).
    pub(super) fn start(&mut self, running: Running, now: Timestamp) {
        let (key, kind) = (running.key.clone(), running.kind);
        match self.previous(&key) {
            None => self.0.push(Operation { key, kind, running: Some(running), failed: None }),
            Some(at) => {
                let previous = &mut self.0[at];
                // One that failed long ago keeps its name and its count, as in Kubernetes.
                if previous.held_until(now).is_some() {
                    (previous.kind, previous.failed) = (kind, None);
                }
                (previous.key, previous.running) = (key, Some(running));
            }
        }
    }

    /// Adds an operation that failed in the past.
    pub(super) fn add_failed(&mut self, key: OperationKey, kind: OperationKind, at: Timestamp, wait: SignedDuration) {
        let failed = Some((at, wait.clamp(FIRST_RETRY, LAST_RETRY)));
        self.0.push(Operation { key, kind, running: None, failed });
    }

    /// Takes the running operations that are due. Each has to be finished or put back.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<Running> {
        let due = |operation: &mut Operation| operation.running.take_if(|running| running.due() <= now);
        self.0.iter_mut().filter_map(due).collect()
    }

    fn position(&self, key: &OperationKey) -> Option<usize> {
        self.0.iter().position(|other| other.key == *key)
    }

    /// Puts an operation back that goes on.
    pub(super) fn put_back(&mut self, running: Running) {
        if let Some(at) = self.position(&running.key) {
            self.0[at].running = Some(running);
        }
    }

    /// An operation has succeeded.
    pub(super) fn succeeded(&mut self, key: &OperationKey) {
        if let Some(at) = self.position(key) {
            self.0.swap_remove(at);
        }
    }

    /// An operation has failed.
    pub(super) fn failed(&mut self, key: &OperationKey, now: Timestamp) {
        let Some(at) = self.position(key) else { return };
        let wait = self.0[at].failed.map_or(FIRST_RETRY, |(_, wait)| (wait * 2).min(LAST_RETRY));
        (self.0[at].running, self.0[at].failed) = (None, Some((now, wait)));
    }

    /// When a running operation is looked at.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|operation| operation.running.as_ref()).map(Running::due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    fn running(node: Option<&str>, kind: OperationKind) -> Running {
        let node = node.map(Arc::from);
        Running::new(node.clone(), kind, &node.unwrap_or_default(), at(0), &mut Choices::enumerated())
    }

    #[test]
    fn operations_exclude_each_other_by_volume_and_node() {
        use OperationKind::{Attach, Detach};
        let (a, b): (OperationKey, OperationKey) = (Some("a".into()), Some("b".into()));
        let mut operations = Operations::default();
        operations.start(running(Some("a"), Attach), at(0));
        assert!(operations.is_running(&a) && operations.is_running(&None) && !operations.is_running(&b));
        assert_eq!(operations.check(&b, Detach, at(0)), Ok(()));
        operations.failed(&a, at(0));
        // The same operation waits; another one does not, and resets the delay.
        assert_eq!(operations.check(&a, Attach, at(500)), Err(Some(at(500))));
        assert_eq!(operations.check(&a, Attach, at(501)), Ok(()));
        assert_eq!(operations.check(&a, Detach, at(100)), Ok(()));
        operations.start(running(Some("a"), Detach), at(100));
        operations.failed(&a, at(200));
        assert_eq!(operations.check(&a, Detach, at(700)), Err(Some(at(700))));
        operations.start(running(Some("a"), Detach), at(800));
        operations.failed(&a, at(900));
        assert_eq!(operations.check(&a, Detach, at(1_900)), Err(Some(at(1_900))));
        operations.start(running(Some("a"), Detach), at(2_000));
        operations.succeeded(&a);
        assert!(operations.is_empty());
    }

    #[test]
    fn a_driver_is_polled_ever_more_rarely_for_two_minutes() {
        let mut choices = Choices::enumerated();
        let mut operation = running(None, OperationKind::Attach);
        let mut polls = Vec::new();
        loop {
            let now = operation.due();
            polls.push(now.as_millisecond());
            if !operation.wait(now, &mut choices) {
                break;
            }
        }
        assert_eq!(polls[..3], [500, 1_025, 1_576]);
        assert_eq!((polls.len(), polls.last()), (53, Some(&120_000)));
    }
}
