//! One controller alone with an API server, for its tests: whatever else the controller meets is written by the test.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::{ApiServer, Request};
use crate::choices::{Choices, RecordedAnswers};
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject, SimType};
use crate::settings::Settings;
use crate::step::{Context, Controller, DeleteOptions, DeletePropagation, Item, Wakes, Write};
use crate::store::Store;
use crate::world::World;

/// When every test begins.
pub(crate) const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// A controller, an API server, and the time.
pub(crate) struct Alone<C> {
    pub(crate) now: Timestamp,
    pub(crate) settings: Settings,
    pub(crate) choices: Choices,
    controller: C,
    server: ApiServer,
    world: World,
    queue: BTreeMap<Item, Timestamp>,
    /// The events since they were last taken: type, reason and message.
    events: Vec<String>,
    /// The other writes of the controller since they were last taken.
    writes: Vec<Write>,
}

impl<C: Controller + Default> Alone<C> {
    /// A controller in an empty cluster.
    pub(crate) fn new() -> Alone<C> {
        Alone {
            now: START,
            settings: Settings::default(),
            choices: Choices::recorded(RecordedAnswers::default()),
            controller: C::default(),
            server: ApiServer::default(),
            world: World::default(),
            queue: BTreeMap::new(),
            events: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// A new controller in the same cluster: its memory is rebuilt from the objects.
    pub(crate) fn resume(&mut self) {
        self.controller = C::default();
        self.queue.clear();
        self.call(|controller, cx, wakes| controller.resume(cx, wakes));
    }

    /// The objects.
    pub(crate) fn store(&self) -> &Store {
        self.server.store()
    }

    /// Makes a request. A node does not keep the taint of new ones.
    pub(crate) fn request(&mut self, write: Write) -> Result<(), ApiError> {
        match write {
            Write::Create(node @ SimObject::Node(_)) => {
                self.write(Write::Create(node.clone()))?;
                self.write(Write::Replace(node))
            }
            write => self.write(write),
        }
    }

    fn write(&mut self, mut write: Write) -> Result<(), ApiError> {
        let mut request = Request { now: self.now, settings: &self.settings, choices: &mut self.choices };
        for change in self.server.execute(&mut request, &mut write)? {
            self.call(|controller, cx, wakes| controller.affected(cx, &change, wakes));
        }
        Ok(())
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut C, &mut Context<'_>, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let mut cx = Context {
            store: self.server.store(),
            now: self.now,
            started: self.now,
            settings: &self.settings,
            choices: &mut self.choices,
            world: &mut self.world,
        };
        let result = call(&mut self.controller, &mut cx, &mut wakes);
        for (item, delay) in wakes.wanted {
            self.add(item, self.now + self.settings.timers.reaction + delay);
        }
        result
    }

    fn add(&mut self, item: Item, at: Timestamp) {
        let due = self.queue.entry(item).or_insert(at);
        *due = at.min(*due);
    }

    /// Creates an object.
    pub(crate) fn create(&mut self, object: Value) -> SimKey {
        let object = SimObject::from_json(&object).expect("an object");
        let key = object.key();
        self.request(Write::Create(object)).expect("created");
        key
    }

    /// Changes an object.
    pub(crate) fn change<T: SimType + Into<SimObject>>(&mut self, key: &SimKey, change: impl FnOnce(&mut T)) {
        let mut object = T::clone(self.store().at::<T>(key).expect("an object"));
        change(&mut object);
        self.request(Write::Replace(object.into())).expect("changed");
    }

    /// Changes the status of a pod.
    pub(crate) fn set_pod(&mut self, key: &SimKey, status: Value) {
        let mut pod = Pod::clone(self.store().at::<Pod>(key).expect("a pod"));
        pod.status = Some(serde_json::from_value(status).expect("a status"));
        self.request(Write::Status(pod.into())).expect("changed");
    }

    /// Deletes an object.
    pub(crate) fn delete(&mut self, key: &SimKey, grace: Option<i64>) {
        let options = DeleteOptions { grace, propagation: DeletePropagation::Background, ..DeleteOptions::default() };
        self.request(Write::Delete(key.clone(), options)).expect("deleted");
    }

    /// Runs for some milliseconds.
    pub(crate) fn run(&mut self, millis: i64) {
        self.run_until(self.now + SignedDuration::from_millis(millis));
    }

    /// Runs until a time.
    pub(crate) fn run_until(&mut self, until: Timestamp) {
        let mut steps = 0;
        while let Some((item, at)) = self.queue.iter().min_by_key(|(_, at)| **at).filter(|(_, at)| **at <= until) {
            steps += 1;
            assert!(steps < 10_000, "the controller does not come to rest: {item:?} at {at}");
            let (item, at) = (item.clone(), *at);
            self.queue.remove(&item);
            self.now = self.now.max(at);
            let step = self.call(|controller, cx, _| controller.step(cx, &item));
            let mut refused = false;
            for write in step.writes {
                refused = refused || self.execute(&item, write);
            }
            let again = if refused { Some(SignedDuration::from_millis(5)) } else { step.again };
            again.into_iter().for_each(|after| self.add(item.clone(), self.now + after));
        }
        self.now = self.now.max(until);
    }

    /// Executes a write of the controller. Gives whether it was refused.
    fn execute(&mut self, item: &Item, write: Write) -> bool {
        if let Write::Event(note) = &write {
            let kind = if note.warning { "Warning" } else { "Normal" };
            self.events.push(format!("{kind} {} {}", note.reason, note.message));
            return false;
        }
        self.writes.push(write.clone());
        let Err(error) = self.request(write.clone()) else { return false };
        let answer = self.call(|controller, cx, _| controller.refused(cx, item, &write, &error));
        answer.into_iter().for_each(|write| {
            self.execute(item, write);
        });
        true
    }

    /// When the controller looks at something next.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.queue.values().min().copied()
    }

    /// The events since they were last taken.
    pub(crate) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// The writes of the controller since they were last taken.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// The pods.
    pub(crate) fn pods(&self) -> Vec<SimKey> {
        self.store().of_kind(ObjectKind::Pod).map(|(key, _)| key.clone()).collect()
    }

    /// A part of an object's JSON, by a JSON pointer.
    pub(crate) fn json(&self, key: &SimKey, pointer: &str) -> Value {
        let object = self.store().object(key).expect("an object").to_json();
        object.pointer(pointer).cloned().unwrap_or_default()
    }
}
