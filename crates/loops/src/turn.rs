//! One look at an object of the first report's kinds: what was decided so far, and what is to be written.

use std::time::Duration;

use serde_json::{Map, Value};
use stead_model::ObjectKey;

use crate::conditions::{Conditions, Severity, Standing, status};
use crate::glance_api::config::Neighbours;
use crate::object::{name, namespace, text};
use crate::ownership;
use crate::step::{Event, Step, World, Write};

/// When to reconcile again while an object that is not ours has the name of one that is wanted. Nothing else triggers
/// it when that object is deleted.
const SOON: Duration = Duration::from_secs(5);

/// The steps end early where something is missing; what was decided until then stands.
pub(crate) struct Stopped;

/// What a loop has decided about its object so far.
pub(crate) struct Turn<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) object: &'a Value,
    pub(crate) conditions: Conditions,
    /// The status as it will be, without its conditions.
    pub(crate) status: Map<String, Value>,
    pub(crate) step: Step,
}

impl<'a> Turn<'a> {
    /// Nothing is decided yet.
    pub(crate) fn new(world: &'a World<'a>, object: &'a Value, undecided: &[(&'static str, &str)]) -> Turn<'a> {
        let mut status = object["status"].as_object().cloned().unwrap_or_default();
        status.remove("conditions");
        Turn { world, object, conditions: Conditions::new(undecided), status, step: Step::default() }
    }

    /// What is known of an object in the same namespace.
    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&'a Value> {
        self.world.store.find(kind, namespace(self.object), name)
    }

    /// Applies an object, unless one of that name exists that is not ours. Gives why the object is not as wanted: the
    /// one that exists, or the failure of the last attempt to write it.
    #[must_use = "a condition has to report it"]
    pub(crate) fn apply(&mut self, object: Value) -> Option<String> {
        self.apply_whole(object, Vec::new())
    }

    /// The same; fields under these paths that are not wanted are removed, whoever set them.
    #[must_use = "a condition has to report it"]
    pub(crate) fn apply_whole(&mut self, object: Value, whole: Vec<&'static str>) -> Option<String> {
        let (kind, name) = (text(&object, "/kind"), name(&object));
        let conflict = self.find(kind, name).and_then(|live| ownership::conflict(&object, live));
        if conflict.is_some() {
            self.step.again = Some(SOON);
            return conflict;
        }
        let failure = self.failure(kind, name).map(str::to_owned);
        self.step.writes.push(Write::Apply { object, whole });
        failure
    }

    /// Tells whoever looks at the object's events.
    pub(crate) fn event(&mut self, warning: bool, reason: &str, message: String) {
        let about = ObjectKey::new(text(self.object, "/kind"), namespace(self.object), name(self.object));
        self.step.writes.push(Write::Event(Event { about, warning, reason: reason.to_owned(), message }));
    }

    /// Why an object could not be written when that was last tried.
    pub(crate) fn failure(&self, kind: &str, name: &str) -> Option<&'a str> {
        let key = ObjectKey::new(kind, namespace(self.object), name);
        self.world.failures.get(&key).map(|f| f.message.as_str())
    }

    /// An image is known, and the Secret with the service's password is there.
    pub(crate) fn input(&mut self, spec: &Value) -> Result<(), Stopped> {
        if text(spec, "/containerImage").is_empty() {
            let message =
                "Input data error occurred no image: set containerImage, or run the operator with --glance-image";
            self.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        let (secret, key) = (text(spec, "/secret"), text(spec, "/passwordSelectors/service"));
        let Some(found) = self.find("Secret", secret) else {
            self.secret_missing(secret, "Input data resources missing".to_owned());
            return Err(Stopped);
        };
        if found["data"].get(key).is_none() {
            let place = format!("{}/{secret}", namespace(self.object));
            let message = format!("Input data error occurred field not found: field {key} not found in Secret {place}");
            self.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        self.conditions.met("InputReady", "Input data complete");
        Ok(())
    }

    /// A Secret that the input consists of is missing, or could not be read.
    pub(crate) fn secret_missing(&mut self, name: &str, message: String) {
        match self.failure("Secret", name) {
            Some(failure) => self.conditions.failed("InputReady", format!("Input data error occurred {failure}")),
            None => self.conditions.waiting("InputReady", message),
        }
    }

    /// Whether tokens are cached, and where.
    pub(crate) fn memcached(&mut self, neighbours: &Neighbours, spec: &Value) {
        let (standing, message) = if neighbours.memcached.is_empty() {
            let instance = text(spec, "/memcachedInstance");
            (MISSING, format!("no Service {instance} in this namespace: tokens are not cached"))
        } else {
            (Standing::Met, format!("tokens are cached in {}", neighbours.memcached))
        };
        self.conditions.told("MemcachedReady", standing, message);
    }

    /// All that is to be written, the status last.
    pub(crate) fn finish(mut self, ready: bool) -> Step {
        self.status.insert("observedGeneration".into(), self.object["metadata"]["generation"].clone());
        let conditions = self.conditions.into_json(ready, &self.object["status"], self.world.now);
        self.status.insert("conditions".into(), conditions);
        let status = status(self.object, Value::Object(self.status));
        self.step.writes.push(Write::Status { object: status });
        self.step
    }
}

/// Something that a Glance leans on is not there; it is in nobody's way.
pub(crate) const MISSING: Standing = Standing::NotMet { reason: "Missing", severity: Severity::Info };
