//! One run of the loop of a Glance or GlanceAPI: what it has decided so far, and what is to be written.

use std::time::Duration;

use serde_json::{Map, Value};
use stead_model::{Condition, ObjectRef, Typed};

use crate::conditions::{ConditionState, Conditions, Severity};
use crate::glance_api::config::Dependencies;
use crate::inputs::Inputs;
use crate::owner::{Owner, WantedObject};
use crate::ownership;
use crate::secret::DigestedSecret;
use crate::step::{LoopEvent, LoopStep, World, Write};

/// When to reconcile again while an object that is not ours has the name of one that is wanted. Nothing else triggers
/// it when that object is deleted.
const CONFLICT_RETRY: Duration = Duration::from_secs(5);

/// A step cannot go on because something is missing. What was decided until then is reported.
pub(crate) struct Stopped;

/// What a loop has decided about its object so far.
pub(crate) struct Reconciliation<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) owner: Owner<'a>,
    /// The conditions in the present status.
    before: &'a [Condition],
    pub(crate) conditions: Conditions,
    /// The new status, without its conditions.
    pub(crate) status: Map<String, Value>,
    pub(crate) step: LoopStep,
}

impl<'a> Reconciliation<'a> {
    /// Nothing is decided yet.
    pub(crate) fn new(
        world: &'a World<'a>,
        object: ObjectRef<'a>,
        owner: Owner<'a>,
        before: &'a [Condition],
        undecided: &[(&'static str, &str)],
    ) -> Reconciliation<'a> {
        let mut status = object.raw()["status"].as_object().cloned().unwrap_or_default();
        status.remove("conditions");
        Reconciliation {
            world,
            owner,
            before,
            conditions: Conditions::new(undecided),
            status,
            step: LoopStep::default(),
        }
    }

    /// An object in the same namespace.
    pub(crate) fn find<T: Typed>(&self, name: &str) -> Option<&'a T> {
        self.world.store.find(self.owner.namespace(), name)
    }

    /// Applies an object, unless one of that name exists that is not ours. Gives why the object is not as wanted: the
    /// one that exists, or the failure of the last attempt to write it.
    #[must_use = "a condition has to report it"]
    pub(crate) fn apply(&mut self, wanted: WantedObject) -> Option<String> {
        self.apply_exclusively(wanted, Vec::new())
    }

    /// The same; fields under these paths that are not wanted are removed, whoever set them.
    #[must_use = "a condition has to report it"]
    pub(crate) fn apply_exclusively(&mut self, wanted: WantedObject, exclusive: Vec<&'static str>) -> Option<String> {
        let WantedObject { key, object } = wanted;
        let conflict = self.world.store.raw(&key).and_then(|live| ownership::conflict(&object, live));
        if conflict.is_some() {
            self.step.again = Some(CONFLICT_RETRY);
            return conflict;
        }
        self.step.writes.push(Write::Apply { object, exclusive });
        self.failure(&key.kind, &key.name).map(str::to_owned)
    }

    /// Writes an event about the object.
    pub(crate) fn event(&mut self, warning: bool, reason: &'static str, message: String) {
        let about = self.owner.key();
        self.step.writes.push(Write::Event(LoopEvent { about, warning, reason, message }));
    }

    /// Why an object could not be written or read when that was last tried.
    pub(crate) fn failure(&self, kind: &str, name: &str) -> Option<&'a str> {
        self.world.failures.get(&self.owner.neighbour(kind, name)).map(|failure| failure.message.as_str())
    }

    /// An image is named, and the Secret with the service's password exists.
    pub(crate) fn input(&mut self, inputs: &Inputs<'_>) -> Result<(), Stopped> {
        if inputs.image.is_empty() {
            let message =
                "Input data error occurred no image: set containerImage, or run the operator with --glance-image";
            self.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        let Some(found) = self.find::<DigestedSecret>(inputs.secret) else {
            self.secret_missing(inputs.secret, "Input data resources missing".to_owned());
            return Err(Stopped);
        };
        let field = inputs.service_password;
        if !found.has(field) {
            let secret = format!("{}/{}", self.owner.namespace(), inputs.secret);
            let message =
                format!("Input data error occurred field not found: field {field} not found in Secret {secret}");
            self.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        self.conditions.met("InputReady", "Input data complete");
        Ok(())
    }

    /// A Secret of the input does not exist, or could not be read.
    pub(crate) fn secret_missing(&mut self, name: &str, message: String) {
        match self.failure("Secret", name) {
            Some(failure) => self.conditions.failed("InputReady", format!("Input data error occurred {failure}")),
            None => self.conditions.waiting("InputReady", message),
        }
    }

    /// Whether tokens are cached, and where.
    pub(crate) fn memcached(&mut self, dependencies: &Dependencies, instance: &str) {
        let (state, message) = if dependencies.memcached.is_empty() {
            (MISSING, format!("no Service {instance} in this namespace: tokens are not cached"))
        } else {
            (ConditionState::Met, format!("tokens are cached in {}", dependencies.memcached))
        };
        self.conditions.report("MemcachedReady", state, message);
    }

    /// The step: all writes, the status last.
    pub(crate) fn finish(mut self, ready: bool) -> LoopStep {
        self.status.insert("observedGeneration".into(), self.owner.metadata.generation.into());
        let conditions = self.conditions.into_json(ready, self.before, self.world.now);
        self.status.insert("conditions".into(), conditions);
        self.step.writes.push(self.owner.status(Value::Object(self.status)));
        self.step
    }
}

/// A service that Glance uses does not exist. Its pods are created nevertheless.
pub(crate) const MISSING: ConditionState = ConditionState::NotMet { reason: "Missing", severity: Severity::Info };
