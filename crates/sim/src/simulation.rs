//! A cluster on virtual time.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stead_placement::Cluster;

use crate::api::{ApiServer, Request};
use crate::choices::Choices;
use crate::controllers::{ControllerId, Controllers};
use crate::error::{ApiError, LimitReached};
use crate::event_log::{EventLog, EventNote, SimEvent};
use crate::object::SimObject;
use crate::settings::{DriverState, Settings};
use crate::step::{Context, Item, Operator, Wakes, Write};
use crate::store::{Change, Store};
use crate::work_queue::WorkQueue;
use crate::world::World;

/// Something that happened, for whoever follows a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// An object changed.
    Changed(Change),
    /// An event was reported.
    Reported(SimEvent),
}

/// A cluster on virtual time. A copy is a fork: both go on independently and share what neither changes.
#[derive(Debug, Clone)]
pub struct Simulation {
    now: Timestamp,
    started: Timestamp,
    settings: Arc<Settings>,
    server: ApiServer,
    world: World,
    controllers: Controllers,
    queue: WorkQueue,
    choices: Choices,
    events: EventLog,
    /// What happened since it was last taken; none if nobody follows.
    journal: Option<Vec<(Timestamp, Happening)>>,
    steps: u64,
    /// The work whose writes are being made.
    writing: Option<(ControllerId, Item)>,
}

impl Simulation {
    /// An empty cluster.
    pub fn new(now: Timestamp, settings: Settings, choices: Choices) -> Simulation {
        Simulation {
            now,
            started: now,
            settings: Arc::new(settings),
            server: ApiServer::default(),
            world: World::default(),
            controllers: Controllers::default(),
            queue: WorkQueue::default(),
            choices,
            events: EventLog::default(),
            journal: None,
            steps: 0,
            writing: None,
        }
    }

    /// A cluster that is running: the objects as they are at this time, and the machines and disks behind them. Each
    /// controller rebuilds what it would have in memory.
    pub fn resume(
        now: Timestamp,
        settings: Settings,
        choices: Choices,
        objects: impl IntoIterator<Item = SimObject>,
        world: World,
    ) -> Simulation {
        Simulation::resume_among(now, settings, choices, objects, world, None)
    }

    /// The same for a part of a cluster. The scheduler knows all of it: pods that are not among the objects stay where they
    /// are and take room there.
    pub fn resume_part(
        now: Timestamp,
        settings: Settings,
        choices: Choices,
        objects: impl IntoIterator<Item = SimObject>,
        world: World,
        whole: Cluster,
    ) -> Simulation {
        Simulation::resume_among(now, settings, choices, objects, world, Some(whole))
    }

    fn resume_among(
        now: Timestamp,
        settings: Settings,
        choices: Choices,
        objects: impl IntoIterator<Item = SimObject>,
        world: World,
        whole: Option<Cluster>,
    ) -> Simulation {
        let server = ApiServer::with_objects(&settings, objects);
        let mut simulation = Simulation { server, world, ..Simulation::new(now, settings, choices) };
        if let Some(whole) = whole {
            simulation.controllers.set_placement(whole, now);
        }
        simulation.events.remember(simulation.server.store());
        simulation.world.discover_machines(simulation.server.store(), &simulation.settings, now);
        for id in simulation.settings.components.clone() {
            simulation.with_controller(id, |controllers, cx, wakes| controllers.resume(id, cx, wakes));
        }
        simulation
    }

    /// Starts an operator: it sees every object, and then every change. There is at most one: another one replaces it,
    /// without what the one before had in memory.
    pub fn add_operator(&mut self, operator: Box<dyn Operator>) {
        self.controllers.add_operator(operator);
        if !self.settings.components.contains(&ControllerId::Operator) {
            Arc::make_mut(&mut self.settings).components.push(ControllerId::Operator);
        }
        self.with_controller(ControllerId::Operator, |controllers, cx, wakes| {
            controllers.resume(ControllerId::Operator, cx, wakes);
        });
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        self.server.store()
    }

    /// Machines, disks and processes.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The cluster as the scheduler knows it.
    pub fn placement(&self) -> &Cluster {
        self.controllers.placement()
    }

    /// The events that were reported.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The source of chance.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    /// Replaces the source of chance, as for another run from here.
    pub fn set_choices(&mut self, choices: Choices) {
        self.choices = choices;
    }

    /// How many steps the controllers made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Follows the run from now on: [`Simulation::take_journal`] returns what happened.
    pub fn follow(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// What happened since the last call.
    pub fn take_journal(&mut self) -> Vec<(Timestamp, Happening)> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The time of the next step; none if the cluster is at rest.
    pub fn next_at(&mut self) -> Option<Timestamp> {
        self.queue.next_at()
    }

    /// What the controllers are going to look at, and when.
    pub fn pending(&self) -> impl Iterator<Item = (ControllerId, &Item, Timestamp)> {
        self.queue.iter()
    }

    /// Lets time pass in which nothing happens: what was to be looked at meanwhile is looked at once, at this time.
    pub fn skip_until(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// Makes a request, as a user.
    pub fn request(&mut self, mut write: Write) -> Result<Option<SimObject>, ApiError> {
        self.execute(&mut write, "user")
    }

    /// Changes machines or disks, and tells kubelets and drivers about it.
    pub fn change_world(&mut self, change: impl FnOnce(&mut World, Timestamp)) {
        change(&mut self.world, self.now);
        let concerned =
            [ControllerId::NodeLifecycle, ControllerId::Kubelet, ControllerId::Attacher, ControllerId::Provisioner];
        for id in concerned {
            self.queue.add(self.now, id, Item::Pass);
        }
    }

    /// Changes whether a storage driver works.
    pub fn set_driver(&mut self, name: &str, state: DriverState) {
        let drivers = &mut Arc::make_mut(&mut self.settings).storage.drivers;
        drivers.entry(name.to_owned()).or_default().state = state;
        self.change_world(|_, _| {});
    }

    /// Runs until a time, which is then the virtual time.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), LimitReached> {
        while self.next_at().is_some_and(|at| at <= until) {
            self.run_step()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Runs for a while.
    pub fn run_for(&mut self, duration: SignedDuration) -> Result<(), LimitReached> {
        self.run_until(self.now + duration)
    }

    /// Runs until a condition holds, at most until a time. Gives whether it holds.
    pub fn run_until_holds(
        &mut self,
        until: Timestamp,
        mut holds: impl FnMut(&Simulation) -> bool,
    ) -> Result<bool, LimitReached> {
        loop {
            if holds(self) {
                return Ok(true);
            }
            if self.next_at().is_none_or(|at| at > until) {
                self.now = self.now.max(until);
                return Ok(false);
            }
            self.run_step()?;
        }
    }

    /// Makes the next step. Gives the component that made it; none if the cluster is at rest.
    pub fn run_step(&mut self) -> Result<Option<ControllerId>, LimitReached> {
        let Some((at, id, item)) = self.queue.pop() else { return Ok(None) };
        self.now = self.now.max(at);
        self.steps += 1;
        let limits = self.settings.limits;
        if self.steps > limits.steps {
            return Err(LimitReached { at: self.now, limit: limits.steps, what: "steps" });
        }
        if self.store().len() > limits.objects {
            return Err(LimitReached { at: self.now, limit: limits.objects as u64, what: "objects" });
        }
        let step = self.with_controller(id, |controllers, cx, _| controllers.step(id, cx, &item));
        for (item, after) in self.controllers.follow_up(id) {
            match after {
                Some(after) => self.queue.add(self.now + after.max(SignedDuration::ZERO), id, item),
                None => self.queue.remove(id, item),
            }
        }
        self.writing = (!step.writes.is_empty()).then(|| (id, item.clone()));
        for mut write in step.writes {
            if let Err(error) = self.execute(&mut write, id.component()) {
                let timers = &self.settings.timers;
                let delay = self.queue.failed(id, &item, timers.retry, timers.retry_max);
                let answer =
                    self.with_controller(id, |controllers, cx, _| controllers.refused(id, cx, &item, &write, &error));
                for mut write in answer {
                    // What a controller reports about an error has no consequence of its own.
                    let _ = self.execute(&mut write, id.component());
                }
                self.queue.add(self.now + delay, id, item);
                self.writing = None;
                return Ok(Some(id));
            }
        }
        self.writing = None;
        self.queue.succeeded(id, &item);
        if let Some(after) = step.again {
            self.queue.add(self.now + after.max(SignedDuration::ZERO), id, item);
        }
        Ok(Some(id))
    }

    /// Executes a write and tells every controller about the changes. Gives the object that was written.
    fn execute(&mut self, write: &mut Write, component: &'static str) -> Result<Option<SimObject>, ApiError> {
        if let Write::Event(note) = write {
            self.report(note.clone(), component);
            return Ok(None);
        }
        let mut request = Request { now: self.now, settings: &self.settings, choices: &mut self.choices };
        let changes = self.server.execute(&mut request, write)?;
        let written = changes.last().map(|change| change.latest().clone());
        for change in changes {
            for i in 0..self.settings.components.len() {
                let id = self.settings.components[i];
                self.with_controller(id, |controllers, cx, wakes| controllers.affected(id, cx, &change, wakes));
            }
            if let Some(journal) = &mut self.journal {
                journal.push((self.now, Happening::Changed(change)));
            }
        }
        Ok(written)
    }

    fn report(&mut self, note: EventNote, component: &'static str) {
        let uid = self.server.store().object(&note.about).map(|object| object.uid()).unwrap_or_default();
        let event = self.events.add(Arc::new(note), uid, component, self.now);
        if let (Some(event), Some(journal)) = (event, &mut self.journal) {
            journal.push((self.now, Happening::Reported(event)));
        }
    }

    /// Calls a controller, and queues what it wants to look at.
    fn with_controller<T>(
        &mut self,
        id: ControllerId,
        call: impl FnOnce(&mut Controllers, &mut Context<'_>, &mut Wakes) -> T,
    ) -> T {
        let mut wakes = Wakes::default();
        let mut cx = Context {
            store: self.server.store(),
            now: self.now,
            started: self.started,
            settings: &self.settings,
            choices: &mut self.choices,
            world: &mut self.world,
        };
        let result = call(&mut self.controllers, &mut cx, &mut wakes);
        for (item, delay) in wakes.wanted {
            let reaction = self.settings.timers.reaction;
            // Which of two controllers comes first is chance.
            let mut at = self.now + reaction + self.choices.jitter(reaction) + delay;
            // A worker looks at its item again when its requests are answered: others see each of its writes before.
            if self.writing.as_ref().is_some_and(|(writer, own)| *writer == id && *own == item) {
                at += reaction;
            }
            self.queue.add(at, id, item);
        }
        result
    }
}
