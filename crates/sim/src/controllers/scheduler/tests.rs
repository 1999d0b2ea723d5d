//! The scheduler in a cluster without any other component: tests play kubelets, volume binders and users.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use stead_model::KubernetesVersion;

use super::binding::{BIND_COMPLETED, SELECTED_NODE};
use crate::choices::Choices;
use crate::controllers::ControllerId;
use crate::object::{SimKey, SimObject};
use crate::pods;
use crate::settings::Settings;
use crate::simulation::Simulation;
use crate::step::{DeleteOptions, Write};
use crate::world::World;

/// A cluster, and the time in milliseconds.
struct Played {
    sim: Simulation,
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).expect("a time")
}

fn object(value: Value) -> SimObject {
    SimObject::from_json(&value).expect("an object")
}

fn node(name: &str, cpu: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "host": name } },
        "status": { "allocatable": { "cpu": cpu, "memory": "8Gi", "pods": "110" } } })
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "n", "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } })
}

fn with(mut value: Value, path: &str, field: Value) -> Value {
    let (parent, name) = path.rsplit_once('/').expect("a path");
    value.pointer_mut(parent).expect("a parent")[name] = field;
    value
}

fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "n" },
        "spec": { "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Pending" } })
}

fn class() -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "local" },
        "provisioner": "topolvm.io", "volumeBindingMode": "WaitForFirstConsumer" })
}

fn pod_with_claim(name: &str, claim: &str) -> Value {
    let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }]);
    with(pod(name, "1"), "/spec/volumes", volumes)
}

/// The scheduler alone: the test does what the others would do.
fn alone(settings: Settings) -> Settings {
    settings.with_components(&[ControllerId::Scheduler])
}

impl Played {
    fn new(version: u16, objects: impl IntoIterator<Item = Value>) -> Played {
        let settings = Settings::of(KubernetesVersion::minor(version));
        let sim = Simulation::new(at(0), alone(settings), Choices::enumerated());
        let mut played = Played { sim };
        objects.into_iter().for_each(|object| played.create(object));
        played
    }

    fn request(&mut self, write: Write) {
        self.sim.request(write).expect("a request that is allowed");
    }

    /// Creates an object. Nodes do not keep the taint of new ones, priorities get a class, and volumes their status.
    fn create(&mut self, mut value: Value) {
        if let Some(priority) = value.pointer("/spec/priority").and_then(Value::as_i64) {
            let class = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": { "name": format!("p{priority}") }, "value": priority });
            if self.sim.store().get::<PriorityClass>("", &format!("p{priority}")).is_none() {
                self.request(Write::Create(object(class)));
            }
            value["spec"]["priorityClassName"] = format!("p{priority}").into();
        }
        self.request(Write::Create(object(value.clone())));
        if value["kind"] == "Node" {
            self.request(Write::Replace(object(value)));
        } else if value["kind"] == "PersistentVolume" {
            self.request(Write::Status(object(value)));
        }
    }

    fn run_to(&mut self, millis: i64) {
        self.sim.run_until(at(millis)).expect("within limits");
    }

    fn pod(&self, name: &str) -> &Pod {
        self.sim.store().get::<Pod>("n", name).expect("the pod")
    }

    fn node_of(&self, name: &str) -> Option<&str> {
        pods::node_of(self.pod(name))
    }

    fn nominated(&self, name: &str) -> Option<&str> {
        self.pod(name).status.as_ref()?.nominated_node_name.as_deref()
    }

    /// Status, reason and message of PodScheduled.
    fn scheduled(&self, name: &str) -> (&str, &str, &str) {
        let condition = pods::condition(self.pod(name), "PodScheduled").expect("a condition");
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default().leak();
        (&condition.status, text(&condition.reason), text(&condition.message))
    }

    /// The events about a pod: reason, message and count.
    fn events(&self, name: &str) -> Vec<(String, u32)> {
        let events = self.sim.events();
        let key = SimKey::pod("n", name);
        events.about(&key).map(|event| (format!("{}: {}", event.note.reason, event.note.message), event.count)).collect()
    }

    /// The number of failed attempts of a pod.
    fn failures(&self, name: &str) -> u32 {
        self.events(name).iter().filter(|(text, _)| text.starts_with("FailedScheduling")).map(|(_, count)| count).sum()
    }

    /// Runs until the pod has failed once more, and gives the time.
    fn next_failure(&mut self, name: &str, until: i64) -> Option<i64> {
        let before = self.failures(name);
        let key = SimKey::pod("n", name);
        let count = |sim: &Simulation| {
            let failed = sim.events().about(&key).filter(|event| event.note.reason == "FailedScheduling");
            failed.map(|event| event.count).sum::<u32>()
        };
        let failed = self.sim.run_until_holds(at(until), |sim| count(sim) > before).expect("within limits");
        failed.then(|| self.sim.now().as_millisecond() - at(0).as_millisecond())
    }

    fn is_at_rest(&self) -> bool {
        self.sim.pending().next().is_none()
    }

    fn edit<T: crate::object::SimType + Into<SimObject>>(&mut self, name: &str, change: impl FnOnce(&mut T)) {
        let namespace = if T::OBJECT_KIND.entry().namespaced { "n" } else { "" };
        let mut object = T::clone(self.sim.store().get::<T>(namespace, name).expect("the object"));
        change(&mut object);
        self.request(Write::Replace(object.into()));
    }

    fn delete(&mut self, key: SimKey) {
        self.request(Write::Delete(key, DeleteOptions { grace: Some(0), ..DeleteOptions::default() }));
    }

    /// Binds a claim as the volume binder does.
    fn bind_claim(&mut self, name: &str, volume: &str) {
        self.edit::<PersistentVolumeClaim>(name, |claim| {
            claim.spec.get_or_insert_default().volume_name = Some(volume.to_owned());
            claim.metadata.annotations.get_or_insert_default().insert(BIND_COMPLETED.into(), "yes".into());
        });
    }
}

#[test]
fn a_pod_is_bound_to_the_node_that_fits() {
    let mut played = Played::new(36, [node("a", "1"), node("b", "4"), pod("p", "2")]);
    // The loop hears of the pod after 2 ms, and the Binding takes 3 ms.
    played.run_to(4);
    assert_eq!(played.node_of("p"), None);
    played.run_to(5);
    assert_eq!((played.node_of("p"), played.scheduled("p").0), (Some("b"), "True"));
    assert_eq!(played.events("p"), [("Scheduled: Successfully assigned n/p to b".into(), 1)]);
    assert!(played.is_at_rest());
}

#[test]
fn pods_are_tried_by_priority_and_then_by_age() {
    let urgent = with(pod("urgent", "1"), "/spec/priority", json!(10));
    let mut played = Played::new(36, [node("a", "2"), pod("first", "1"), pod("second", "1"), urgent]);
    played.run_to(20);
    let nodes = ["first", "second", "urgent"].map(|name| played.node_of(name).is_some());
    assert_eq!(nodes, [true, false, true]);
}

#[test]
fn a_pod_assumed_on_a_node_counts_before_it_is_bound() {
    let mut played = Played::new(36, [node("a", "1"), pod("first", "1"), pod("second", "1")]);
    played.run_to(4);
    // The second attempt, 1 ms after the first, comes before the Binding of the first pod.
    assert_eq!((played.node_of("first"), played.failures("second")), (None, 1));
}

#[test]
fn a_rejected_pod_waits_for_an_event_that_helps() {
    let mut played = Played::new(36, [node("a", "2"), pod("p", "1"), pod("q", "3")]);
    played.run_to(100);
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                   available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(played.scheduled("q"), ("False", "Unschedulable", message));
    assert_eq!(played.events("q"), [(format!("FailedScheduling: {message}"), 1)]);
    // A label of a node helps nobody.
    played.edit::<Node>("a", |node| {
        node.metadata.labels.get_or_insert_default().insert("x".into(), "y".into());
    });
    played.run_to(20_000);
    assert_eq!(played.failures("q"), 1);
    played.create(node("big", "4"));
    played.run_to(20_100);
    assert_eq!(played.node_of("q"), Some("big"));
}

#[test]
fn events_are_counted_and_an_unchanged_condition_is_not_written() {
    let mut played = Played::new(36, [node("a", "1"), pod("p", "2")]);
    played.run_to(500);
    let first = played.pod("p").metadata.resource_version.clone();
    for round in 1..4 {
        // The deletion of a pod with a node wakes every pod that lacked resources.
        played.create(with(pod("short", "1"), "/spec/nodeName", json!("a")));
        played.delete(SimKey::pod("n", "short"));
        played.run_to(500 + 20_000 * round);
    }
    assert_eq!(played.pod("p").metadata.resource_version, first);
    // The first event was about the pod before its condition was written.
    let counts: Vec<u32> = played.events("p").into_iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 3]);
}

#[test]
fn the_pool_is_swept_on_a_grid_after_five_minutes() {
    let mut played = Played::new(36, [node("a", "1")]);
    played.run_to(7_000);
    played.create(pod("p", "2"));
    let times: Vec<Option<i64>> = (0..3).map(|_| played.next_failure("p", 700_000)).collect();
    // Seen at 7.002 s: more than five minutes have passed at 330 s, and then again at 660 s.
    assert_eq!(times, [Some(7_002), Some(330_000), Some(660_000)]);
}

#[test]
fn without_nodes_a_pod_is_tried_again_with_back_off() {
    let mut played = Played::new(36, [pod("p", "1")]);
    let times: Vec<Option<i64>> = (0..6).map(|_| played.next_failure("p", 100_000)).collect();
    // Each back-off ends on a whole second and is noticed on the next one.
    assert_eq!(times, [2, 2_000, 5_000, 10_000, 19_000, 30_000].map(Some));
    let message = "no nodes available to schedule pods";
    assert_eq!(played.scheduled("p"), ("False", "Unschedulable", message));
    // No plugin rejected the pod, so a new node does not help before the back-off is over.
    played.create(node("a", "4"));
    played.run_to(40_000);
    assert_eq!(played.node_of("p"), None);
    played.run_to(41_100);
    assert_eq!(played.node_of("p"), Some("a"));
}

#[test]
fn a_pod_that_backs_off_is_tried_early_since_1_33() {
    for (version, early) in [(36, true), (33, true), (32, false)] {
        let mut played = Played::new(version, [node("a", "1"), pod("p", "2")]);
        played.run_to(100);
        played.create(node("b", "4"));
        played.run_to(200);
        assert_eq!(played.node_of("p").is_some(), early, "1.{version}");
        played.run_to(3_000);
        assert_eq!(played.node_of("p"), Some("b"), "1.{version}");
    }
}

#[test]
fn a_change_of_taints_wakes_pods_that_lack_resources() {
    let mut played = Played::new(36, [node("a", "1"), pod("p", "2")]);
    played.run_to(15_000);
    let taint = json!([{ "key": "k", "effect": "PreferNoSchedule" }]);
    played.edit::<Node>("a", |node| {
        node.spec.get_or_insert_default().taints = serde_json::from_value(taint).expect("taints");
    });
    played.run_to(15_100);
    assert_eq!(played.failures("p"), 2);
}

#[test]
fn a_gated_pod_is_tried_when_its_gates_are_gone() {
    let gated = with(pod("p", "1"), "/spec/schedulingGates", json!([{ "name": "g" }]));
    let mut played = Played::new(36, [node("a", "4"), gated]);
    played.run_to(700_000);
    assert_eq!((played.node_of("p"), played.events("p").len(), played.is_at_rest()), (None, 0, true));
    played.edit::<Pod>("p", |pod| pods::spec_mut(pod).scheduling_gates = None);
    played.run_to(700_100);
    assert_eq!(played.node_of("p"), Some("a"));
}

#[test]
fn pods_of_other_schedulers_and_finished_pods_are_left_alone() {
    let other = with(pod("other", "1"), "/spec/schedulerName", json!("mine"));
    let mut played = Played::new(36, [node("a", "1"), other, with(pod("old", "1"), "/spec/nodeName", json!("a"))]);
    let mut ended = Pod::clone(played.pod("old"));
    pods::status_mut(&mut ended).phase = Some("Succeeded".into());
    played.create(pod("p", "1"));
    played.run_to(100);
    assert_eq!((played.failures("p"), played.node_of("other")), (1, None));
    played.request(Write::Status(ended.into()));
    played.run_to(2_500);
    assert_eq!(played.node_of("p"), Some("a"));
}

#[test]
fn a_deleted_pod_is_dropped_when_its_turn_comes() {
    let mut held = with(pod("p", "1"), "/metadata/finalizers", json!(["x/y"]));
    held["spec"]["priority"] = json!(5);
    let mut played = Played::new(36, [node("a", "4"), held]);
    played.delete(SimKey::pod("n", "p"));
    played.run_to(100);
    assert_eq!(played.events("p"), [("FailedScheduling: skip schedule deleting pod: n/p".into(), 1)]);
    assert_eq!((played.node_of("p"), played.is_at_rest()), (None, true));
}

#[test]
fn a_binding_that_is_refused_is_an_error() {
    let mut played = Played::new(36, [node("a", "4"), with(pod("p", "1"), "/metadata/finalizers", json!(["x/y"]))]);
    played.run_to(3);
    // Deleted between the choice of the node and the Binding.
    played.delete(SimKey::pod("n", "p"));
    played.run_to(10);
    let message = r#"running Bind plugin "DefaultBinder": Operation cannot be fulfilled on pods/binding "p": pod p is being deleted, cannot be assigned to a host"#;
    assert_eq!(played.scheduled("p"), ("False", "SchedulerError", message));
    played.run_to(20_000);
    let texts: Vec<String> = played.events("p").into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts[1..], ["FailedScheduling: skip schedule deleting pod: n/p"]);
}

#[test]
fn claims_are_sent_to_the_node_and_awaited() {
    for (version, nominated) in [(36, Some("a")), (34, None)] {
        let mut played = Played::new(version, [node("a", "4"), class(), claim("c"), pod_with_claim("p", "c")]);
        played.run_to(10);
        let claim = played.sim.store().get::<PersistentVolumeClaim>("n", "c").expect("the claim");
        assert_eq!(claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE)).map(String::as_str), Some("a"));
        assert_eq!((played.node_of("p"), played.nominated("p")), (None, nominated), "1.{version}");
        // The pod counts on its node.
        played.create(pod("q", "4"));
        played.run_to(100);
        assert_eq!(played.failures("q"), 1, "1.{version}");
        played.create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv" },
            "spec": { "storageClassName": "local", "capacity": { "storage": "1Gi" } } }));
        played.run_to(1_500);
        played.bind_claim("c", "pv");
        played.run_to(2_004);
        assert_eq!(played.node_of("p"), None, "1.{version}");
        // Polled every second from the attempt on, at 0.002 s.
        played.run_to(2_005);
        assert_eq!((played.node_of("p"), played.nominated("p")), (Some("a"), None), "1.{version}");
        assert_eq!(played.events("p"), [("Scheduled: Successfully assigned n/p to a".into(), 1)]);
    }
}

#[test]
fn a_volume_that_exists_is_reserved_for_the_claim() {
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv" },
        "spec": { "storageClassName": "local", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"] },
        "status": { "phase": "Available" } });
    let mut played = Played::new(36, [node("a", "4"), class(), claim("c"), volume, pod_with_claim("p", "c")]);
    let uid = played.sim.store().get::<PersistentVolumeClaim>("n", "c").and_then(|claim| claim.metadata.uid.clone());
    played.run_to(10);
    let volume = played.sim.store().get::<PersistentVolume>("", "pv").expect("the volume");
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).expect("a claim");
    assert_eq!((reference.uid, reference.name.as_deref()), (uid, Some("c")));
    let annotations = volume.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("pv.kubernetes.io/bound-by-controller").map(String::as_str), Some("yes"));
    // Somebody takes the volume back.
    played.edit::<PersistentVolume>("pv", |volume| volume.spec.get_or_insert_default().claim_ref = None);
    played.run_to(1_010);
    let message = r#"running PreBind plugin "VolumeBinding": binding volumes: ClaimRef got reset for pv "pv""#;
    assert_eq!(played.scheduled("p"), ("False", "SchedulerError", message));
}

#[test]
fn a_failed_provisioning_starts_over_after_a_back_off() {
    let mut played = Played::new(36, [node("a", "4"), node("b", "3"), class(), claim("c"), pod_with_claim("p", "c")]);
    played.run_to(500);
    assert_eq!(played.nominated("p"), Some("a"));
    // The provisioner gives up, and the node is cordoned.
    played.edit::<PersistentVolumeClaim>("c", |claim| {
        claim.metadata.annotations = Some([("x".to_owned(), "y".to_owned())].into());
    });
    played.edit::<Node>("a", |node| {
        node.spec.get_or_insert_default().unschedulable = Some(true);
    });
    played.run_to(1_002);
    let message = r#"running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c""#;
    assert_eq!((played.scheduled("p"), played.nominated("p")), (("False", "SchedulerError", message), None));
    // Failed at 1.002 s: the back-off of a second ends in the second of 2 s, and is noticed at 3 s.
    played.run_to(2_999);
    assert_eq!(played.nominated("p"), None);
    played.run_to(3_000);
    assert_eq!(played.nominated("p"), Some("b"));
}

#[test]
fn the_wait_for_claims_ends_after_ten_minutes_or_with_the_pod() {
    let mut played = Played::new(36, [node("a", "4"), class(), claim("c"), pod_with_claim("p", "c")]);
    assert_eq!(played.next_failure("p", 700_000), Some(600_002));
    let message = r#"running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded"#;
    assert_eq!(played.scheduled("p"), ("False", "SchedulerError", message));

    let mut played = Played::new(36, [node("a", "2"), class(), claim("c"), pod_with_claim("p", "c"), pod("q", "2")]);
    played.run_to(200);
    assert_eq!(played.failures("q"), 1);
    played.delete(SimKey::pod("n", "p"));
    played.run_to(210);
    // The assumed pod does not count any more.
    assert_eq!(played.node_of("q"), Some("a"));
    played.run_to(5_000);
    let message = r#"FailedScheduling: running PreBind plugin "VolumeBinding": binding volumes: pod does not exist any more: pod "p" not found"#;
    assert_eq!(played.events("p"), [(message.into(), 1)]);
    assert!(played.is_at_rest());
}

#[test]
fn a_pod_of_higher_priority_preempts() {
    let urgent = |name: &str, priority: i32| with(pod(name, "2"), "/spec/priority", json!(priority));
    let victim = with(pod("victim", "2"), "/spec/nodeName", json!("a"));
    let mut played = Played::new(36, [node("a", "2"), victim, urgent("urgent", 10)]);
    played.run_to(100);
    let uid = played.pod("urgent").metadata.uid.clone().unwrap_or_default();
    assert_eq!(played.nominated("urgent"), Some("a"));
    assert_eq!(played.scheduled("urgent").2, "0/1 nodes are available: 1 Insufficient cpu.");
    let target = pods::condition(played.pod("victim"), "DisruptionTarget").expect("a condition");
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    assert_eq!(target.message.as_deref(), Some("default-scheduler: preempting to accommodate a higher priority pod"));
    assert!(pods::is_terminating(played.pod("victim")));
    assert_eq!(played.events("victim"), [(format!("Preempted: Preempted by pod {uid} on node a"), 1)]);
    // Something wakes it while the victim is still there.
    played.create(with(pod("short", "0"), "/spec/nodeName", json!("a")));
    played.delete(SimKey::pod("n", "short"));
    played.run_to(12_000);
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due \
                   to a terminating pod on the nominated node.";
    assert_eq!((played.scheduled("urgent").2, played.nominated("urgent")), (message, Some("a")));
    // A pod of lower priority does not take the place of the nominated one.
    played.create(with(pod("late", "1"), "/spec/priority", json!(5)));
    played.delete(SimKey::pod("n", "victim"));
    played.run_to(12_100);
    assert_eq!((played.node_of("urgent"), played.node_of("late")), (Some("a"), None));
    assert_eq!(played.nominated("urgent"), None);
}

#[test]
fn victims_are_deleted_beside_the_loop_the_last_one_after_the_others() {
    let mut played = Played::new(36, [node("a", "3")]);
    for name in ["x", "y", "z"] {
        played.create(with(pod(name, "1"), "/spec/nodeName", json!("a")));
    }
    played.create(with(pod("urgent", "3"), "/spec/priority", json!(10)));
    let deleted = |played: &Played| {
        let pods = ["x", "y", "z"].map(|name| played.pod(name));
        let marked = pods.iter().filter(|pod| pods::condition(pod, "DisruptionTarget").is_some()).count();
        (marked, pods.iter().filter(|pod| pods::is_terminating(pod)).count())
    };
    let seen = [2, 7, 8, 13, 14].map(|millis| {
        played.run_to(millis);
        deleted(&played)
    });
    assert_eq!(seen, [(2, 0), (2, 0), (3, 2), (3, 2), (3, 3)]);
    assert_eq!((played.failures("urgent"), played.nominated("urgent")), (1, Some("a")));
}

#[test]
fn a_preemptor_that_is_woken_too_early_waits_for_the_removal_of_a_pod() {
    for (early, failures) in [(true, [1, 1, 2]), (false, [1, 2, 3])] {
        let victim = with(pod("victim", "2"), "/spec/nodeName", json!("a"));
        let urgent = with(pod("urgent", "2"), "/spec/priority", json!(10));
        let mut played = Played::new(36, [node("a", "2"), victim, urgent]);
        let taint = |played: &mut Played, value: &str| {
            let taints = json!([{ "key": "k", "value": value, "effect": "PreferNoSchedule" }]);
            played.edit::<Node>("a", |node| {
                node.spec.get_or_insert_default().taints = serde_json::from_value(taints).expect("taints");
            });
        };
        // The victim is deleted at 8 ms.
        played.run_to(4);
        if early {
            taint(&mut played, "1");
        }
        played.run_to(10_000);
        let first = played.failures("urgent");
        taint(&mut played, "2");
        played.run_to(20_000);
        let second = played.failures("urgent");
        played.create(with(pod("short", "0"), "/spec/nodeName", json!("a")));
        played.delete(SimKey::pod("n", "short"));
        played.run_to(20_100);
        assert_eq!([first, second, played.failures("urgent")], failures, "{early}");
    }
}

#[test]
fn a_pod_that_is_assumed_on_a_node_can_be_a_victim() {
    let urgent = with(pod("urgent", "2"), "/spec/priority", json!(10));
    let mut played = Played::new(36, [node("a", "2"), pod("late", "1")]);
    played.run_to(2);
    played.create(urgent);
    played.run_to(10);
    // Its Binding arrives before its deletion, which is then a graceful one.
    assert_eq!((played.node_of("late"), pods::is_terminating(played.pod("late"))), (Some("a"), true));
}

#[test]
fn a_nominated_pod_gives_way_only_if_more_pods_are_deleted() {
    let urgent = |name: &str, cpu: &str, priority: i32| with(pod(name, cpu), "/spec/priority", json!(priority));
    for (cpu, gives_way) in [("2", false), ("3", true)] {
        let victims = [("v", "2"), ("w", "1")].map(|(name, cpu)| with(pod(name, cpu), "/spec/nodeName", json!("a")));
        let mut played = Played::new(36, [node("a", "3")].into_iter().chain(victims));
        played.create(urgent("low", "2", 10));
        played.run_to(100);
        assert_eq!(played.nominated("low"), Some("a"));
        // The node is cleared for it by the deletion of `v`, which is under way, or of `w`, too.
        played.create(urgent("high", cpu, 20));
        played.run_to(200);
        assert_eq!((played.nominated("low").is_none(), played.nominated("high")), (gives_way, Some("a")), "{cpu}");
    }
}

#[test]
fn the_queue_is_rebuilt_from_conditions_and_events() {
    let settings = Settings::of(KubernetesVersion::minor(36));
    let mut rejected = with(pod("p", "4"), "/metadata/uid", json!("u"));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available.";
    rejected["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": message, "lastTransitionTime": at(-1_000_000).to_string() }] });
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "p.1", "namespace": "n" },
        "reason": "FailedScheduling", "reportingController": "default-scheduler", "type": "Warning",
        "regarding": { "kind": "Pod", "namespace": "n", "name": "p", "uid": "u" },
        "eventTime": at(-200_000).to_string(),
        "series": { "count": 2, "lastObservedTime": at(-100_000).to_string() } });
    let mut binding = with(pod_with_claim("b", "c"), "/metadata/uid", json!("v"));
    binding["status"] = json!({ "phase": "Pending", "nominatedNodeName": "a" });
    let mut selected = with(claim("c"), "/metadata/annotations", json!({ SELECTED_NODE: "a" }));
    selected["metadata"]["managedFields"] = json!([{ "manager": "kube-scheduler", "operation": "Update",
        "time": at(-599_000).to_string(), "fieldsV1": { "f:metadata": { "f:annotations": {
            "f:volume.kubernetes.io/selected-node": {} } } } }]);
    let resumed = |objects: Vec<Value>| {
        let objects = objects.into_iter().map(object);
        Played { sim: Simulation::resume(at(0), alone(settings.clone()), Choices::enumerated(), objects, World::default()) }
    };
    let mut played = resumed(vec![node("a", "3"), rejected.clone(), event.clone(), pod("new", "1")]);
    // The last attempt was 100 s ago, and nothing helped since then.
    assert_eq!(played.next_failure("p", 400_000), Some(210_000));
    assert_eq!(played.node_of("new"), Some("a"));
    let mut played = resumed(vec![node("a", "3"), class(), selected, rejected, event, binding]);
    // The binding began 599 s ago. Its end wakes the pod that lacks resources.
    assert_eq!(played.next_failure("b", 2_000), Some(1_000));
    assert_eq!(played.next_failure("p", 2_000), Some(1_000));
}

#[test]
fn the_same_objects_give_the_same_run() {
    let run = |seed: u64| {
        let mut sim = Simulation::new(at(0), alone(Settings::default()), Choices::seeded(seed));
        for name in ["a", "b", "c"] {
            sim.request(Write::Create(object(node(name, "4")))).expect("a node");
            sim.request(Write::Replace(object(node(name, "4")))).expect("a node without taints");
        }
        for number in 0..20 {
            sim.request(Write::Create(object(pod(&format!("p{number}"), "1")))).expect("a pod");
        }
        sim.run_for(SignedDuration::from_secs(600)).expect("within limits");
        let nodes: Vec<_> = sim.store().all::<Pod>().map(|pod| pods::node_of(pod).map(ToOwned::to_owned)).collect();
        (nodes, sim.steps())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    assert_eq!(run(3).0.iter().flatten().count(), 12);
}

#[test]
fn a_part_of_a_cluster_knows_the_room_that_the_rest_takes() {
    let nodes = [node("a", "2"), node("b", "2")].map(object);
    let mut whole = stead_placement::Cluster::live(KubernetesVersion::default());
    for found in &nodes {
        if let SimObject::Node(raw) = found {
            whole.set_node(stead_placement::Node::compile(raw).expect("a node"));
        }
    }
    let taken = with(pod("elsewhere", "2"), "/spec/nodeName", json!("a"));
    if let SimObject::Pod(raw) = object(taken) {
        whole.set_pod(stead_placement::Pod::compile(&raw, KubernetesVersion::default()).expect("a pod"));
    }
    let objects = nodes.into_iter().chain([object(pod("p", "1"))]);
    let settings = alone(Settings::default());
    let sim = Simulation::resume_part(at(0), settings, Choices::enumerated(), objects, World::default(), whole);
    let mut played = Played { sim };
    played.run_to(1_000);
    assert_eq!(played.node_of("p"), Some("b"));
    assert!(played.sim.placement().pod(&stead_placement::PodKey::new("n", "elsewhere")).is_some());
}
