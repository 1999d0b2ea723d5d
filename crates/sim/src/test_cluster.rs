//! A cluster for the tests of workload controllers: the test plays scheduler and kubelet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};

use crate::object::{ObjectKind, SimKey, SimObject, SimType};
use crate::pods::{is_terminating, node_of, set_condition};
use crate::step::{DeleteOptions, Write};
use crate::{Choices, ControllerId, Settings, Simulation};

/// The components under test.
pub(crate) const WORKLOADS: [ControllerId; 3] =
    [ControllerId::Deployments, ControllerId::ReplicaSets, ControllerId::StatefulSets];

/// A cluster whose pods do what the test says. All objects are in the namespace `n`.
pub(crate) struct TestCluster {
    pub(crate) sim: Simulation,
}

impl TestCluster {
    /// An empty cluster of the newest version.
    pub(crate) fn new() -> TestCluster {
        TestCluster::with(Settings::default())
    }

    /// An empty cluster with these settings.
    pub(crate) fn with(settings: Settings) -> TestCluster {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        TestCluster { sim: Simulation::new(now, settings.with_components(&WORKLOADS), Choices::enumerated()) }
    }

    /// Creates an object in the namespace `n`.
    pub(crate) fn create(&mut self, mut object: Value) {
        object["metadata"]["namespace"] = json!("n");
        let object = SimObject::from_json(&object).expect("an object");
        self.sim.request(Write::Create(object)).expect("created");
    }

    /// Changes an object.
    pub(crate) fn edit<T: SimType>(&mut self, name: &str, change: impl FnOnce(&mut T))
    where
        SimObject: From<T>,
    {
        let mut object = T::clone(self.get::<T>(name));
        change(&mut object);
        self.sim.request(Write::Replace(object.into())).expect("replaced");
    }

    /// An object.
    pub(crate) fn get<T: SimType>(&self, name: &str) -> &T {
        self.sim.store().get::<T>("n", name).expect("the object exists")
    }

    /// Lets some time pass.
    pub(crate) fn run(&mut self, seconds: i64) {
        self.sim.run_for(SignedDuration::from_secs(seconds)).expect("no limit");
    }

    /// Lets the controllers react.
    pub(crate) fn settle(&mut self) {
        self.sim.run_for(SignedDuration::from_millis(200)).expect("no limit");
    }

    /// The names of the pods; those that are being deleted with a minus sign.
    pub(crate) fn pods(&self) -> Vec<String> {
        let name = |pod: &Pod| pod.metadata.name.clone().expect("a name");
        let mark = |pod: &Pod| if is_terminating(pod) { format!("-{}", name(pod)) } else { name(pod) };
        self.sim.store().all_in::<Pod>("n").map(|pod| mark(pod)).collect()
    }

    /// Changes the status of a pod.
    pub(crate) fn set_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let mut pod = self.get::<Pod>(name).clone();
        change(&mut pod);
        self.sim.request(Write::Status(pod.into())).expect("written");
    }

    /// Runs a pod on a node and makes it Ready.
    pub(crate) fn start(&mut self, name: &str) {
        let now = self.sim.now();
        let pod = self.get::<Pod>(name);
        if node_of(pod).is_none() {
            let uid = pod.metadata.uid.clone().expect("a UID");
            let bind = Write::Bind { pod: SimKey::pod("n", name), uid, node: "a".into() };
            self.sim.request(bind).expect("bound");
        }
        self.set_pod(name, |pod| {
            pod.status.get_or_insert_default().phase = Some("Running".into());
            let ready = PodCondition { type_: "Ready".into(), status: "True".into(), ..PodCondition::default() };
            set_condition(pod, ready, now);
        });
    }

    /// Starts every pod that is not being deleted, and lets the controllers react.
    pub(crate) fn start_all(&mut self) {
        for name in self.pods().iter().filter(|name| !name.starts_with('-')) {
            self.start(name);
        }
        self.settle();
    }

    /// Makes a pod not Ready.
    pub(crate) fn break_pod(&mut self, name: &str) {
        let now = self.sim.now();
        self.set_pod(name, |pod| {
            let ready = PodCondition { type_: "Ready".into(), status: "False".into(), ..PodCondition::default() };
            set_condition(pod, ready, now);
        });
    }

    /// Sets the phase of a pod.
    pub(crate) fn set_phase(&mut self, name: &str, phase: &str) {
        self.set_pod(name, |pod| pod.status.get_or_insert_default().phase = Some(phase.into()));
    }

    /// Requests the deletion of an object.
    pub(crate) fn delete(&mut self, kind: ObjectKind, name: &str) {
        let delete = Write::Delete(SimKey::new(kind, "n", name), DeleteOptions::default());
        self.sim.request(delete).expect("deleted");
    }

    /// Removes every pod that is being deleted, and lets the controllers react.
    pub(crate) fn end_terminating(&mut self) {
        for name in self.pods() {
            if let Some(name) = name.strip_prefix('-') {
                let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
                self.sim.request(Write::Delete(SimKey::pod("n", name), options)).expect("removed");
            }
        }
        self.settle();
    }

    /// The events about an object: type, reason and message.
    pub(crate) fn events(&self, kind: ObjectKind, name: &str) -> Vec<String> {
        let key = SimKey::new(kind, "n", name);
        let events = self.sim.events().about(&key);
        let text = |warning: bool| if warning { "Warning" } else { "Normal" };
        events
            .map(|event| format!("{} {}: {}", text(event.note.warning), event.note.reason, event.note.message))
            .collect()
    }

    /// The status of an object as JSON.
    pub(crate) fn status(&self, kind: ObjectKind, name: &str) -> Value {
        let key = SimKey::new(kind, "n", name);
        self.sim.store().object(&key).expect("the object exists").to_json()["status"].clone()
    }

    /// The conditions of an object: type, status and reason.
    pub(crate) fn conditions(&self, kind: ObjectKind, name: &str) -> Vec<String> {
        let status = self.status(kind, name);
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.map(|c| format!("{}={} {}", text(c, "type"), text(c, "status"), text(c, "reason"))).collect()
    }
}
