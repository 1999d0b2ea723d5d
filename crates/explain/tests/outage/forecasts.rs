//! What each way leads to, by kind of workload, of storage and of outage.

use jiff::SignedDuration;
use serde_json::{Value, json};
use stead_explain::outage::{Timers, Way, forecast_release};
use stead_model::ObjectKey;

use crate::situation::{Pod, Situation, Storage, at, lease, text};

const NODES: [&str; 3] = ["a:x", "b:x", "c:y"];

/// From a node to Ready, of the pods here: they start in a second and are ready one later. Where nothing tells, a pod takes
/// as long: two seconds to start, and no probe to wait for.
const PLACED: f64 = 2.0;
/// The same with a volume that has to be detached and attached first: the attach-detach controller runs each 100 ms, and
/// looks after each of its two operations when 500 ms have passed.
const ATTACHED: f64 = PLACED + 1.35;
/// A kubelet mounts a volume only after it has reported it as in use, with its next status: each ten seconds, and half of
/// that is expected.
const IN_USE: f64 = 5.0;
/// What a kubelet that is back needs until it is heard of.
const BACK: f64 = 1.0;
/// Its next status after that.
const NEXT_STATUS: f64 = 10.0;
/// It compares the statuses of its pods with the API server each ten seconds, half of that after its first report on average.
const REPORTED: f64 = BACK + 5.0;
/// A kubelet deletes the object of a pod that has ended when its volumes are unmounted.
const UNMOUNTED: f64 = 0.3;
/// The pods of a Job are looked at together, a second after the first of their changes (syncJobBatchPeriod).
const BATCH: f64 = 1.0;

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

/// The reactions of the controllers, some hundredths of a second each, are left out of the expected times.
const REACTIONS: f64 = 0.1;

#[track_caller]
fn check(there: &Situation, pod: &str, table: &[(Way, Option<f64>)]) {
    let explained = there.explain(pod);
    let mut wrong = Vec::new();
    for (way, expected) in table {
        let Some(found) = explained.forecast.iter().find(|found| found.way == *way) else {
            panic!("{way:?} is not foreseen for {pod}: {explained:#?}");
        };
        let seen = found.ready_at.map(|ready| ready.duration_since(at(0.0)).as_secs_f64());
        let same = match (seen, expected) {
            (Some(seen), Some(expected)) => (seen - expected).abs() <= REACTIONS,
            (None, None) => found.unknown.is_none(),
            _ => false,
        };
        if !same {
            wrong.push(format!("{pod} {way:?}: {seen:?}, not {expected:?}: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_deployment_without_volumes_moves_by_itself() {
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, Some(350.5 + PLACED)),
            (Way::NodeReturns, Some(100.0 + REPORTED)),
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
        (Way::NodeReturns, Some(100.0 + REPORTED)),
        (Way::ForceDeletePod, Some(100.0 + 360.0 + ATTACHED)),
        (Way::DeleteNode, Some(100.0 + 50.0 + 360.0 + ATTACHED)),
        (Way::OutOfService, Some(100.0 + 10.0 + ATTACHED)),
    ];
    check(&there, "web-1-x", &table);
    assert_eq!(there.forecast("web-1-x", Way::OutOfService).nodes, ["b"], "the volume's zone has no other");
    // What is not mounted is not waited for.
    let idle = there.clone().change("Node", "a", |n| n["status"]["volumesInUse"] = json!([]));
    check(&idle, "web-1-x", &[(Way::ForceDeletePod, Some(100.0 + IN_USE + PLACED))]);
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
    check(&there, "web-1-x", &[(Way::OutOfService, Some(110.0 + 41.0 + ATTACHED - 1.0))]);
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
                (Way::NodeReturns, Some(400.0 + BACK + NEXT_STATUS + ATTACHED)),
                (Way::ForceDeletePod, Some(400.0 + 360.0 + ATTACHED)),
                (Way::OutOfService, Some(410.0 + ATTACHED)),
            ],
        );
        assert_eq!(there.forecast(pod, Way::ForceDeletePod).nodes, ["b"]);
        let typed: Vec<String> =
            there.forecast(pod, Way::ForceDeletePod).commands.iter().map(ToString::to_string).collect();
        assert_eq!(typed, ["kubectl -n default delete pod web-1-x --force --grace-period=0"]);
    }
    // The controllers began anew: so does the timer.
    let mut anew = there.remove("Pod", "web-1-x");
    check(&anew, "web-1-y", &[(Way::DoNothing, Some(350.5 + 360.0 + ATTACHED))]);
    anew.clock.timers.controllers_since = Some(at(380.0));
    check(&anew, "web-1-y", &[(Way::DoNothing, Some(380.0 + 360.0 + ATTACHED))]);
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
        check(&there, "web-1-y", &[(Way::DoNothing, Some(begun + 360.0 + ATTACHED))]);
    };
    ready(451.0, 401.0);
    // A kubelet that is back unmounts what nobody needs, however long ago that was.
    let unique = json!(["kubernetes.io/csi/cinder.csi.openstack.org^disk-data"]);
    let back = there.clone().change("Node", "b", |n| n["status"]["volumesInUse"] = unique).now(600.0);
    check(&back, "web-1-y", &[(Way::NodeReturns, Some(600.0 + BACK + ATTACHED))]);
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
            (Way::NodeReturns, Some(100.0 + REPORTED)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
            (Way::DeleteNode, Some(150.0 + PLACED)),
        ],
    );
    // Volumes that need no attaching are there at once; shared ones too.
    for (sort, mode, in_use) in
        [(Storage::Everywhere, "ReadWriteOnce", 0.0), (Storage::Zone("x"), "ReadWriteMany", IN_USE)]
    {
        let there = set(false).claim("data", sort, mode).put(pod("db-0", "StatefulSet/db").claim("data").0);
        let there = silent(if mode == "ReadWriteMany" { there.attached("data", "a") } else { there });
        check(&there, "db-0", &[(Way::ForceDeletePod, Some(100.0 + in_use + PLACED))]);
    }
    // A volume on that very node is nowhere else.
    let there = set(false).claim("data", Storage::Node("a"), "ReadWriteOnce");
    let there = silent(there.put(pod("db-0", "StatefulSet/db").claim("data").0));
    check(
        &there,
        "db-0",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(100.0 + REPORTED)),
            (Way::ForceDeletePod, None),
            (Way::OutOfService, None),
            (Way::DeleteNode, None),
        ],
    );
}

/// It was made anew, and its volume is where nobody answers.
#[test]
fn a_pod_that_waits_for_a_volume_of_a_silent_node_waits_for_that() {
    for (sort, in_use) in [(Storage::Node("a"), 0.0), (Storage::Zone("w"), NEXT_STATUS)] {
        let there = Situation::new(&["a:w", "b:x", "c:y"]).workload("StatefulSet", "db");
        let there = silent(there.claim("data", sort, "ReadWriteOnce"));
        let there = there.put(Pod::new("db-0", "StatefulSet/db", 60.0).claim("data").0);
        // The taint that keeps the scheduler away goes as soon as the kubelet is heard of.
        check(
            &there,
            "db-0",
            &[
                (Way::DoNothing, None),
                (Way::NodeReturns, Some(100.0 + BACK + in_use + PLACED)),
                (Way::DeleteNode, None),
            ],
        );
        // One that another node can use is not in its way.
        let there = there
            .change("Node", "b", |n| n["metadata"]["labels"] = json!({ "zone": "w", "kubernetes.io/hostname": "a" }));
        assert!(there.explain("db-0").forecast.is_empty());
    }
}

/// Its kubelet said that it has ended, and fell silent before it let the object go. The volume is free for the attach-detach
/// controller, but mounted.
#[test]
fn a_pod_that_has_ended_may_still_be_in_the_way() {
    let ended = |pod: Pod| {
        pod.with(|pod| {
            pod["status"]["phase"] = "Succeeded".into();
            pod["status"]["containerStatuses"][0]["state"] = json!({ "terminated": { "finishedAt": text(5.0) } });
        })
    };
    // Another one tells how long they take to start.
    let other = || Pod::new("db-1", "StatefulSet/db", -100.0).on("b", -100.0).ready(-99.0, -98.0).0;
    let there = silent(set(false).put(ended(pod("db-0", "StatefulSet/db").deleted(1.0)).0).put(other()));
    check(
        &there,
        "db-0",
        &[
            (Way::DoNothing, None),
            // The kubelet unmounts its volumes, and lets the object go.
            (Way::NodeReturns, Some(101.3 + PLACED)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
            (Way::DeleteNode, Some(150.0 + PLACED)),
        ],
    );
    let there = set(false).claim("data", Storage::Zone("x"), "ReadWriteOnce").attached("data", "a");
    let there = silent(there.put(ended(pod("db-0", "StatefulSet/db").claim("data").deleted(1.0)).0).put(other()));
    check(&there, "db-0", &[(Way::ForceDeletePod, Some(365.5 + ATTACHED)), (Way::NodeReturns, Some(101.3 + PLACED))]);
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
    // Ready is not enough where it has to last.
    let lasting = there.change("StatefulSet", "db", |s| s["spec"]["minReadySeconds"] = 7.into());
    check(&lasting, "db-1", &[(Way::OutOfService, Some(110.0 + PLACED + 7.0 + PLACED))]);
}

#[test]
fn many_in_order_are_foreseen_one_after_the_other() {
    let there = set(true).change("StatefulSet", "db", |s| s["spec"]["replicas"] = 40.into());
    let all = |there: Situation, n: i32| there.put(pod(&format!("db-{n}"), "StatefulSet/db").0);
    let there = silent((0..40).fold(there, all));
    check(&there, "db-39", &[(Way::OutOfService, Some(110.0 + 40.0 * (PLACED + 0.009))), (Way::ForceDeletePod, None)]);
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

/// A node that is back loses the taint that keeps the scheduler away as soon as its kubelet is heard of
/// (doNoScheduleTaintingPass).
#[test]
fn a_node_that_is_back_may_have_its_pod_again() {
    let there = silent(set(false).put(rather_a(pod("db-0", "StatefulSet/db")).deleted(350.0).0)).now(400.0);
    assert_eq!(there.forecast("db-0", Way::NodeReturns).nodes, ["a", "b", "c"]);
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
            (Way::NodeReturns, Some(400.0 + BACK + 5.0 + UNMOUNTED + 1.0 + 1.0)),
            (Way::ForceDeletePod, Some(400.0 + 360.0 + 9.0 + ATTACHED + 0.25)),
        ],
    );
}

#[test]
fn some_are_not_made_anew() {
    let bare = silent(Situation::new(&NODES).put(pod("p", "").0));
    check(
        &bare,
        "p",
        &[(Way::DoNothing, None), (Way::NodeReturns, Some(100.0 + REPORTED)), (Way::ForceDeletePod, None)],
    );
    let everywhere = pod("d", "DaemonSet/d").with(|p| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }]));
    let there = silent(Situation::new(&NODES).workload("DaemonSet", "d").put(everywhere.0));
    check(
        &there,
        "d",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(100.0 + REPORTED)),
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
    check(
        &job(0),
        "j-x",
        &[(Way::ForceDeletePod, Some(100.0 + BATCH + PLACED)), (Way::DoNothing, Some(350.5 + BATCH + PLACED))],
    );
    // Eighty seconds of the fourth are not.
    check(&job(3), "j-x", &[(Way::ForceDeletePod, Some(130.0 + PLACED))]);
    check(&job(6), "j-x", &[(Way::ForceDeletePod, None)]);
}

/// A Job with a status, and its pod on `a`, which was heard of last at 0 s and is found silent at 52.5 s; it is 45 s.
fn early_job(status: Value, spec: &[(&str, Value)], pod: Pod) -> Situation {
    let there = Situation::new(&NODES).workload("Job", "j").put(pod.0).put(lease("a", 0.0)).put(lease("b", 45.0));
    let change = |j: &mut Value| {
        j["status"] = status;
        spec.iter().for_each(|(field, value)| j["spec"][*field] = value.clone());
    };
    there.change("Job", "j", change).now(45.0)
}

/// When the node controller finds a node silent, its pods lose their readiness: they are finished since then.
#[test]
fn a_jobs_pod_is_finished_when_its_node_is_found_silent() {
    let there = early_job(json!({ "failed": 3 }), &[], pod("j-x", "Job/j"));
    check(&there, "j-x", &[(Way::DoNothing, Some(352.5 + BATCH + PLACED))]);
    // By the collector, at 95 s, of a node that nobody has found silent: eighty seconds of the fourth failure.
    check(&there, "j-x", &[(Way::DeleteNode, Some(95.0 + 80.0 + PLACED))]);
    // One that is put on the dead node fails there once more.
    let there = early_job(json!({}), &[], rather_a(pod("j-x", "Job/j")));
    check(&there, "j-x", &[(Way::ForceDeletePod, Some(55.0 + PLACED))]);
    // Kubernetes writes down whole seconds.
    let mut there = early_job(json!({}), &[], rather_a(pod("j-x", "Job/j")));
    there.clock.timers.node_monitor_grace = SignedDuration::from_secs(60);
    check(&there, "j-x", &[(Way::ForceDeletePod, Some(362.0 + 20.0 + PLACED))]);
}

/// A pod that is being deleted has failed for its Job, which counts it once.
#[test]
fn a_jobs_pod_that_is_being_deleted_is_counted_once() {
    let tracked = |p: &mut Value| p["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    let limit = [("backoffLimit", json!(1))];
    let leaving = || pod("j-x", "Job/j").deleted(40.0);
    let counted = early_job(json!({ "failed": 1 }), &limit, leaving());
    let waiting = json!({ "uncountedTerminatedPods": { "failed": ["uid-j-x"] } });
    for there in [counted, early_job(waiting, &limit, leaving().with(tracked))] {
        // Not ready since 42 s: another is made ten seconds later.
        let there = there.silent("a", 0.0, 42.0);
        check(&there, "j-x", &[(Way::DoNothing, Some(52.0 + PLACED))]);
    }
    // Where it is still ready, it has finished when it was deleted, and not when it is asked about.
    let there = early_job(json!({ "failed": 1 }), &limit, leaving()).change("Node", "a", |n| {
        n["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
    });
    check(&there, "j-x", &[(Way::DoNothing, Some(50.0 + PLACED))]);
    // One that was not counted yet is one too many.
    let there = early_job(json!({ "failed": 1 }), &limit, leaving().with(tracked));
    never(&there, "j-x", Way::DoNothing, "its Job has failed too often");
}

/// A Job that replaces only what has failed keeps its finalizer on all else, even by force.
#[test]
fn a_job_that_waits_for_the_end_is_not_helped_by_force() {
    let tracked = |p: &mut Value| p["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    for spec in [("podReplacementPolicy", json!("Failed")), ("podFailurePolicy", json!({ "rules": [] }))] {
        let there = early_job(json!({}), &[spec], pod("j-x", "Job/j").with(tracked)).silent("a", 0.0, 50.0).now(100.0);
        never(&there, "j-x", Way::ForceDeletePod, "its Job replaces only failed pods");
        // The collector says that it has failed.
        check(&there, "j-x", &[(Way::DoNothing, None), (Way::OutOfService, Some(110.0 + BATCH + PLACED))]);
    }
}

#[test]
fn tolerations_decide_when_it_goes() {
    let with = |tolerations: Value| {
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
    // Both were found in the same look: which of them has its taint ten seconds after the other is chance. Why neither has it
    // yet nothing tells; the node controller looks again at 53.5 s.
    check(&two, "web-1-x", &[(Way::DoNothing, Some(53.5 + 300.0 + PLACED))]);
    let three = untainted(two, "c").now(51.0);
    check(&three, "web-1-x", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(51.0 + PLACED))]);
}

#[test]
fn the_silent_nodes_of_a_zone_get_their_taints_one_after_the_other() {
    let nodes = ["a:x", "b:x", "c:y", "d:y", "e:z", "f:z", "g:z"];
    let there = Situation::new(&nodes).deployment("Recreate").workload("ReplicaSet", "web-1");
    let there = there.put(pod("web-1-x", "ReplicaSet/web-1").0).put(lease("a", 4.0)).put(lease("g", 50.0)).now(50.0);
    let evicted = |there: &Situation, tainted: f64| {
        check(there, "web-1-x", &[(Way::DoNothing, Some(tainted + 300.0 + PLACED))]);
    };
    // Found at 56.5 s, and nobody is before it.
    evicted(&there, 56.5);
    evicted(&there.clone().put(lease("b", 9.0)), 56.5);
    // Another one is found at 53 s, and has its taint then.
    let second = there.put(lease("b", 0.5));
    evicted(&second, 63.0);
    // Each look adds all that wait anew (markNodeForTainting), so that their order is chance: here at 63 s or at 73 s.
    evicted(&second.clone().put(lease("c", 0.5)), 63.0);
    evicted(&second.put(lease("c", 5.0)), 63.0);
}

#[test]
fn a_rate_of_nought_evicts_nobody() {
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    let mut untainted = there.clone().change("Node", "a", |n| n["spec"]["taints"] = json!([]));
    // The node controller looks again at 102.5 s.
    check(&untainted, "web-1-x", &[(Way::DoNothing, Some(402.5 + PLACED))]);
    untainted.clock.timers.eviction_interval = None;
    check(&untainted, "web-1-x", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let last = untainted.forecast("web-1-x", Way::DoNothing).steps.pop().expect("a step").what;
    assert!(last.contains("eviction rate of the cluster is 0"), "{last}");
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
    // The collector looks at 51 s, when the node is not known to be silent, and at 71 s.
    let set = leases(set(false).put(pod("db-0", "StatefulSet/db").0));
    check(&set, "db-0", &[(Way::OutOfService, Some(71.0 + PLACED))]);
    let young = there.clone().change("Lease", "a", |l| *l = lease("a", 2.0));
    assert!(young.explain("web-1-x").forecast.is_empty(), "its lease is good");
    // Leases that were read long before the rest: what they say was true then.
    assert!(young.now(500.0).explain("web-1-x").forecast.is_empty(), "nothing newer is known of any");
}

/// The collector ends the pods of a node that is not there; the timers of its taint go on without it.
#[test]
fn a_node_that_is_deleted_gets_no_taint_any_more() {
    let short = |p: &mut Value| p["spec"]["tolerations"][1]["tolerationSeconds"] = 20.into();
    let web = || web().put(pod("web-1-x", "ReplicaSet/web-1").with(short).0);
    let early = web().put(lease("a", 0.0)).put(lease("b", 45.0)).now(45.0);
    check(&early, "web-1-x", &[(Way::DoNothing, Some(72.5 + PLACED)), (Way::DeleteNode, Some(95.0 + PLACED))]);
    let found = web().silent("a", 0.0, 50.0).now(55.0);
    check(&found, "web-1-x", &[(Way::DeleteNode, Some(70.5 + PLACED))]);
    // It is gone already. When it was found silent, its pods lost their readiness.
    let gone = found.remove("Node", "a");
    check(&gone, "web-1-x", &[(Way::DoNothing, Some(70.5 + PLACED))]);
    // The collector may be faster; and whose time is over was not evicted, for whatever reason.
    let long = gone.clone().change("Pod", "web-1-x", |p| p["spec"]["tolerations"][1]["tolerationSeconds"] = 90.into());
    check(&long, "web-1-x", &[(Way::DoNothing, Some(105.0 + PLACED))]);
    check(&gone.clone().now(80.0), "web-1-x", &[(Way::DoNothing, Some(130.0 + PLACED))]);
    // Controllers that began anew know of no taint.
    let mut anew = gone.clone();
    anew.clock.timers.controllers_since = Some(at(54.0));
    check(&anew, "web-1-x", &[(Way::DoNothing, Some(114.0 + PLACED))]);
    // One that was never ready tells nothing of the node.
    let never = gone.change("Pod", "web-1-x", |p| p["status"]["conditions"][1]["status"] = "False".into());
    check(&never, "web-1-x", &[(Way::DoNothing, Some(105.0 + PLACED))]);
}

/// An attacher that saves no name of the node with its attachments needs no CSINode to detach a volume.
#[test]
fn a_volume_is_detached_from_a_node_without_csi_node() {
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").0)
        .attached("data", "a");
    let there = silent(there).remove("Node", "a");
    let csi_node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "b" },
        "spec": { "drivers": [{ "name": "disk", "nodeID": "b", "topologyKeys": [] }] } });
    let with_csi_node = there.clone().put(csi_node);
    let at = there.ready("web-1-x", Way::ForceDeletePod);
    assert!(at.is_some_and(|at| at > 460.0), "{at:?}");
    check(&with_csi_node, "web-1-x", &[(Way::ForceDeletePod, at)]);
}

/// Nothing has to happen any more for a replacement that was Ready before the forecast.
#[test]
fn a_replacement_that_is_ready_has_been_so_before() {
    let replacement = Pod::new("web-1-y", "ReplicaSet/web-1", 351.0).on("b", 351.0).ready(352.0, 353.0).0;
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").deleted(350.0).0).put(replacement)).now(400.0);
    let at = Some(353.0);
    check(&there, "web-1-x", &[(Way::DoNothing, at), (Way::OutOfService, at), (Way::DeleteNode, at)]);
}

/// Until the node controller has found it silent a node has no taint, and the scheduler takes it for well.
#[test]
fn a_successor_that_is_made_too_early_may_go_to_the_dead_node() {
    let early = |there: Situation| there.put(lease("a", 0.0)).put(lease("b", 45.0)).now(45.0);
    let there = early(set(false).put(pod("db-0", "StatefulSet/db").0));
    doubtful(&there, "db-0", Way::ForceDeletePod, 45.0 + PLACED);
    let there = early(set(false).put(rather_a(pod("db-0", "StatefulSet/db")).0));
    // It is evicted there, and stays; if the command is run some seconds later, it goes elsewhere.
    unknown(&there, "db-0", Way::ForceDeletePod, "it may be scheduled to a, which is not marked unreachable yet");
    let steps = there.forecast("db-0", Way::ForceDeletePod).steps;
    assert!(steps.iter().any(|step| step.what == "it is scheduled to a, which is unreachable"), "{steps:#?}");
    check(&there, "db-0", &[(Way::OutOfService, Some(55.0 + PLACED)), (Way::DeleteNode, Some(95.0 + PLACED))]);
    // A ReplicaSet's is evicted there like its predecessor, found silent at 52.5 s, and another is made.
    let there = early(web().put(rather_a(pod("web-1-x", "ReplicaSet/web-1")).0));
    check(&there, "web-1-x", &[(Way::ForceDeletePod, Some(352.5 + PLACED))]);
    assert_eq!(there.forecast("web-1-x", Way::ForceDeletePod).nodes, ["b", "c"]);
    let for_ever = there.change("Pod", "web-1-x", |p| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }]));
    unknown(&for_ever, "web-1-x", Way::ForceDeletePod, "it may be scheduled to a");
    // It wants its volume there until it is evicted. As it never ran there, the six minutes begin then.
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(rather_a(pod("web-1-x", "ReplicaSet/web-1").claim("data")).0)
        .attached("data", "a");
    check(&early(there), "web-1-x", &[(Way::ForceDeletePod, Some(352.5 + 360.0 + ATTACHED))]);
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
    // The collector looks each 20 s, at 110 s: it has missed the node since 90 s.
    check(&there, "db-0", &[(Way::DoNothing, Some(130.0 + 360.0 + ATTACHED))]);
    // One of its name had gone before, and was there again.
    let again = there.clone().put(Pod::new("p", "", 95.0).on("a", 95.0).0);
    check(&again, "db-0", &[(Way::DoNothing, Some(150.0 + 360.0 + ATTACHED))]);
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
    check(&there.clone().now(100.5), "db-0", &[(Way::DoNothing, Some(101.0 + UNMOUNTED + PLACED))]);
    // It did not end when it was asked to: it is ended when its thirty seconds are over.
    check(&there.clone().now(110.0), "db-0", &[(Way::DoNothing, Some(130.0 + UNMOUNTED + PLACED))]);
    // Why it has not ended long after that, nothing tells.
    let there = there.now(600.0);
    unknown(&there, "db-0", Way::DoNothing, "the kubelet of a has not ended pod db-0");
    check(&there, "db-0", &[(Way::ForceDeletePod, Some(600.0 + PLACED))]);
}

/// A Deployment that is being updated: its old ReplicaSet wants no pods any more, and the old pod hangs on `a`.
fn updating(strategy: &str) -> Situation {
    let there = Situation::new(&NODES).deployment(strategy).workload("ReplicaSet", "web-1").change(
        "ReplicaSet",
        "web-1",
        |s| s["spec"]["replicas"] = 0.into(),
    );
    silent(there.put(pod("web-1-x", "ReplicaSet/web-1").deleted(60.0).0))
}

/// Recreate waits for the end of all old pods, and then makes the new one.
#[test]
fn a_deployment_in_the_middle_of_an_update_makes_the_next_pod() {
    let there = updating("Recreate");
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, None),
            (Way::NodeReturns, Some(100.0 + BACK + 1.0 + PLACED)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
            (Way::DeleteNode, Some(150.0 + PLACED)),
        ],
    );
    // The pod collector says that a pod has failed, whatever finalizers it has; a person does not.
    let held = |p: &mut Value| p["metadata"]["finalizers"] = json!(["example.com/x"]);
    let held = there.clone().change("Pod", "web-1-x", held);
    check(&held, "web-1-x", &[(Way::OutOfService, Some(110.0 + PLACED)), (Way::ForceDeletePod, None)]);
    // Another old one, on another node that is silent.
    let two = there.clone().put(Pod::new("web-1-y", "ReplicaSet/web-1", -100.0).on("b", -100.0).deleted(60.0).0);
    check(&two.silent("b", 0.0, 50.0), "web-1-x", &[(Way::OutOfService, None)]);
    // The new pod is of the new template.
    let bound = there.clone().change("Deployment", "web", |d| {
        let spec = json!({ "containers": [{ "name": "c" }], "nodeSelector": { "zone": "y" } });
        d["spec"]["template"] = json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec });
    });
    assert_eq!(bound.forecast("web-1-x", Way::OutOfService).nodes, ["c"]);
    let enough = there.change("Deployment", "web", |d| d["spec"]["replicas"] = 0.into());
    check(&enough, "web-1-x", &[(Way::OutOfService, None), (Way::NodeReturns, None)]);
}

/// A rolling update counts what its ReplicaSets want, and does not wait for old pods.
#[test]
fn a_rolling_update_does_not_wait_for_old_pods() {
    let there = updating("RollingUpdate");
    check(&there, "web-1-x", &[(Way::DoNothing, Some(100.0 + PLACED))]);
    let new = Pod::new("web-2-x", "ReplicaSet/web-2", 10.0).on("b", 10.0).ready(11.0, 12.0);
    check(&there.workload("ReplicaSet", "web-2").put(new.0), "web-1-x", &[(Way::OutOfService, None)]);
}

/// A pod that takes nearly all of a node.
fn large(pod: Pod) -> Pod {
    pod.with(|p| p["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "10" } }))
}

#[test]
fn room_that_a_living_kubelet_is_making() {
    let hog = |name: &str, node: &str| large(Pod::new(name, "", 0.0).on(node, 0.0).ready(1.0, 2.0));
    let there = set(false).put(large(pod("db-0", "StatefulSet/db")).0).put(hog("p", "c").0);
    let full = silent(there.clone().put(hog("q", "b").0));
    check(&full, "db-0", &[(Way::ForceDeletePod, None)]);
    let leaving = silent(there.put(hog("q", "b").deleted(90.0).0));
    // Its thirty seconds are over at 120 s. It takes no room any more once it has ended, even while its object is there.
    check(&leaving, "db-0", &[(Way::ForceDeletePod, Some(120.0 + PLACED))]);
    assert_eq!(leaving.forecast("db-0", Way::ForceDeletePod).nodes, ["b"]);
}

/// It is Ready at a moment on one of the nodes that live, if the scheduler's own chance does not put it on `a`.
#[track_caller]
fn doubtful(there: &Situation, pod: &str, way: Way, ready: f64) {
    check(there, pod, &[(way, Some(ready))]);
    let foreseen = there.forecast(pod, way);
    assert!(!foreseen.nodes.contains(&"a".to_owned()), "{foreseen:#?}");
    assert!(foreseen.risk.contains("possibly a, which is unreachable"), "{foreseen:#?}");
}

#[track_caller]
fn unknown(there: &Situation, pod: &str, way: Way, why: &str) {
    let foreseen = there.forecast(pod, way);
    assert_eq!(foreseen.ready_at, None);
    assert!(foreseen.unknown.as_ref().is_some_and(|w| w.contains(why)), "{foreseen:#?}");
    assert!(foreseen.steps.iter().all(|s| s.at.is_some()), "nothing is said never to come: {foreseen:#?}");
}

#[test]
fn what_cannot_be_judged_is_not_never() {
    let devices = |p: &mut Value| p["spec"]["resourceClaims"] = json!([{ "name": "gpu" }]);
    let there = silent(set(true).put(pod("db-0", "StatefulSet/db").with(devices).0));
    unknown(&there, "db-0", Way::ForceDeletePod, "not modelled");
    check(&there, "db-0", &[(Way::NodeReturns, Some(100.0 + REPORTED))]);
    assert_eq!(
        there.forecast("db-0", Way::DoNothing).unknown,
        None,
        "a silent kubelet confirms nothing, that is known"
    );
    // Nor is it known of those that wait for it.
    let next = silent(there.put(pod("db-1", "StatefulSet/db").0));
    unknown(&next, "db-1", Way::OutOfService, "only when pod db-0 is Ready, which is unknown");
    // Claims and volumes that were not read.
    let there = silent(set(false).put(pod("db-0", "StatefulSet/db").claim("data").0));
    unknown(&there, "db-0", Way::ForceDeletePod, "persistentvolumeclaims were not read");
    let claimed = there.clone().claim("data", Storage::Everywhere, "ReadWriteOnce");
    check(&claimed, "db-0", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
    unknown(&claimed.remove("PersistentVolume", "pv-data"), "db-0", Way::ForceDeletePod, "persistentvolumes were not");
    // Claims that were read, and this is not among them.
    check(&there.claim("other", Storage::Everywhere, "ReadWriteOnce"), "db-0", &[(Way::ForceDeletePod, None)]);
}

/// The old pod on `a`, and one that was made in its place a while ago.
fn succeeded(change: impl FnOnce(&mut Value)) -> Situation {
    web()
        .put(pod("web-1-x", "ReplicaSet/web-1").deleted(350.0).0)
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 350.0).on("b", 350.0).with(change).0)
        .silent("a", 0.0, 50.0)
        .now(400.0)
}

#[track_caller]
fn never(there: &Situation, pod: &str, way: Way, why: &str) {
    let foreseen = there.forecast(pod, way);
    let last = foreseen.steps.last().filter(|s| s.at.is_none()).map(|s| s.what.as_str());
    assert!(last.is_some_and(|last| last.contains(why)), "{foreseen:#?}");
}

#[test]
fn a_successor_that_cannot_start_is_not_ready_in_a_moment() {
    let image = |p: &mut Value| {
        p["status"]["containerStatuses"][0]["state"] = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    };
    never(&succeeded(image), "web-1-x", Way::OutOfService, "ImagePullBackOff");
    let well = succeeded(|_| ());
    // What should run by now starts in a moment: as long as a start takes.
    check(&well, "web-1-x", &[(Way::OutOfService, Some(400.0 + PLACED))]);
    // What failed a moment ago may come right.
    check(&succeeded(image).now(360.0), "web-1-x", &[(Way::OutOfService, Some(360.0 + PLACED))]);
    let mount = |there: Situation, seconds: f64| {
        there.said("kubelet", "web-1-y", "FailedMount", "secret \"db-pass\" not found", seconds)
    };
    never(&mount(well.clone(), 390.0), "web-1-x", Way::DoNothing, "db-pass");
    // That was overcome: something else was said since.
    let pulls = mount(well, 390.0).said("kubelet", "web-1-y", "Pulling", "Pulling image", 395.0);
    check(&pulls, "web-1-x", &[(Way::OutOfService, Some(400.0 + PLACED))]);
}

#[test]
fn a_driver_that_refuses_is_asked_again_when_another_node_lets_go() {
    let refused = |there: Situation| {
        there
            .change("Pod", "web-1-x", |p| *p = Pod(p.clone()).claim("data").0)
            .change("Pod", "web-1-y", |p| *p = Pod(p.clone()).claim("data").0)
            .claim("data", Storage::Zone("x"), "ReadWriteOnce")
            .attached("data", "b")
            .change("VolumeAttachment", "csi-data-b", |v| {
                v["status"] = json!({ "attached": false, "attachError": { "message": "attached to another" } });
            })
    };
    let there = refused(succeeded(|_| ()));
    never(&there, "web-1-x", Way::OutOfService, "attached to another");
    // The delay between two tries has doubled with each failure.
    check(&there.attached("data", "a"), "web-1-x", &[(Way::OutOfService, Some(418.6))]);
    // Where attachments were not read, nobody knows who has the volume.
    let said = "Multi-Attach error for volume \"pv-data\" Volume is already used by pod(s) web-1-x";
    let there = refused(succeeded(|_| ())).remove("VolumeAttachment", "csi-data-b");
    let there = there.said("attachdetach-controller", "web-1-y", "FailedAttachVolume", said, 351.0);
    unknown(&there, "web-1-x", Way::OutOfService, "volumeattachments were not read");
}

/// A dump without attachments: whether there were none is told by what the Nodes say of themselves.
#[test]
fn attachments_that_were_not_read_are_missed_where_a_node_has_the_volume() {
    let there = set(false)
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("db-0", "StatefulSet/db").claim("data").0)
        .attached("data", "a");
    let there = silent(there).remove("VolumeAttachment", "csi-data-a");
    unknown(&there, "db-0", Way::ForceDeletePod, "volumeattachments were not read");
    unknown(&there.clone().remove("Node", "a"), "db-0", Way::DoNothing, "volumeattachments were not read");
    let with = |status: Value| there.clone().change("Node", "a", |n| n["status"]["volumesInUse"] = status);
    let nowhere = with(json!([]));
    check(&nowhere, "db-0", &[(Way::ForceDeletePod, Some(100.0 + IN_USE + PLACED))]);
    let name = "kubernetes.io/csi/cinder.csi.openstack.org^disk-data";
    let attached = nowhere.change("Node", "a", |n| n["status"]["volumesAttached"] = json!([{ "name": name }]));
    unknown(&attached, "db-0", Way::ForceDeletePod, "volumeattachments were not read");
}

#[test]
fn nobody_gets_past_one_that_crashes() {
    let crashes = |p: &mut Value| {
        p["status"]["containerStatuses"][0]["state"] = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    };
    let there = set(true).put(Pod::new("db-0", "StatefulSet/db", -100.0).on("b", -100.0).with(crashes).0);
    never(&silent(there.put(pod("db-1", "StatefulSet/db").0)), "db-1", Way::OutOfService, "pod db-0 is Ready");
    // Nor does it run because its node is back.
    let there = silent(set(true).put(pod("db-0", "StatefulSet/db").with(crashes).0));
    never(&there, "db-0", Way::NodeReturns, "CrashLoopBackOff");
}

#[test]
fn a_silent_node_is_no_place() {
    let bears = |p: &mut Value| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let there = silent(set(false).put(pod("db-0", "StatefulSet/db").with(bears).0));
    doubtful(&there, "db-0", Way::ForceDeletePod, 100.0 + PLACED);
    let there = silent(set(false).put(rather_a(pod("db-0", "StatefulSet/db").with(bears)).0));
    never(&there, "db-0", Way::ForceDeletePod, "it is scheduled to a, which is unreachable");
    // One that would rather be elsewhere goes there.
    let there = there.change("Pod", "db-0", |p| {
        let rather = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/preference";
        *p.pointer_mut(rather).expect("a preference") = json!({ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a"] }] });
    });
    assert_eq!(there.forecast("db-0", Way::ForceDeletePod).nodes, ["b", "c"]);
}

#[test]
fn whoever_is_gone_or_wants_no_more_makes_no_pod() {
    let there = silent(set(false).put(pod("db-1", "StatefulSet/db").deleted(60.0).0));
    check(&there, "db-1", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let with = |change: fn(&mut Value)| there.clone().change("StatefulSet", "db", change);
    never(&with(|s| s["spec"]["replicas"] = 1.into()), "db-1", Way::ForceDeletePod, "is scaled down");
    never(&with(|s| s["spec"]["ordinals"] = json!({ "start": 2 })), "db-1", Way::ForceDeletePod, "is scaled down");
    let moved = with(|s| s["spec"] = json!({ "replicas": 1, "ordinals": { "start": 1 }, "selector": {} }));
    check(&moved, "db-1", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let leaving = |o: &mut Value| o["metadata"]["deletionTimestamp"] = at(90.0).to_string().into();
    never(&with(leaving), "db-1", Way::ForceDeletePod, "StatefulSet db is being deleted");
    // Where no StatefulSet is there, they were not read.
    let unread = there.remove("StatefulSet", "db");
    check(&unread, "db-1", &[(Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let missed = unread.workload("StatefulSet", "other");
    never(&missed, "db-1", Way::ForceDeletePod, "StatefulSet db no longer exists");
    let foreign = missed.change("Pod", "db-1", |p| {
        p["metadata"]["ownerReferences"][0]["apiVersion"] = "apps.kruise.io/v1beta1".into();
    });
    // A controller of the same kind in another API group may do anything.
    unknown(&foreign, "db-1", Way::ForceDeletePod, "its StatefulSet db is not simulated");
    // The same of others, and of who made them.
    for (kind, name) in [("ReplicaSet", "web-1"), ("Deployment", "web")] {
        let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0)).change(kind, name, leaving);
        never(&there, "web-1-x", Way::ForceDeletePod, &format!("its {kind} {name} is being deleted"));
    }
    let there = silent(Situation::new(&NODES).workload("Job", "j").put(pod("j-x", "Job/j").0));
    never(&there.change("Job", "j", leaving), "j-x", Way::ForceDeletePod, "its Job j is being deleted");
}

/// Volumes that were made before their driver was one of CSI keep their form; only controllers and kubelets name them anew.
#[test]
fn volumes_of_old_kinds_are_attached_by_the_driver_that_took_over() {
    let zone = "topology.kubernetes.io/zone";
    let table = [
        (json!({ "cinder": { "volumeID": "v" } }), "", "cinder.csi.openstack.org^v"),
        (json!({ "awsElasticBlockStore": { "volumeID": "aws://eu-1a/vol-1" } }), "", "ebs.csi.aws.com^vol-1"),
        (json!({ "azureDisk": { "diskURI": "/subscriptions/d" } }), "", "disk.csi.azure.com^/subscriptions/d"),
        (json!({ "vsphereVolume": { "volumePath": "[ds] d" } }), "", "csi.vsphere.vmware.com^[ds] d"),
        (
            json!({ "gcePersistentDisk": { "pdName": "d" } }),
            "",
            "pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        (
            json!({ "gcePersistentDisk": { "pdName": "d" } }),
            "eu-1-a",
            "pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/eu-1-a/disks/d",
        ),
        (
            json!({ "gcePersistentDisk": { "pdName": "d" } }),
            "eu-1-a__eu-1-b",
            "pd.csi.storage.gke.io^projects/UNSPECIFIED/regions/eu-1/disks/d",
        ),
    ];
    for (source, zones, unique) in table {
        let there = set(false)
            .claim("data", Storage::Zone("x"), "ReadWriteOnce")
            .put(pod("db-0", "StatefulSet/db").claim("data").0)
            .attached("data", "a")
            .change("PersistentVolume", "pv-data", |v| {
                v["spec"].as_object_mut().expect("a spec").remove("csi");
                v["spec"].as_object_mut().expect("a spec").extend(source.as_object().expect("a source").clone());
                v["metadata"]["labels"] = if zones.is_empty() { json!({}) } else { json!({ zone: zones }) };
            });
        let mounted = json!([format!("kubernetes.io/csi/{unique}")]);
        let there = silent(there.change("Node", "a", |n| n["status"]["volumesInUse"] = mounted));
        check(&there, "db-0", &[(Way::ForceDeletePod, Some(100.0 + 360.0 + ATTACHED))]);
        let idle = there.change("Node", "a", |n| n["status"]["volumesInUse"] = json!([]));
        check(&idle, "db-0", &[(Way::ForceDeletePod, Some(100.0 + IN_USE + PLACED))]);
    }
}

/// The taint goes with the Node object, and the volume stays as mounted as it was.
#[test]
fn a_node_that_is_deleted_is_not_out_of_service_any_more() {
    let taint = json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
    let there = set(false)
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("db-0", "StatefulSet/db").claim("data").0)
        .attached("data", "a");
    let tainted = |n: &mut Value| n["spec"]["taints"].as_array_mut().expect("taints").push(taint);
    let there = silent(there).change("Node", "a", tainted);
    check(
        &there,
        "db-0",
        &[(Way::DoNothing, Some(110.0 + IN_USE + PLACED)), (Way::DeleteNode, Some(150.0 + 360.0 + ATTACHED))],
    );
}

/// Controllers that were not read are told by their pods.
#[test]
fn controllers_that_were_not_read() {
    let set = silent(set(false).put(pod("db-0", "StatefulSet/db").0)).remove("StatefulSet", "db");
    check(&set, "db-0", &[(Way::DoNothing, None), (Way::ForceDeletePod, Some(100.0 + PLACED))]);
    let web = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    let web = web.remove("ReplicaSet", "web-1").remove("Deployment", "web");
    check(&web, "web-1-x", &[(Way::DoNothing, Some(350.5 + PLACED))]);
}

/// A plan says where a replacement goes; the forecast says when it is Ready there.
#[test]
fn a_release_is_forecast_for_the_chosen_node() {
    let there = silent(set(false).put(pod("db-0", "StatefulSet/db").0));
    let (objects, clock, key) = (there.objects(), there.clock(), ObjectKey::pod("default", "db-0"));
    let ready = |node: &str| {
        let forecast = forecast_release(&objects, "a", &clock, &[(key.clone(), node.into())]);
        forecast.expect("all objects are well formed").get(&key).copied()
    };
    let expected = there.forecast("db-0", Way::OutOfService).ready_at;
    assert!(expected.is_some());
    assert_eq!((ready("b"), ready("c")), (expected, expected));
    assert_eq!(ready("a"), None, "it is out of service");
}
