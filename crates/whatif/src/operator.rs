//! Stead's operator in a simulated cluster: the loops of `stead operator`, on virtual time.
//!
//! The loops are the same code. This does what the operator does around them: it indexes what the loops watch, executes only
//! writes that change something, reports a status after all other writes, and tells a loop which of its writes failed.
//! Secrets that a spec refers to are read at once when they change.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use stead_loops::recent_events::RecentEvents;
use stead_loops::{
    Failure, Failures, LoopSettings, LoopStep, MANAGER, Objects, Propagation, READ_BY_NAME, RECONCILED, Store, WATCHED,
    Watched, World, Write as LoopWrite, affected, applied, foreign_fields, ownership, step, trim,
};
use stead_model::{Kind, ObjectKey, ObjectRef, placement_kinds};
use stead_semantics::Selector;
use stead_sim::{
    ApiError, Change, Context, DeleteOptions, DeletePropagation, EventNote, Item, ObjectKind, ObjectPart, Operator,
    Patch, SimKey, SimObject, Step, Wakes, Write,
};

/// When a loop runs again after its writes.
const SOON: Duration = Duration::from_millis(100);

/// After how many conflicts in a row a loop is told about them.
const PERSISTENT: u32 = 3;

/// Stead's operator: [`stead_sim::Simulation::add_operator`] starts it.
#[derive(Debug, Clone)]
pub struct SteadOperator {
    settings: LoopSettings,
    store: Store,
    troubles: BTreeMap<ObjectKey, Trouble>,
    /// The last apply to each object: the version of the object before it, and what was applied. Repeating it would change
    /// nothing.
    applied: BTreeMap<ObjectKey, (Value, Value)>,
    recent_events: RecentEvents,
}

/// The failures of the writes for one object.
#[derive(Debug, Clone, Default)]
struct Trouble {
    failures: Failures,
    /// Conflicts in a row, by the object to be written.
    conflicts: BTreeMap<ObjectKey, u32>,
    /// The writes were tried again, and none has failed since.
    tried: bool,
}

/// The name that a write needs is that of somebody else's object.
#[derive(Debug)]
struct NameTaken {
    target: ObjectKey,
    failure: Failure,
}

impl SteadOperator {
    /// An operator that has just started.
    pub fn new(settings: LoopSettings) -> SteadOperator {
        SteadOperator {
            settings,
            store: Store::new(),
            troubles: BTreeMap::new(),
            applied: BTreeMap::new(),
            recent_events: RecentEvents::default(),
        }
    }

    /// An object was observed; none if it is gone. Gives the objects whose loops have to run.
    pub fn observe(&mut self, key: &SimKey, object: Option<&SimObject>) -> Vec<ObjectKey> {
        let Some(watched) = watched(key.kind) else { return Vec::new() };
        let key = key.to_model();
        let before = match object.filter(|object| selects(watched, object)) {
            Some(object) => {
                let before = self.store.remove(&key);
                self.store.put(trim(object.to_json()));
                before
            }
            None => self.store.remove(&key),
        };
        let before = before.as_deref().map(|before| ObjectRef::new(&key, before));
        let mut keys = affected(&self.store, before, self.store.object(&key));
        keys.retain(|key| RECONCILED.contains(&key.kind.as_str()));
        keys
    }

    /// The writes of the loop of an object that change something, and when to run it again.
    pub fn reconcile(&mut self, cx: &Context<'_>, key: &ObjectKey) -> Step {
        // The last try had no failure.
        self.troubles.retain(|of, trouble| of != key || !trouble.tried);
        if let Some(trouble) = self.troubles.get_mut(key) {
            trouble.tried = true;
        }
        let wanted = self.ask(cx, key);
        let mut again = wanted.again;
        let mut writes = Vec::new();
        for write in wanted.writes {
            // The status is decided again after other writes: a StatefulSet with a new template has not rolled it out yet.
            if matches!(write, LoopWrite::Status { .. }) && !writes.is_empty() {
                again = Some(SOON);
                break;
            }
            match self.request(cx, write) {
                Ok(write) => writes.extend(write),
                Err(taken) => {
                    self.fail(key, taken.target, taken.failure);
                    return Step::writes(self.report(cx, key)).and_again(Some(RETRY));
                }
            }
        }
        if self.troubles.contains_key(key) {
            again = Some(SOON);
        }
        Step::writes(writes)
            .and_again(again.map(|after| SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX)))
    }

    /// A write for an object was refused. Gives what the loop reports about it.
    pub fn failed(&mut self, cx: &Context<'_>, key: &ObjectKey, write: &Write, error: &ApiError) -> Vec<Write> {
        let Some(target) = target(write) else { return Vec::new() };
        let trouble = self.troubles.entry(key.clone()).or_default();
        trouble.tried = false;
        if error.is_conflict() {
            let conflicts = trouble.conflicts.entry(target.clone()).or_default();
            *conflicts += 1;
            if *conflicts < PERSISTENT {
                return Vec::new();
            }
        }
        let failure = Failure { code: error.code(), reason: error.reason().to_owned(), message: error.to_string() };
        self.fail(key, target, failure);
        self.report(cx, key)
    }

    fn fail(&mut self, key: &ObjectKey, target: ObjectKey, failure: Failure) {
        let trouble = self.troubles.entry(key.clone()).or_default();
        trouble.tried = false;
        trouble.failures.insert(target, failure);
    }

    /// Status and events of the loop, which has been told about the failures.
    fn report(&mut self, cx: &Context<'_>, key: &ObjectKey) -> Vec<Write> {
        let told = self.ask(cx, key).writes.into_iter();
        let reports = told.filter(|write| matches!(write, LoopWrite::Status { .. } | LoopWrite::Event(_)));
        reports.filter_map(|write| self.request(cx, write).ok().flatten()).collect()
    }

    /// Asks the loop what to write; with the whole cluster if it needs that.
    fn ask(&self, cx: &Context<'_>, key: &ObjectKey) -> LoopStep {
        let none = Failures::new();
        let failures = self.troubles.get(key).map_or(&none, |trouble| &trouble.failures);
        let world = World { store: &self.store, cluster: None, failures, now: cx.now, settings: &self.settings };
        let wanted = step(&world, key);
        if !wanted.wants_cluster {
            return wanted;
        }
        let kinds = placement_kinds().map(ObjectKind::of);
        let items = kinds.flat_map(|kind| cx.store.of_kind(kind)).map(|(_, object)| object.to_json());
        let ours = RECONCILED.iter().flat_map(|kind| self.store.of_kind(kind)).map(|object| object.raw().clone());
        let mut objects = Objects::from_items(items.chain(ours));
        objects.set_version(cx.settings.version);
        step(&World { cluster: Some(&objects), ..world }, key)
    }

    /// The request of a write; none if it would change nothing.
    fn request(&mut self, cx: &Context<'_>, write: LoopWrite) -> Result<Option<Write>, Box<NameTaken>> {
        Ok(match write {
            LoopWrite::Apply { object, exclusive } => return self.apply(cx, object, &exclusive),
            LoopWrite::Status { object } => {
                let live = ObjectKey::of(&object).and_then(|key| self.store.raw(&key));
                let changes = live.is_some_and(|live| live["status"] != object["status"]);
                changes.then(|| Write::Apply { object, manager: MANAGER.to_owned(), part: ObjectPart::Status })
            }
            LoopWrite::Patch { key, body } => {
                let patch = Patch::Merge(body);
                sim_key(&key).map(|key| Write::Patch { key, patch, part: ObjectPart::Spec })
            }
            LoopWrite::Delete { key, uid, propagation } => {
                let propagation = match propagation {
                    Propagation::Background => DeletePropagation::Background,
                    Propagation::Foreground => DeletePropagation::Foreground,
                };
                let options = DeleteOptions { uid: Some(uid), propagation, ..DeleteOptions::default() };
                let key =
                    sim_key(&key).filter(|key| cx.store.object(key).is_some_and(|object| !object.is_terminating()));
                key.map(|key| Write::Delete(key, options))
            }
            LoopWrite::Event(event) => {
                let now = Duration::try_from(cx.now.duration_since(cx.started)).unwrap_or_default();
                let note = |about| EventNote {
                    warning: event.warning,
                    ..EventNote::normal(&about, event.reason, event.message.clone())
                };
                let is_new = self.recent_events.is_new(now, &event);
                sim_key(&event.about).filter(|_| is_new).map(|about| Write::Event(note(about)))
            }
        })
    }

    fn apply(
        &mut self,
        cx: &Context<'_>,
        object: Value,
        exclusive: &[&'static str],
    ) -> Result<Option<Write>, Box<NameTaken>> {
        let Some(target) = ObjectKey::of(&object) else { return Ok(None) };
        let Some(key) = sim_key(&target) else { return Ok(None) };
        // An object that no selector matches may have the name.
        let unseen = cx.store.object(&key).filter(|_| !self.store.contains(&target));
        if let Some(message) = unseen.and_then(|live| ownership::conflict(&object, &live.to_json())) {
            let failure = Failure { code: 412, reason: "PreconditionFailed".into(), message };
            return Err(Box::new(NameTaken { target, failure }));
        }
        let wanted = trim(object.clone());
        let live = self.store.raw(&target);
        let version = live.map(|live| live["metadata"]["resourceVersion"].clone()).unwrap_or_default();
        let tried = || self.applied.get(&target).is_some_and(|(before, last)| *before == version && *last == wanted);
        if live.is_none_or(|live| applied::differs(live, &wanted)) && !tried() {
            self.applied.insert(target, (version, wanted));
            return Ok(Some(Write::Apply { object, manager: MANAGER.to_owned(), part: ObjectPart::Spec }));
        }
        let extra = live.and_then(|live| foreign_fields::removal(live, &wanted, exclusive));
        Ok(extra.map(|patch| Write::Patch { key, patch: Patch::Merge(patch), part: ObjectPart::Spec }))
    }
}

/// When a name that is taken is looked at again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// The loops' entry for a kind; none if they do not read it.
fn watched(kind: ObjectKind) -> Option<&'static Watched> {
    WATCHED.iter().chain(READ_BY_NAME).find(|watched| watched.kind == kind.entry())
}

fn selects(watched: &Watched, object: &SimObject) -> bool {
    let labels = object.metadata().labels.clone().unwrap_or_default();
    Selector::parse(watched.selector).is_ok_and(|selector| selector.matches(&labels))
}

fn sim_key(key: &ObjectKey) -> Option<SimKey> {
    Some(SimKey::new(ObjectKind::of(Kind::named(&key.kind)?), &key.namespace, &key.name))
}

/// The object that a write is about.
fn target(write: &Write) -> Option<ObjectKey> {
    match write {
        Write::Apply { object, .. } => ObjectKey::of(object),
        Write::Patch { key, .. } | Write::Delete(key, _) => Some(key.to_model()),
        _ => None,
    }
}

impl Operator for SteadOperator {
    fn affected(&mut self, _: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let keys = self.observe(&change.key, change.after.as_ref());
        keys.iter().filter_map(sim_key).for_each(|key| wakes.now(key));
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        match item {
            Item::Object(key) => self.reconcile(cx, &key.to_model()),
            Item::Pass => Step::none(),
        }
    }

    fn refused(&mut self, cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        match item {
            Item::Object(key) => self.failed(cx, &key.to_model(), write, error),
            Item::Pass => Vec::new(),
        }
    }

    fn fork(&self) -> Box<dyn Operator> {
        Box::new(self.clone())
    }
}
