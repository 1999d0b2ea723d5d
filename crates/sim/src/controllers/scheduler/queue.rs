//! The queue of pods to schedule (`pkg/scheduler/backend/queue`).
//!
//! A pod waits to be tried (active), waits for the end of its back-off, or is in the pool of pods that were rejected: an
//! event that may help moves it out of there, or a sweep after five minutes. A scheduling attempt takes no time here, so
//! no event arrives during one, and there is nothing to replay after it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stead_model::fork::Sorted;
use stead_placement::Pod;

use super::plugin_set::PluginSet;
use crate::object::SimKey;
use crate::settings::Settings;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Pods that come within this time come at the same moment: which of them is the first depends on how long the requests of
/// their controllers take.
const SAME_MOMENT: SignedDuration = SignedDuration::from_millis(100);

/// The rules and times of the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueRules {
    /// 1.33: back-offs end on whole seconds, and a pod that backs off is tried early if no other pod waits
    /// (SchedulerPopFromBackoffQ).
    windows: bool,
    /// Before 1.34: every attempt makes the back-off longer, not only rejections.
    counts_attempts: bool,
    first: SignedDuration,
    most: SignedDuration,
    timeout: SignedDuration,
    sweep: SignedDuration,
    started: Timestamp,
}

impl QueueRules {
    /// The rules of a version. Timers count from the start of the scheduler.
    pub(super) fn of(settings: &Settings, started: Timestamp) -> QueueRules {
        let timers = &settings.timers;
        QueueRules {
            windows: settings.since(33),
            counts_attempts: !settings.since(34),
            first: timers.scheduler_backoff,
            most: timers.scheduler_backoff_max,
            timeout: timers.unschedulable_timeout,
            sweep: timers.unschedulable_sweep,
            started,
        }
    }

    fn duration(&self, count: u32) -> SignedDuration {
        let factor = 1_i32.checked_shl(count.saturating_sub(1).min(30)).unwrap_or(i32::MAX);
        self.first.checked_mul(factor).unwrap_or(self.most).min(self.most)
    }

    fn aligned(&self, at: Timestamp) -> Timestamp {
        if self.windows { Timestamp::from_second(at.as_second()).unwrap_or(at) } else { at }
    }

    /// The last tick of a timer, and the next one after a time.
    fn ticks(&self, period: SignedDuration, at: Timestamp) -> (Timestamp, Timestamp) {
        let period = period.max(SignedDuration::from_nanos(1));
        let passed = at.duration_since(self.started).as_nanos().div_euclid(period.as_nanos());
        let number = i32::try_from(passed).unwrap_or(i32::MAX - 1).max(0);
        (self.started + period * number, self.started + period * (number + 1))
    }

    /// When a pod whose back-off ends at this time is moved to the active pods.
    fn flushed(&self, expiry: Timestamp) -> Timestamp {
        if self.windows {
            return expiry + SECOND;
        }
        let (last, next) = self.ticks(SECOND, expiry);
        if last >= expiry { last } else { next }
    }

    /// When a pod is taken out of the pool without a reason.
    fn swept(&self, since: Timestamp) -> Timestamp {
        self.ticks(self.sweep, since + self.timeout).1
    }
}

/// The order of pods: the higher priority, then the longer wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: Reverse<i32>,
    since: Timestamp,
    number: u64,
}

/// Where a pod waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuePlace {
    /// It is tried next.
    Active,
    /// It was rejected, and is tried again when its back-off ends.
    BackOff(Timestamp),
    /// Its attempt ended with an error; it is tried again when its back-off ends.
    ErrorBackOff(Timestamp),
    /// It was rejected and waits for an event, or has scheduling gates.
    Pool,
}

/// A pod in the queue.
#[derive(Debug, Clone)]
pub(super) struct QueuedPod {
    pub(super) key: SimKey,
    pub(super) pod: Arc<Pod>,
    pub(super) place: QueuePlace,
    turn: Turn,
    /// Attempts, rejections, and errors since the last rejection.
    attempts: u32,
    rejections: u32,
    errors: u32,
    /// The plugins that rejected it in the last attempt.
    pub(super) rejected_by: PluginSet,
    /// Whether it was woken while its victims were being deleted: only the removal of a pod wakes it now.
    pub(super) held: bool,
}

impl QueuedPod {
    /// A pod that was not tried yet.
    pub(super) fn new(key: SimKey, pod: Arc<Pod>, since: Timestamp) -> QueuedPod {
        let turn = Turn { priority: Reverse(pod.spec.priority), since, number: 0 };
        QueuedPod {
            key,
            pod,
            place: QueuePlace::Active,
            turn,
            attempts: 0,
            rejections: 0,
            errors: 0,
            rejected_by: PluginSet::default(),
            held: false,
        }
    }

    /// The same after attempts that ended with a rejection.
    pub(super) fn after_rejections(self, rejections: u32) -> QueuedPod {
        QueuedPod { rejections, attempts: rejections, ..self }
    }

    /// Whether it has scheduling gates.
    pub(super) fn is_gated(&self) -> bool {
        !self.pod.gates.is_empty()
    }

    fn expiry(&self, rules: &QueueRules) -> Option<Timestamp> {
        let count = match () {
            () if rules.counts_attempts => self.attempts,
            () if self.errors > 0 => self.errors,
            () => self.rejections,
        };
        (count > 0).then(|| rules.aligned(self.turn.since + rules.duration(count)))
    }

    /// The end of its back-off, if it has not come yet.
    fn backs_off(&self, now: Timestamp, rules: &QueueRules) -> Option<Timestamp> {
        let waits = |expiry: &Timestamp| match rules.windows {
            true => *expiry >= rules.aligned(now),
            false => *expiry > now,
        };
        self.expiry(rules).filter(waits)
    }
}

/// All pods that wait.
#[derive(Debug, Clone, Default)]
pub(super) struct SchedulingQueue {
    pods: Sorted<SimKey, Arc<QueuedPod>>,
    active: Sorted<Turn, SimKey>,
    back_off: Sorted<(Timestamp, Turn), SimKey>,
    error_back_off: Sorted<(Timestamp, Turn), SimKey>,
    /// The pool by the plugins that rejected its pods, without gated ones.
    pool: BTreeMap<PluginSet, Sorted<SimKey, ()>>,
    /// The same by the time of the last attempt.
    pool_since: Sorted<(Timestamp, SimKey), ()>,
    turns: u64,
}

impl SchedulingQueue {
    pub(super) fn get(&self, key: &SimKey) -> Option<&QueuedPod> {
        self.pods.get(key).map(|queued| &**queued)
    }

    /// Adds a pod that was not tried yet.
    pub(super) fn add(&mut self, key: &SimKey, pod: Arc<Pod>, now: Timestamp) {
        self.remove(key);
        let queued = QueuedPod::new(key.clone(), pod, now);
        let place = if queued.is_gated() { QueuePlace::Pool } else { QueuePlace::Active };
        self.put(queued, place);
    }

    fn next_number(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn put(&mut self, mut queued: QueuedPod, place: QueuePlace) {
        if queued.turn.number == 0 {
            queued.turn.number = self.next_number();
        }
        queued.place = place;
        let key = queued.key.clone();
        match place {
            QueuePlace::Active => {
                self.active.insert(queued.turn, key.clone());
            }
            QueuePlace::BackOff(expiry) => {
                self.back_off.insert((expiry, queued.turn), key.clone());
            }
            QueuePlace::ErrorBackOff(expiry) => {
                self.error_back_off.insert((expiry, queued.turn), key.clone());
            }
            QueuePlace::Pool if queued.is_gated() => {}
            QueuePlace::Pool => {
                self.pool.entry(queued.rejected_by).or_default().insert(key.clone(), ());
                self.pool_since.insert((queued.turn.since, key.clone()), ());
            }
        }
        self.pods.insert(key, Arc::new(queued));
    }

    /// Takes a pod out of the queue.
    pub(super) fn remove(&mut self, key: &SimKey) -> Option<QueuedPod> {
        let queued = self.pods.remove(|other| other.cmp(key))?;
        match queued.place {
            QueuePlace::Active => {
                self.active.remove(|turn| turn.cmp(&queued.turn));
            }
            QueuePlace::BackOff(expiry) => {
                self.back_off.remove(|other| other.cmp(&(expiry, queued.turn)));
            }
            QueuePlace::ErrorBackOff(expiry) => {
                self.error_back_off.remove(|other| other.cmp(&(expiry, queued.turn)));
            }
            QueuePlace::Pool if queued.is_gated() => {}
            QueuePlace::Pool => {
                if let Some(keys) = self.pool.get_mut(&queued.rejected_by) {
                    keys.remove(|other| other.cmp(key));
                    if keys.is_empty() {
                        self.pool.remove(&queued.rejected_by);
                    }
                }
                self.pool_since.remove(|(since, other)| since.cmp(&queued.turn.since).then_with(|| other.cmp(key)));
            }
        }
        Some(Arc::unwrap_or_clone(queued))
    }

    /// Replaces the pod, which stays where it is.
    pub(super) fn update(&mut self, key: &SimKey, pod: Arc<Pod>) {
        if let Some(queued) = self.remove(key) {
            let place = queued.place;
            self.put(QueuedPod { pod, ..queued }, place);
        }
    }

    /// The active pods that came at the same moment as the first one.
    pub(super) fn first_active(&mut self, now: Timestamp, rules: &QueueRules) -> Vec<SimKey> {
        self.advance(now, rules);
        let Some((first, _)) = self.active.iter().next() else { return Vec::new() };
        let first = *first;
        let together = |turn: &Turn| turn.priority == first.priority && turn.since <= first.since + SAME_MOMENT;
        self.active.iter().take_while(|(turn, _)| together(turn)).map(|(_, key)| key.clone()).collect()
    }

    /// Lets a pod be the first of those that came at the same moment.
    pub(super) fn prefer(&mut self, key: &SimKey) {
        let first = self.active.iter().next().map(|(turn, _)| *turn);
        let Some(turn) = first.filter(|_| self.get(key).is_some_and(|queued| queued.place == QueuePlace::Active)) else {
            return;
        };
        if let Some(queued) = self.remove(key) {
            let since = turn.since - SignedDuration::from_nanos(1);
            self.put(QueuedPod { turn: Turn { since, ..queued.turn }, ..queued }, QueuePlace::Active);
        }
    }

    /// Takes the pod to try next.
    pub(super) fn pop(&mut self, now: Timestamp, rules: &QueueRules) -> Option<QueuedPod> {
        self.advance(now, rules);
        let early = || self.back_off.iter().next().filter(|_| rules.windows).map(|(_, key)| key);
        let key = self.active.iter().next().map(|(_, key)| key).or_else(early).cloned()?;
        let queued = self.remove(&key)?;
        Some(QueuedPod { attempts: queued.attempts.saturating_add(1), ..queued })
    }

    /// Takes back a pod whose attempt failed: rejected by plugins, or by none after an error
    /// (`AddUnschedulableIfNotPresent`).
    pub(super) fn give_back(
        &mut self,
        mut queued: QueuedPod,
        rejected_by: PluginSet,
        now: Timestamp,
        rules: &QueueRules,
    ) {
        queued.rejected_by = rejected_by;
        queued.held = false;
        queued.turn.since = now;
        queued.turn.number = self.next_number();
        if rejected_by.is_empty() {
            queued.errors = queued.errors.saturating_add(1);
            let place = queued.backs_off(now, rules).map_or(QueuePlace::Active, QueuePlace::ErrorBackOff);
            self.put(queued, place);
        } else {
            queued.errors = 0;
            queued.rejections = queued.rejections.saturating_add(1);
            self.put(queued, QueuePlace::Pool);
        }
    }

    /// The rejected pods in the pool that an event of interest to these plugins may help, with those of the plugins that
    /// rejected each pod.
    pub(super) fn rejected_by(&self, plugins: PluginSet) -> impl Iterator<Item = (&QueuedPod, PluginSet)> {
        let groups = self.pool.iter().map(move |(rejected_by, keys)| (rejected_by.both(plugins), keys));
        groups.filter(|(plugins, _)| !plugins.is_empty()).flat_map(move |(plugins, keys)| {
            keys.iter().filter_map(move |(key, ())| self.get(key).map(|queued| (queued, plugins)))
        })
    }

    /// Keeps a pod in the pool although it was woken.
    pub(super) fn hold(&mut self, key: &SimKey) {
        if let Some(queued) = self.get(key).filter(|queued| queued.place == QueuePlace::Pool && !queued.held) {
            let queued = QueuedPod { held: true, ..queued.clone() };
            self.pods.insert(key.clone(), Arc::new(queued));
        }
    }

    /// Moves a pod out of the pool, since trying it again is worth it.
    pub(super) fn requeue(&mut self, key: &SimKey, now: Timestamp, rules: &QueueRules) {
        if self.get(key).is_none_or(|queued| queued.place != QueuePlace::Pool || queued.is_gated()) {
            return;
        }
        if let Some(queued) = self.remove(key) {
            let place = queued.backs_off(now, rules).map_or(QueuePlace::Active, QueuePlace::BackOff);
            self.put(queued, place);
        }
    }

    /// The pod whose back-off ends first.
    fn first_backed_off(&self) -> Option<(Timestamp, SimKey)> {
        let firsts = [self.back_off.iter().next(), self.error_back_off.iter().next()];
        firsts.into_iter().flatten().map(|((expiry, _), key)| (*expiry, key.clone())).min()
    }

    /// Moves the pods whose back-off has ended or whose time in the pool is over.
    pub(super) fn advance(&mut self, now: Timestamp, rules: &QueueRules) {
        while let Some(key) = self.first_backed_off().filter(|(at, _)| rules.flushed(*at) <= now).map(|(_, key)| key) {
            let Some(queued) = self.remove(&key) else { break };
            self.put(queued, QueuePlace::Active);
        }
        let over: Vec<SimKey> = self
            .pool_since
            .iter()
            .take_while(|((since, _), ())| rules.swept(*since) <= now)
            .map(|((_, key), ())| key.clone())
            .collect();
        for key in over {
            self.requeue(&key, now, rules);
        }
    }

    /// Whether a pod can be tried now.
    fn has_next(&self, rules: &QueueRules) -> bool {
        !self.active.is_empty() || (rules.windows && !self.back_off.is_empty())
    }

    /// When a pod can be tried if nothing happens before.
    pub(super) fn next_at(&self, now: Timestamp, rules: &QueueRules) -> Option<Timestamp> {
        if self.has_next(rules) {
            return Some(now);
        }
        let flushed = self.first_backed_off().map(|(expiry, _)| rules.flushed(expiry));
        let swept = self.pool_since.iter().next().map(|((since, _), ())| rules.swept(*since));
        flushed.into_iter().chain(swept).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde_json::{from_value, json};
    use stead_model::KubernetesVersion;
    use stead_placement::Plugin;

    const FIT: PluginSet = PluginSet::of(&[Plugin::NodeResourcesFit]);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    fn rules(minor: u16) -> QueueRules {
        QueueRules::of(&Settings::of(KubernetesVersion::minor(minor)), at(300))
    }

    fn queued(name: &str, priority: i32, since: i64) -> QueuedPod {
        let pod: core::Pod = from_value(json!({ "metadata": { "name": name, "namespace": "n" },
            "spec": { "priority": priority, "containers": [] } }))
        .expect("a pod");
        let pod = Pod::compile(&pod, KubernetesVersion::NEWEST).expect("a pod");
        QueuedPod::new(SimKey::pod("n", name), Arc::new(pod), at(since))
    }

    #[test]
    fn back_offs_double_up_to_the_longest() {
        let rules = rules(36);
        let seconds = [1, 2, 3, 4, 5, 16, 64, u32::MAX].map(|count| rules.duration(count).as_secs());
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10, 10, 10]);
    }

    #[test]
    fn a_back_off_ends_with_its_second_since_1_33() {
        // Rejected at 1.5 s for the first time: the back-off ends at 2.5 s.
        for (minor, now, backs_off) in [
            (36, 1_999, true),
            (36, 2_000, true),
            (36, 2_999, true),
            (36, 3_000, false),
            (32, 2_499, true),
            (32, 2_500, false),
        ] {
            let queued = queued("a", 0, 1_500).after_rejections(1);
            assert_eq!(queued.backs_off(at(now), &rules(minor)).is_some(), backs_off, "1.{minor} at {now}");
        }
        assert_eq!(queued("a", 0, 0).backs_off(at(0), &rules(36)), None);
        // Flushed on whole seconds, before 1.33 on those of the scheduler's start at 0.3 s.
        assert_eq!(rules(36).flushed(at(2_000)), at(3_000));
        assert_eq!([at(2_300), at(2_400)].map(|expiry| rules(32).flushed(expiry)), [at(2_300), at(3_300)]);
    }

    #[test]
    fn errors_have_a_back_off_of_their_own_since_1_34() {
        // Two rejections, then errors: 1.34 counts the errors, 1.33 all attempts.
        for (minor, expected) in [(36, [1, 2]), (33, [4, 8])] {
            let rules = rules(minor);
            let mut queue = SchedulingQueue::default();
            let mut pod = queued("a", 0, 0).after_rejections(2);
            for seconds in expected {
                let attempted = QueuedPod { attempts: pod.attempts + 1, ..pod };
                queue.give_back(attempted, PluginSet::default(), at(0), &rules);
                pod = queue.remove(&SimKey::pod("n", "a")).expect("the pod");
                assert_eq!(pod.place, QueuePlace::ErrorBackOff(at(seconds * 1000)), "1.{minor}");
            }
        }
    }

    #[test]
    fn active_pods_come_first_and_then_those_that_back_off() {
        let rules = rules(36);
        let mut queue = SchedulingQueue::default();
        for (name, priority, since) in [("late", 0, 1_100), ("early", 0, 900), ("urgent", 5, 1_200)] {
            queue.give_back(queued(name, priority, 0), FIT, at(since), &rules);
        }
        queue.give_back(queued("failed", 9, 0), PluginSet::default(), at(1_200), &rules);
        queue.add(&SimKey::pod("n", "new"), queued("new", 0, 0).pod, at(1_300));
        assert_eq!(queue.rejected_by(FIT).count(), 3);
        for name in ["late", "early", "urgent"] {
            queue.requeue(&SimKey::pod("n", name), at(1_300), &rules);
        }
        let order: Vec<String> =
            std::iter::from_fn(|| queue.pop(at(1_300), &rules)).map(|queued| queued.key.name.to_string()).collect();
        // `early` backs off until the second of 1 s, the others until that of 2 s. An error is never tried early.
        assert_eq!(order, ["new", "early", "urgent", "late"]);
        assert_eq!(queue.next_at(at(1_300), &rules), Some(at(3_000)));
        assert!(queue.pop(at(2_999), &rules).is_none() && queue.pop(at(3_000), &rules).is_some());
    }

    #[test]
    fn the_sweep_takes_pods_that_were_in_the_pool_for_longer_than_five_minutes() {
        let rules = rules(36);
        let mut queue = SchedulingQueue::default();
        queue.give_back(queued("a", 0, 0), FIT, at(299), &rules);
        queue.give_back(queued("b", 0, 0), FIT, at(300), &rules);
        assert_eq!(queue.next_at(at(1_000), &rules), Some(at(300_300)));
        assert!(queue.pop(at(300_299), &rules).is_none());
        assert_eq!(queue.pop(at(300_300), &rules).map(|queued| queued.key), Some(SimKey::pod("n", "a")));
        assert_eq!(queue.next_at(at(300_300), &rules), Some(at(330_300)));
    }
}
