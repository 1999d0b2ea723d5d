//! What each way leads to, by kind of workload, of storage and of outage.

use jiff::SignedDuration;
use serde_json::json;
use stead_explain::outage::{Timers, Way};

use crate::situation::{Pod, Situation, Storage, at, lease};

const NODES: [&str; 3] = ["a:x", "b:x", "c:y"];

/// From a free volume to Ready, and from a node to Ready, of the pods here: they start in a second and are ready one
/// later.
const ATTACHED: f64 = 0.6 + 2.0;
const PLACED: f64 = 2.0;

/// Times are written down to the second: half of one is taken to be lost of those that something begins with.
///
/// A node `a` that was heard of last at 0 s, found silent at 50 s; it is 100 s now.
fn silent(situation: Situation) -> Situation {
    situation.silent("a", 0.0, 50.0).now(100.0)
}

fn pod(name: &str, of: &str) -> Pod {
    Pod::new(name, of, -100.0).on("a", -100.0).ready(-99.0, -98.0)
}

fn set(ordered: bool) -> Situation {
    let policy = if ordered { "OrderedReady" } else { "Parallel" };
    Situation::new(&NODES)
        .workload("StatefulSet", "db")
        .change("StatefulSet", "db", |s| s["spec"]["podManagementPolicy"] = policy.into())
}

fn web() -> Situation {
    Situation::new(&NODES).deployment("Recreate").workload("ReplicaSet", "web-1")
}

#[track_caller]
fn check(there: &Situation, pod: &str, table: &[(Way, Option<f64>)]) {
    for (way, ready) in table {
        let seen = there.ready(pod, *way);
        let same = match (seen, ready) {
            (Some(seen), Some(ready)) => (seen - ready).abs() < 0.01,
            (None, None) => true,
            _ => false,
        };
        assert!(same, "{pod} {way:?}: {seen:?}, not {ready:?}: {:#?}", there.forecast(pod, *way));
    }
}

#[test]
fn a_deployment_without_volumes_moves_by_itself() {
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, Some(350.5 + PLACED)),
            (Way::NodeReturns, Some(101.0)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            // The pod collector looks in ten seconds, as is to be expected, and again twice.
            (Way::DeleteNode, Some(100.0 + 50.0 + PLACED)),
            (Way::OutOfService, Some(100.0 + PLACED)),
        ],
    );
    assert_eq!(there.forecast("web-1-x", Way::DoNothing).nodes, ["b", "c"]);
}

#[test]
fn a_volume_that_is_attached_to_a_silent_node_waits_for_the_old_object() {
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").0)
        .attached("data", "a");
    let there = silent(there);
    let table = [
        (Way::DoNothing, None),
        (Way::NodeReturns, Some(101.0)),
        (Way::ForceDeletePod, Some(100.0 + 360.0 + ATTACHED)),
        (Way::DeleteNode, Some(100.0 + 50.0 + 360.0 + ATTACHED)),
        (Way::OutOfService, Some(100.0 + 10.0 + ATTACHED)),
    ];
    check(&there, "web-1-x", &table);
    assert_eq!(there.forecast("web-1-x", Way::OutOfService).nodes, ["b"], "the volume's zone has no other");
    // What is not mounted is not waited for.
    let idle = there.clone().change("Node", "a", |n| n["status"]["volumesInUse"] = json!([]));
    check(&idle, "web-1-x", &[(Way::ForceDeletePod, Some(100.0 + ATTACHED))]);
    // A cluster that never detaches by force.
    let mut never = there.clone();
    never.clock.timers.force_detach = None;
    check(&never, "web-1-x", &[(Way::ForceDeletePod, None), (Way::OutOfService, Some(110.0 + ATTACHED))]);
    // A collector that is known to look at 5 s, 25 s, …
    let mut known = there.clone();
    known.clock.timers = Timers { pod_gc_seen: Some(at(5.0)), ..Timers::default() };
    check(
        &known,
        "web-1-x",
        &[(Way::OutOfService, Some(105.0 + ATTACHED)), (Way::DeleteNode, Some(145.0 + 360.0 + ATTACHED))],
    );
    // A driver that fails to detach.
    let failing = there.change("VolumeAttachment", "csi-data-a", |v| {
        v["status"]["detachError"] = json!({ "message": "rpc error: code = Internal" });
    });
    check(&failing, "web-1-x", &[(Way::OutOfService, None), (Way::ForceDeletePod, None)]);
}

/// Its storage refused for forty seconds, and then the pod started in one.
#[test]
fn a_volume_that_came_late_tells_nothing_of_how_long_a_pod_takes_to_start() {
    let late = Pod::new("web-1-x", "ReplicaSet/web-1", -142.0).on("a", -142.0).ready(-100.0, -99.0);
    let there = web().claim("data", Storage::Zone("x"), "ReadWriteOnce").put(late.claim("data").0);
    let there = silent(there.attached_at("data", "a", -141.0));
    check(&there, "web-1-x", &[(Way::OutOfService, Some(110.0 + 0.6 + 41.0 + 1.0))]);
    let told =
        there.said("attachdetach-controller", "web-1-x", "SuccessfulAttachVolume", "AttachVolume.Attach", -101.0);
    check(&told, "web-1-x", &[(Way::OutOfService, Some(110.0 + ATTACHED))]);
}

#[test]
fn a_successor_on_its_node_waits_as_its_predecessor_does() {
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").deleted(350.0).0)
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 350.0).claim("data").on("b", 350.0).0)
        .attached("data", "a")
        .silent("a", 0.0, 50.0)
        .now(400.0);
    for pod in ["web-1-x", "web-1-y"] {
        check(
            &there,
            pod,
            &[
                (Way::DoNothing, None),
                (Way::NodeReturns, Some(400.0 + 1.0 + 1.0 + 5.0 + ATTACHED)),
                (Way::ForceDeletePod, Some(400.0 + 360.0 + ATTACHED)),
                (Way::OutOfService, Some(410.0 + ATTACHED)),
            ],
        );
        assert_eq!(there.forecast(pod, Way::ForceDeletePod).nodes, ["b"]);
        let typed = &there.forecast(pod, Way::ForceDeletePod).commands;
        assert_eq!(typed, &["kubectl -n default delete pod web-1-x --force --grace-period=0"]);
    }
    // The controllers began anew: so does the timer.
    let mut anew = there.remove("Pod", "web-1-x");
    // Nothing is left that tells how long it takes to start.
    const UNKNOWN: f64 = 0.6 + 3.0;
    check(&anew, "web-1-y", &[(Way::DoNothing, Some(350.5 + 360.0 + UNKNOWN))]);
    anew.clock.timers.controllers_since = Some(at(380.0));
    check(&anew, "web-1-y", &[(Way::DoNothing, Some(380.0 + 360.0 + UNKNOWN))]);
}

#[test]
fn a_timer_whose_beginning_nothing_tells_is_half_over() {
    let said = "Waiting for detach for volume \"pv-data\" Volume is already used by pod(s) web-1-x";
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 350.0).claim("data").on("b", 350.0).0)
        .attached("data", "a")
        .silent("a", 0.0, 50.0)
        .said("attachdetach-controller", "web-1-y", "FailedAttachVolume", said, 351.0);
    let ready = |now: f64, begun: f64| {
        let there = there.clone().now(now);
        check(&there, "web-1-y", &[(Way::DoNothing, Some(begun + 360.0 + 3.6))]);
    };
    ready(451.0, 401.0);
    // A kubelet that is back unmounts what nobody needs, however long ago that was.
    let back = there.clone().now(600.0);
    check(&back, "web-1-y", &[(Way::NodeReturns, Some(600.0 + 1.0 + 5.0 + 3.6))]);
    // It can have begun six minutes ago at the most.
    ready(5000.0, 4820.0);
}

#[test]
fn a_stateful_set_never_has_two_of_one_identity() {
    let there = silent(set(false).put(pod("db-0", "StatefulSet/db").0));
    check(
        &there,
        "db-0",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(101.0)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
            (Way::DeleteNode, Some(150.0 + PLACED)),
        ],
    );
    // Volumes that need no attaching are there at once; shared ones too.
    for (sort, mode) in [(Storage::Everywhere, "ReadWriteOnce"), (Storage::Zone("x"), "ReadWriteMany")] {
        let there = set(false).claim("data", sort, mode).put(pod("db-0", "StatefulSet/db").claim("data").0);
        let there = silent(if mode == "ReadWriteMany" { there.attached("data", "a") } else { there });
        check(&there, "db-0", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
    }
    // A volume on that very node is nowhere else.
    let there = set(false).claim("data", Storage::Node("a"), "ReadWriteOnce");
    let there = silent(there.put(pod("db-0", "StatefulSet/db").claim("data").0));
    check(
        &there,
        "db-0",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(101.0)),
            (Way::ForceDeletePod, None),
            (Way::OutOfService, None),
            (Way::DeleteNode, None),
        ],
    );
}

#[test]
fn in_order_each_waits_for_those_before_it() {
    let both = set(true).put(pod("db-0", "StatefulSet/db").0).put(pod("db-1", "StatefulSet/db").0);
    let there = silent(both);
    check(
        &there,
        "db-1",
        &[
            // db-0 stays where it is.
            (Way::ForceDeletePod, None),
            (Way::OutOfService, Some(110.0 + PLACED + PLACED)),
        ],
    );
    check(&there, "db-0", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
}

/// Until the node controller has looked, the pods of a silent node are Ready for all others.
#[test]
fn a_pod_of_a_node_that_is_not_yet_known_to_be_silent_holds_nobody_up() {
    let both = set(true).put(pod("db-0", "StatefulSet/db").0).put(pod("db-1", "StatefulSet/db").0);
    let there = both.put(lease("a", 0.0)).put(lease("b", 45.0)).now(45.0);
    check(&there, "db-1", &[(Way::ForceDeletePod, Some(45.0 + PLACED))]);
}

/// The same pod, which would rather be on `a`.
fn rather_a(pod: Pod) -> Pod {
    pod.with(|p| {
        p["spec"]["affinity"] = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100, "preference": { "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] } }] } });
    })
}

/// The node controller looks every five seconds at a node that is back: whether its taints are gone when a successor is
/// made is a matter of moments.
#[test]
fn a_node_that_is_back_may_have_its_pod_again() {
    let first = |pods: Situation, wait: i64| {
        let mut there = silent(pods).now(400.0);
        there.clock.timers.stop = SignedDuration::from_secs(wait);
        there.forecast("db-0", Way::NodeReturns).nodes
    };
    let there = set(false).put(rather_a(pod("db-0", "StatefulSet/db")).deleted(350.0).0);
    assert_eq!(first(there.clone(), 1), ["b", "c", "a"]);
    assert_eq!(first(there, 5), ["a", "b", "c"]);
}

/// It took ten seconds to start, nine of them for its volume, which is there already when its node is back.
#[test]
fn a_volume_that_is_there_is_not_attached_anew() {
    let slow =
        Pod::new("db-0", "StatefulSet/db", -100.0).claim("data").on("a", -100.0).ready(-90.0, -89.0).deleted(350.0);
    let there = set(false)
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(rather_a(slow).0)
        .attached_at("data", "a", -100.0)
        .change("VolumeAttachment", "csi-data-a", |a| {
            a["metadata"]["managedFields"] = json!([{ "subresource": "status", "time": at(-91.0).to_string() }]);
        });
    let mut there = silent(there).now(400.0);
    there.clock.timers.stop = SignedDuration::from_secs(5);
    check(
        &there,
        "db-0",
        &[
            (Way::NodeReturns, Some(400.0 + 1.0 + 5.0 + 1.0 + 1.0)),
            (Way::ForceDeletePod, Some(400.0 + 360.0 + 0.6 + 10.0 + 1.0)),
        ],
    );
}

#[test]
fn some_are_not_made_anew() {
    let bare = silent(Situation::new(&NODES).put(pod("p", "").0));
    check(&bare, "p", &[(Way::DoNothing, None), (Way::NodeReturns, Some(101.0)), (Way::ForceDeletePod, None)]);
    let everywhere = pod("d", "DaemonSet/d").with(|p| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }]));
    let there = silent(Situation::new(&NODES).workload("DaemonSet", "d").put(everywhere.0));
    check(
        &there,
        "d",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(101.0)),
            (Way::ForceDeletePod, None),
            (Way::DeleteNode, None),
            (Way::OutOfService, None),
        ],
    );
    let fixed = pod("a-static", "Node/a");
    check(&silent(Situation::new(&NODES).put(fixed.0)), "a-static", &[(Way::ForceDeletePod, None)]);
}

#[test]
fn a_job_counts_it_as_a_failure() {
    let job = |failed: i64| {
        let there = Situation::new(&NODES).workload("Job", "j").put(pod("j-x", "Job/j").0);
        silent(there.change("Job", "j", |j| j["status"] = json!({ "failed": failed })))
    };
    // Not ready since 50 s, so the ten seconds of the first failure are over.
    check(&job(0), "j-x", &[(Way::ForceDeletePod, Some(100.0 + PLACED)), (Way::DoNothing, Some(350.5 + PLACED))]);
    // Eighty seconds of the fourth are not.
    check(&job(3), "j-x", &[(Way::ForceDeletePod, Some(130.0 + PLACED))]);
    check(&job(6), "j-x", &[(Way::ForceDeletePod, None)]);
}

#[test]
fn tolerations_decide_when_it_goes() {
    let with = |tolerations: serde_json::Value| {
        let pod = pod("web-1-x", "ReplicaSet/web-1").with(|p| p["spec"]["tolerations"] = tolerations);
        silent(web().put(pod.0))
    };
    let for_seconds = |s: i64| json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": s }]);
    check(&with(for_seconds(60)), "web-1-x", &[(Way::DoNothing, Some(110.5 + PLACED))]);
    // It has that time for the out-of-service taint as well.
    check(&with(for_seconds(60)), "web-1-x", &[(Way::OutOfService, Some(110.5 + PLACED))]);
    check(&with(json!([])), "web-1-x", &[(Way::DoNothing, Some(100.0 + PLACED))]);
    let forever = with(json!([{ "operator": "Exists" }]));
    check(&forever, "web-1-x", &[(Way::DoNothing, None), (Way::OutOfService, None)]);
    // But the pod collector ends every pod there that is being deleted.
    let leaving = forever.change("Pod", "web-1-x", |p| *p = Pod(p.clone()).deleted(90.0).0);
    check(&leaving, "web-1-x", &[(Way::OutOfService, Some(100.0 + PLACED))]);
}

#[test]
fn a_disturbed_zone_evicts_nobody() {
    let nodes = ["a:x", "b:x", "c:y", "d:y", "e:z"];
    let there = Situation::new(&nodes).deployment("Recreate").workload("ReplicaSet", "web-1");
    let there = there.put(pod("web-1-x", "ReplicaSet/web-1").0);
    // Two of five may be silent, three are too many: the nodes have none of the labels that zones are told by.
    let untainted = |there: Situation, name: &str| {
        there.silent(name, 0.0, 50.0).change("Node", name, |n| n["spec"]["taints"] = json!([]))
    };
    let two = untainted(untainted(there, "a"), "b").now(51.0);
    check(&two, "web-1-x", &[(Way::DoNothing, Some(51.0 + 300.0 + PLACED))]);
    let three = untainted(two, "c").now(51.0);
    check(&three, "web-1-x", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(51.0 + PLACED))]);
}

#[test]
fn a_rate_of_nought_evicts_nobody() {
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    let mut untainted = there.clone().change("Node", "a", |n| n["spec"]["taints"] = json!([]));
    check(&untainted, "web-1-x", &[(Way::DoNothing, Some(400.0 + PLACED))]);
    untainted.clock.timers.eviction_interval = None;
    check(&untainted, "web-1-x", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let last = untainted.forecast("web-1-x", Way::DoNothing).steps.pop().expect("a step").what;
    assert!(last.contains("rate of eviction is 0"), "{last}");
    // One that has its taint is not helped by that.
    let mut tainted = there;
    tainted.clock.timers.eviction_interval = None;
    check(&tainted, "web-1-x", &[(Way::DoNothing, Some(350.5 + PLACED))]);
}

#[test]
fn a_node_that_is_not_yet_known_to_be_silent() {
    let leases = |there: Situation| there.put(lease("a", 0.0)).put(lease("b", 41.0)).put(lease("c", 35.0)).now(41.0);
    let there = leases(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    // Found silent at 52.5 s, evicted 300 s later; the collector waits for the first, too.
    check(
        &there,
        "web-1-x",
        &[(Way::DoNothing, Some(52.5 + 300.0 + PLACED)), (Way::OutOfService, Some(41.0 + PLACED))],
    );
    let set = leases(set(false).put(pod("db-0", "StatefulSet/db").0));
    check(&set, "db-0", &[(Way::OutOfService, Some(52.5 + 10.0 + PLACED))]);
    let young = there.clone().change("Lease", "a", |l| *l = lease("a", 2.0));
    assert!(young.explain("web-1-x").forecast.is_empty(), "its lease is good");
    // Leases that were read long before the rest: what they say was true then.
    assert!(young.now(500.0).explain("web-1-x").forecast.is_empty(), "nothing newer is known of any");
}

#[test]
fn a_node_that_is_gone_is_missed_by_the_collector() {
    let removing = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "a.1", "namespace": "default" },
        "involvedObject": { "kind": "Node", "name": "a" }, "reason": "RemovingNode", "type": "Normal",
        "message": "Node a event: Removing Node a from Controller", "lastTimestamp": at(90.0).to_string(),
    });
    let there = set(false)
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("db-0", "StatefulSet/db").claim("data").0)
        .attached("data", "a")
        .remove("Node", "a")
        .put(removing)
        .now(100.0);
    check(&there, "db-0", &[(Way::DoNothing, Some(140.0 + 360.0 + ATTACHED))]);
    assert_eq!(
        there.explain("db-0").forecast.iter().map(|f| f.way).collect::<Vec<_>>(),
        [Way::DoNothing, Way::ForceDeletePod]
    );
}

#[test]
fn finalizers_keep_the_object_but_not_always_the_volume() {
    let with = |of: &str| pod("p-0", of).claim("data").with(|p| p["metadata"]["finalizers"] = json!(["example.com/x"]));
    let volume = |there: Situation| there.claim("data", Storage::Zone("x"), "ReadWriteOnce");
    // The pod collector says that the pod has failed before it deletes it: the volume is free, the name is not.
    let of_set = silent(volume(set(false)).put(with("StatefulSet/db").0).attached("data", "a"));
    check(&of_set, "p-0", &[(Way::OutOfService, None), (Way::ForceDeletePod, None)]);
    let of_deployment = silent(volume(web()).put(with("ReplicaSet/web-1").0).attached("data", "a"));
    check(&of_deployment, "p-0", &[(Way::OutOfService, Some(110.0 + ATTACHED)), (Way::ForceDeletePod, None)]);
}

#[test]
fn a_claim_for_one_pod_alone_is_waited_for_by_the_scheduler() {
    let there = web()
        .claim("data", Storage::Everywhere, "ReadWriteOncePod")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").0);
    check(
        &silent(there),
        "web-1-x",
        &[
            (Way::DoNothing, None),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
        ],
    );
}

#[test]
fn a_pod_that_ends_on_a_node_that_answers() {
    let there = set(false).put(pod("db-0", "StatefulSet/db").deleted(100.0).0);
    check(&there.clone().now(100.5), "db-0", &[(Way::DoNothing, Some(101.0 + PLACED))]);
    // It did not end when it was asked to: it is ended when its thirty seconds are over.
    check(&there.clone().now(110.0), "db-0", &[(Way::DoNothing, Some(131.0 + PLACED))]);
    check(&there.now(600.0), "db-0", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(600.0 + PLACED))]);
}
