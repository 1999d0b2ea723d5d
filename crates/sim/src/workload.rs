//! How the programs of a workload behave: how long they take, and whether they start, stay and become ready.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use stead_model::times::near;
use stead_model::{Kind, controller_of};

use crate::object::{ObjectKind, SimKey, SimObject, SimType};
use crate::pods::condition;
use crate::settings::{Settings, WorkloadDelays};
use crate::store::Store;
use crate::world::World;

/// How the containers of a pod behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// They become ready; those of a pod that ends by itself (restartPolicy Never or OnFailure) succeed.
    #[default]
    Healthy,
    /// They run and become ready, and do not end by themselves, whatever the restart policy is.
    KeepsRunning,
    /// They run and never become ready.
    NeverReady,
    /// They end with exit code 1 after the time that they need to become ready.
    CrashLoop,
    /// Their images cannot be pulled.
    MissingImage,
    /// They end with this exit code after the time that the containers of a Job run.
    FailsWith(i32),
    /// They do not end when they have to, and their kubelet cannot end them.
    NeverStops,
}

/// The pods of a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// How long their containers take; none for the delays of the settings.
    pub delays: Option<WorkloadDelays>,
    /// How they behave.
    pub behaviour: Behaviour,
}

impl Workload {
    /// The delays.
    pub(crate) fn delays<'a>(&'a self, settings: &'a Settings) -> &'a WorkloadDelays {
        self.delays.as_ref().unwrap_or(&settings.workload)
    }
}

/// The controller of an object.
fn controller_key(metadata: &ObjectMeta) -> Option<SimKey> {
    let owner = controller_of(metadata)?;
    let kind = ObjectKind::of(Kind::find(&owner.api_version, &owner.kind)?);
    Some(SimKey::new(kind, metadata.namespace.as_deref().unwrap_or_default(), &owner.name))
}

impl World {
    /// The workload that a pod belongs to: set for the pod itself, for its controller, or for the controller of that.
    pub(crate) fn workload_of(&self, store: &Store, pod: &Pod) -> Workload {
        if self.workloads().next().is_none() {
            return Workload::default();
        }
        let own = SimKey::of(ObjectKind::Pod, &pod.metadata);
        let controller = controller_key(&pod.metadata);
        let above = controller.as_ref().and_then(|key| controller_key(store.object(key)?.metadata()));
        let found = [Some(own), controller, above].into_iter().flatten().find_map(|key| self.workload(&key));
        found.cloned().unwrap_or_default()
    }

    /// Learns the delays of workloads from the history of their running pods, for workloads that nothing is set for.
    pub fn learn_delays(&mut self, objects: &[SimObject], settings: &Settings) {
        let controllers: BTreeMap<SimKey, SimKey> = objects
            .iter()
            .filter(|object| object.kind() == ObjectKind::ReplicaSet)
            .filter_map(|object| Some((object.key(), controller_key(object.metadata())?)))
            .collect();
        let mut observed: BTreeMap<SimKey, Vec<(SignedDuration, SignedDuration)>> = BTreeMap::new();
        for pod in objects.iter().filter_map(Pod::of) {
            let Some(controller) = controller_key(&pod.metadata) else { continue };
            let workload = controllers.get(&controller).cloned().unwrap_or(controller);
            observed.entry(workload).or_default().extend(observed_delays(pod));
        }
        for (key, mut delays) in observed.into_iter().filter(|(_, delays)| !delays.is_empty()) {
            if self.workload(&key).is_some() {
                continue;
            }
            let middle = delays.len() / 2;
            delays.sort_unstable_by_key(|(start, _)| *start);
            let start = delays[middle].0;
            delays.sort_unstable_by_key(|(_, ready)| *ready);
            let delays = WorkloadDelays { start, ready: delays[middle].1, ..settings.workload.clone() };
            self.set_workload(key, Workload { delays: Some(delays), behaviour: Behaviour::Healthy });
        }
    }
}

/// How long a pod took to start and to become ready; none where its history does not say so.
fn observed_delays(pod: &Pod) -> Option<(SignedDuration, SignedDuration)> {
    let at = |time: &Option<Time>| -> Option<Timestamp> { near(time.as_ref()?.0) };
    let status = pod.status.as_ref()?;
    let mut running = Timestamp::MIN;
    for container in status.container_statuses.as_deref()? {
        // A container that was restarted says nothing about its first start.
        if container.restart_count > 0 {
            return None;
        }
        running = running.max(at(&container.state.as_ref()?.running.as_ref()?.started_at)?);
    }
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    // The sandbox needs the volumes; a kubelet that does not report it leaves the time of admission.
    let sandbox = condition(pod, "PodReadyToStartContainers").filter(|condition| condition.status == "True");
    let from = sandbox.and_then(|condition| at(&condition.last_transition_time)).or(at(&status.start_time))?;
    let positive = |duration: SignedDuration| duration.max(SignedDuration::ZERO);
    let ready = at(&ready.last_transition_time)?.duration_since(running);
    Some((positive(running.duration_since(from)), positive(ready)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, owner: Value, started: &str, running: &str, ready: &str, restarts: i32) -> SimObject {
        let time = |time: &str| format!("2026-01-01T00:{time}Z");
        let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": time(ready) });
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "ownerReferences": [owner] },
            "spec": { "containers": [] },
            "status": { "startTime": time(started), "conditions": [condition], "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
                "state": { "running": { "startedAt": time(running) } } }] } }))
        .expect("a pod")
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true })
    }

    #[test]
    fn delays_are_those_of_the_pods_in_the_cluster() {
        let replica_set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": "web-1", "namespace": "n", "ownerReferences": [owner("Deployment", "web")] } });
        let objects = [
            SimObject::from_json(&replica_set).expect("a ReplicaSet"),
            pod("web-1-a", owner("ReplicaSet", "web-1"), "00:00", "00:03", "00:13", 0),
            pod("web-1-b", owner("ReplicaSet", "web-1"), "00:00", "00:05", "00:17", 0),
            pod("web-1-c", owner("ReplicaSet", "web-1"), "00:00", "20:00", "20:10", 3),
            pod("web-1-d", owner("ReplicaSet", "web-1"), "00:00", "00:04", "00:15", 0),
            pod("db-0", owner("StatefulSet", "db"), "00:00", "00:30", "00:30", 0),
        ];
        let mut world = World::default();
        world.learn_delays(&objects, &Settings::default());
        let seconds: Vec<(String, i64, i64)> = world
            .workloads()
            .map(|(key, workload)| {
                let delays = workload.delays.as_ref().expect("learned");
                (key.to_string(), delays.start.as_secs(), delays.ready.as_secs())
            })
            .collect();
        assert_eq!(seconds, [("statefulset n/db".into(), 30, 0), ("deployment n/web".into(), 4, 11)]);
    }
}
