//! One component alone with an API server: tests of it do not depend on what the others do.

use jiff::{SignedDuration, Timestamp};

use super::ControllerId;
use crate::api::{ApiServer, Request};
use crate::choices::Choices;
use crate::error::ApiError;
use crate::event_log::EventLog;
use crate::object::SimObject;
use crate::settings::Settings;
use crate::step::{Context, Controller, Wakes, Write};
use crate::store::{Change, Store};
use crate::work_queue::WorkQueue;
use crate::world::World;

/// The identity of the component in the queue: it is the only one there.
const ONLY: ControllerId = ControllerId::Scheduler;

/// A component, an API server and a clock.
pub(crate) struct Bench<C> {
    pub(crate) controller: C,
    pub(crate) now: Timestamp,
    server: ApiServer,
    settings: Settings,
    choices: Choices,
    world: World,
    queue: WorkQueue,
    events: EventLog,
    changes: Vec<(Timestamp, Change)>,
}

impl<C: Controller + Default> Bench<C> {
    /// A component that is resumed with these objects, at 2027-01-15T08:00:00Z.
    pub(crate) fn new(settings: Settings, objects: impl IntoIterator<Item = SimObject>) -> Bench<C> {
        let mut bench = Bench {
            controller: C::default(),
            now: Timestamp::from_second(1_800_000_000).expect("a time"),
            server: ApiServer::with_objects(&settings, objects),
            settings,
            choices: Choices::enumerated(),
            world: World::default(),
            queue: WorkQueue::default(),
            events: EventLog::default(),
            changes: Vec::new(),
        };
        bench.call(|controller, cx, wakes| controller.resume(cx, wakes));
        bench
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
            self.queue.add(self.now + self.settings.timers.reaction + delay, ONLY, item);
        }
        result
    }

    /// Makes a request.
    pub(crate) fn request(&mut self, mut write: Write) -> Result<(), ApiError> {
        if let Write::Event(note) = write {
            self.events.add(note.into(), "", C::COMPONENT, self.now);
            return Ok(());
        }
        let mut request = Request { now: self.now, settings: &self.settings, choices: &mut self.choices };
        for change in self.server.execute(&mut request, &mut write)? {
            self.call(|controller, cx, wakes| controller.affected(cx, &change, wakes));
            self.changes.push((self.now, change));
        }
        Ok(())
    }

    /// Runs for some seconds.
    pub(crate) fn run(&mut self, seconds: i64) {
        let until = self.now + SignedDuration::from_secs(seconds);
        while self.queue.next_at().is_some_and(|at| at <= until) {
            let Some((at, _, item)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            let step = self.call(|controller, cx, _| controller.step(cx, &item));
            for write in step.writes {
                self.request(write).expect("the component makes no request that is refused");
            }
            if let Some(after) = step.again {
                self.queue.add(self.now + after, ONLY, item);
            }
        }
        self.now = until;
    }

    /// Whether nothing is going to happen.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        self.queue.next_at().is_none()
    }

    /// The objects.
    pub(crate) fn store(&self) -> &Store {
        self.server.store()
    }

    /// The changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<(Timestamp, Change)> {
        std::mem::take(&mut self.changes)
    }

    /// The events so far, as `kind/name reason: message`.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.events.iter();
        events.map(|event| format!("{} {}: {}", event.note.about, event.note.reason, event.note.message)).collect()
    }
}
