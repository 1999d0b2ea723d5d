//! What was foreseen at each step of the recorded outages (`testdata/traces`), and what then came.
//!
//! The recordings are of the real control plane with its default waiting times, on stand-in nodes that start a pod in a
//! second, have it ready another second later, stop it in one, and report every four. They hold changes, not objects: what
//! the cluster looked like at each step is put together here.

use serde_json::Value;
use stead_explain::outage::Way;

use crate::situation::{Pod, Situation, Storage};

const CINDER: &str = include_str!("../../../../testdata/traces/cinder.jsonl");
const GLANCE: &str = include_str!("../../../../testdata/traces/glance.jsonl");

/// The nodes of the recordings.
const SEVEN: [&str; 7] = [
    "master-0:zoneA",
    "master-1:zoneB",
    "master-2:zoneC",
    "worker-0:zoneA",
    "worker-1:zoneB",
    "worker-2:zoneC",
    "worker-3:zoneA",
];

/// A recording's lines.
struct Recording(Vec<Value>);

impl Recording {
    fn read(text: &str) -> Recording {
        Recording(text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect())
    }

    /// When something was first so, after a moment.
    fn first(&self, after: f64, is: impl Fn(&Value) -> bool) -> f64 {
        let found = self.0.iter().find(|l| l["t"].as_f64().is_some_and(|t| t >= after) && is(l));
        found.and_then(|l| l["t"].as_f64()).expect("it is in the recording")
    }

    /// When a pod was first of a status, after a moment.
    fn pod(&self, after: f64, name: &str, ready: &str, status: &str) -> f64 {
        self.first(after, |l| l["pod"] == name && l["ready"] == ready && l["status"] == status)
    }

    /// When a node became Unknown, after a moment.
    fn unknown(&self, after: f64, node: &str) -> f64 {
        self.first(after, |l| l["node"] == node && l["ready"][0] == "Unknown")
    }
}

fn within(foreseen: Option<f64>, came: f64, seconds: f64, what: &str) {
    let foreseen = foreseen.unwrap_or_else(|| panic!("{what}: never was foreseen, but it came at {came}"));
    assert!((foreseen - came).abs() <= seconds, "{what}: foreseen for {foreseen}, came at {came}");
}

/// The kubelets of the recordings report every four seconds.
fn cinder() -> Situation {
    let mut out = Situation::new(&SEVEN)
        .deployment("Recreate")
        .workload("ReplicaSet", "old")
        .workload("ReplicaSet", "new")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce");
    out.clock.timers.node_status_period = jiff::SignedDuration::from_secs(4);
    out
}

#[test]
fn a_rolling_update_locks_itself_until_it_recreates() {
    let seen = Recording::read(CINDER);
    let (old, new) = ("test-cinder-8c5c85484-6t94s", "test-cinder-7956c54757-7gh8h");
    let waits = seen.pod(23.0, new, "0/1", "ContainerCreating");
    let told = seen.first(60.0, |l| l["pod"] == old && l["status"] == "Terminating");
    let came = seen.pod(told, new, "1/1", "Running");
    let there = cinder()
        .change("Deployment", "web", |d| d["spec"]["strategy"]["type"] = "RollingUpdate".into())
        .put(Pod::new(old, "ReplicaSet/old", 20.4).claim("data").on("master-0", 20.4).ready(21.4, 22.8).0)
        .put(Pod::new(new, "ReplicaSet/new", waits).claim("data").on("worker-0", waits).0)
        .attached("data", "master-0")
        .now(told);
    assert_eq!(there.ready(new, Way::DoNothing), None);
    within(there.ready(new, Way::RecreateStrategy), came, 5.0, "recreate");
}

#[test]
fn a_node_is_shut_down_under_a_deployment() {
    let seen = Recording::read(CINDER);
    let (old, new) = ("test-cinder-7956c54757-qg8l7", "test-cinder-7956c54757-mnw55");
    let ready = seen.pod(70.0, old, "1/1", "Running");
    let unknown = seen.unknown(ready, "master-0");
    let running = cinder()
        .put(Pod::new(old, "ReplicaSet/old", 74.4).claim("data").on("master-0", 74.4).ready(80.1, ready).0)
        .attached_at("data", "master-0", 78.4)
        .silent("master-0", 82.0, unknown);
    let evicted = seen.pod(unknown, old, "1/1", "Terminating");

    // Just found silent: the pod is evicted, its successor waits for the volume for ever.
    let there = running.clone().now(unknown + 1.0);
    assert_eq!(there.ready(old, Way::DoNothing), None);
    let steps = there.forecast(old, Way::DoNothing).steps;
    let begins = steps[0].at.expect("a time").duration_since(crate::situation::at(0.0)).as_secs_f64();
    within(Some(begins), evicted, 2.0, "the eviction");

    // Terminating, with a successor that waits: 480 seconds did not help it.
    let there = running
        .change("Pod", old, |p| *p = Pod(p.clone()).deleted(evicted).0)
        .put(Pod::new(new, "ReplicaSet/old", evicted).claim("data").on("worker-0", evicted).0)
        .now(evicted + 480.0);
    for pod in [old, new] {
        assert_eq!(there.ready(pod, Way::DoNothing), None, "{pod}");
    }
    // Then it was deleted by force, and six minutes passed.
    let gone = seen.pod(evicted, old, "1/1", "(gone)");
    let came = seen.pod(gone, new, "1/1", "Running");
    let there = there.now(gone);
    for pod in [old, new] {
        within(there.ready(pod, Way::ForceDeletePod), came, 3.0, pod);
    }
    // A minute later, with the old pod gone, the timer's beginning has to be read from what is left.
    let said =
        "Waiting for detach for volume \"pv-data\" Volume is already used by pod(s) test-cinder-7956c54757-qg8l7";
    let status =
        serde_json::json!([{ "subresource": "status", "time": crate::situation::at(gone.floor()).to_string() }]);
    let there = there
        .remove("Pod", old)
        .said("attachdetach-controller", new, "FailedAttachVolume", said, evicted)
        .change("ReplicaSet", "old", |set| set["metadata"]["managedFields"] = status)
        .now(gone + 60.0);
    within(there.ready(new, Way::DoNothing), came, 3.0, "the timer runs");
}

#[test]
fn a_node_is_shut_down_and_tainted() {
    let seen = Recording::read(CINDER);
    let (old, new) = ("test-cinder-7956c54757-mnw55", "test-cinder-7956c54757-d9fp8");
    let tainted = seen.first(1300.0, |l| l["taints"][0][0] == "node.kubernetes.io/out-of-service");
    let unknown = seen.unknown(1300.0, "worker-0");
    let came = seen.pod(tainted, new, "1/1", "Running");
    let there = cinder()
        .put(Pod::new(old, "ReplicaSet/old", 436.4).claim("data").on("worker-0", 436.4).ready(1279.7, 1281.0).0)
        .attached_at("data", "worker-0", 1277.8)
        .silent("worker-0", 1282.0, unknown)
        .now(tainted);
    let foreseen = there.forecast(old, Way::OutOfService);
    within(there.ready(old, Way::OutOfService), came, 10.0, "out of service");
    assert!(foreseen.nodes.contains(&"master-0".to_owned()), "{:?}", foreseen.nodes);
}

#[test]
fn a_whole_zone_is_down_and_comes_back() {
    let seen = Recording::read(CINDER);
    let (old, new) = ("test-cinder-7956c54757-d9fp8", "test-cinder-7956c54757-ds7qx");
    let unknown = |node| seen.unknown(1400.0, node);
    let made = seen.pod(1700.0, new, "0/1", "Pending");
    let back = seen.pod(made, old, "1/1", "(gone)") - 1.0;
    let came = seen.pod(made, new, "1/1", "Running");
    let there = cinder()
        .put(Pod::new(old, "ReplicaSet/old", 1332.5).claim("data").on("master-0", 1332.5).ready(1343.5, 1344.8).0)
        .attached_at("data", "master-0", 1341.8)
        .silent("master-0", 1360.0, unknown("master-0"))
        .silent("worker-0", 1360.0, unknown("worker-0"))
        .silent("worker-3", 1360.0, unknown("worker-3"));
    // Before the eviction: its successor will find no node.
    assert_eq!(there.clone().now(1500.0).ready(old, Way::DoNothing), None);
    let there = there
        .change("Pod", old, |p| *p = Pod(p.clone()).deleted(made).0)
        .put(Pod::new(new, "ReplicaSet/old", made).claim("data").0)
        .now(back);
    for pod in [old, new] {
        for way in [Way::DoNothing, Way::ForceDeletePod, Way::OutOfService, Way::DeleteNode] {
            assert_eq!(there.ready(pod, way), None, "{pod} {way:?}");
        }
        within(there.ready(pod, Way::NodeReturns), came, 5.0, pod);
    }
}

#[test]
fn the_glance_pods_of_a_silent_node() {
    let seen = Recording::read(GLANCE);
    let name = |i: usize| format!("glance-azone-edge-api-{i}");
    let unknown = seen.unknown(100.0, "worker-0");
    let mut there = Situation::new(&SEVEN).workload("StatefulSet", "glance-azone-edge-api");
    there.of("StatefulSet", "glance-azone-edge-api")["spec"]["podManagementPolicy"] = "Parallel".into();
    let only = serde_json::json!({ "zone": "zoneA" });
    for i in 0..3 {
        let pod = Pod::new(&name(i), "StatefulSet/glance-azone-edge-api", 97.0).on("worker-0", 97.0).ready(98.0, 99.0);
        there = there.put(pod.with(|p| p["spec"]["nodeSelector"] = only.clone()).0);
    }
    let mut there = there.silent("worker-0", 104.0, unknown);
    let evicted = seen.pod(unknown, &name(0), "3/3", "Terminating");
    for i in 0..3 {
        there = there.change("Pod", &name(i), |p| *p = Pod(p.clone()).deleted(evicted).0);
    }
    let forced = seen.pod(evicted, &name(0), "3/3", "(gone)");
    let there = there.now(forced);
    assert_eq!(there.ready(&name(0), Way::DoNothing), None);
    let came = seen.pod(forced, &name(0), "3/3", "Running");
    within(there.ready(&name(0), Way::ForceDeletePod), came, 3.0, "forced");

    // The node answers again: the two others end and are made anew.
    let there = there.remove("Pod", &name(0));
    for i in [1, 2] {
        let gone = seen.pod(forced + 1.0, &name(i), "3/3", "(gone)");
        let came = seen.pod(gone, &name(i), "3/3", "Running");
        within(there.clone().now(gone - 1.0).ready(&name(i), Way::NodeReturns), came, 3.0, "returned");
    }
}
