//! What people read.

use expect_test::{ExpectFile, expect_file};
use serde_json::json;
use stead_explain::outage::Way;
use stead_explain::{PodState, render};
use stead_model::OUT_OF_SERVICE;

use crate::situation::{Pod, Situation, Storage, at};

const NODES: [&str; 4] = ["worker-0:zoneA", "worker-1:zoneB", "worker-2:zoneC", "worker-3:zoneA"];

fn check(there: &Situation, pod: &str, golden: ExpectFile) {
    golden.assert_eq(&render(&there.explain(pod)));
}

/// The first report's edge pods: suspended for days, and a cancelled deletion that was none.
#[test]
fn terminating_for_days() {
    let day = 86_400.0;
    let there = Situation::new(&NODES)
        .workload("StatefulSet", "glance-azone-edge-api")
        .put(
            Pod::new("glance-azone-edge-api-0", "StatefulSet/glance-azone-edge-api", 0.0)
                .on("worker-1", 0.0)
                .ready(2.0, 12.0)
                .0,
        )
        .put(
            Pod::new("glance-azone-edge-api-1", "StatefulSet/glance-azone-edge-api", 0.0)
                .on("worker-0", 0.0)
                .ready(2.0, 12.0)
                .deleted(day + 350.0)
                .with(|p| {
                    let said = "Taint manager: deleting due to NoExecute taint";
                    let condition = json!({ "type": "DisruptionTarget", "status": "True",
                        "reason": "DeletionByTaintManager", "message": said });
                    p["status"]["conditions"].as_array_mut().expect("a list").push(condition);
                })
                .0,
        )
        .silent("worker-0", day, day + 51.0)
        .said(
            "taint-eviction-controller",
            "glance-azone-edge-api-1",
            "TaintManagerEviction",
            "Cancelling deletion of Pod default/glance-azone-edge-api-1",
            3.0 * day,
        )
        .said(
            "taint-eviction-controller",
            "glance-azone-edge-api-1",
            "TaintManagerEviction",
            "Marking for deletion Pod default/glance-azone-edge-api-1",
            3.0 * day + 300.0,
        )
        .now(3.0 * day + 68_400.0);
    assert_eq!(there.explain("glance-azone-edge-api-1").state, PodState::Terminating);
    check(&there, "glance-azone-edge-api-1", expect_file!["../golden/terminating.txt"]);
}

/// The second report: the volume hangs on the machine that was shut down.
fn cinder() -> Situation {
    let said = "Waiting for detach for volume \"pv-data\" Volume is already used by pod(s) web-1-x";
    Situation::new(&NODES)
        .deployment("Recreate")
        .workload("ReplicaSet", "web-1")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce")
        .put(
            Pod::new("web-1-x", "ReplicaSet/web-1", 0.0)
                .claim("data")
                .on("worker-0", 0.0)
                .ready(2.0, 3.0)
                .deleted(410.0)
                .0,
        )
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 410.0).claim("data").on("worker-3", 410.0).0)
        .attached("data", "worker-0")
        .silent("worker-0", 60.0, 110.0)
        .said("attachdetach-controller", "web-1-y", "FailedAttachVolume", said, 411.0)
        .now(900.0)
}

#[test]
fn creating_for_ever() {
    assert_eq!(cinder().explain("web-1-y").state, PodState::NotReady);
    check(&cinder(), "web-1-y", expect_file!["../golden/creating.txt"]);
}

#[test]
fn creating_while_the_timer_runs() {
    let changed = json!([{ "subresource": "status", "time": at(850.0).to_string() }]);
    let there = cinder()
        .remove("Pod", "web-1-x")
        .change("ReplicaSet", "web-1", |set| set["metadata"]["managedFields"] = changed);
    check(&there, "web-1-y", expect_file!["../golden/timer.txt"]);
}

#[test]
fn a_rolling_update_that_locks_itself() {
    let there = Situation::new(&NODES)
        .deployment("RollingUpdate")
        .workload("ReplicaSet", "web-1")
        .workload("ReplicaSet", "web-2")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce")
        .put(Pod::new("web-1-x", "ReplicaSet/web-1", 0.0).claim("data").on("worker-0", 0.0).ready(2.0, 3.0).0)
        .put(Pod::new("web-2-y", "ReplicaSet/web-2", 410.0).claim("data").on("worker-3", 410.0).0)
        .attached("data", "worker-0")
        .now(900.0);
    check(&there, "web-2-y", expect_file!["../golden/rolling.txt"]);
}

#[test]
fn left_on_a_silent_node() {
    let there = Situation::new(&NODES)
        .workload("StatefulSet", "db")
        .put(Pod::new("db-0", "StatefulSet/db", 0.0).on("worker-0", 0.0).ready(2.0, 3.0).0)
        .silent("worker-0", 60.0, 110.0)
        .now(130.0);
    check(&there, "db-0", expect_file!["../golden/left-behind.txt"]);
}

#[test]
fn a_zone_that_is_down() {
    let there = cinder().silent("worker-3", 60.0, 110.0).change("Pod", "web-1-y", |p| {
        *p = Pod::new("web-1-y", "ReplicaSet/web-1", 410.0).claim("data").0;
    });
    let explained = there.explain("web-1-y");
    assert_eq!(explained.state, PodState::Unschedulable);
    assert_eq!(
        explained.why,
        [
            "volume pv-data can be used only on nodes with zone=zoneA, and these nodes are unreachable: worker-0, worker-3"
        ]
    );
    let comes: Vec<bool> = explained.forecast.iter().map(|f| f.ready_at.is_some()).collect();
    assert_eq!(comes, [false, true, false, false, false], "with the node alone: {:#?}", explained.forecast);
}

/// Whatever has nothing to do with nodes: each cause in a line, and no forecast.
#[test]
fn plain_causes() {
    let waiting = |reason: &str, message: &str| json!([{ "name": "c", "ready": false, "state": { "waiting": { "reason": reason, "message": message } } }]);
    let image = "Back-off pulling image \"nope:1\"";
    let secret = "secret \"db-password\" not found";
    let crash = json!([{ "name": "c", "ready": false, "restartCount": 4,
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 1m20s restarting failed container=c" } },
        "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } } }]);
    let runs = json!([{ "name": "c", "ready": false, "state": { "running": { "startedAt": at(20.0).to_string() } } }]);
    let table = [
        ("containerStatuses", waiting("ImagePullBackOff", image), None, vec!["the image cannot be pulled", image]),
        (
            "containerStatuses",
            waiting("CreateContainerConfigError", secret),
            None,
            vec!["a ConfigMap, a Secret or a key of one is missing", secret],
        ),
        ("containerStatuses", crash.clone(), None, vec!["again and again", "exit code 1, Error"]),
        ("initContainerStatuses", crash, None, vec!["container c", "exit code 1"]),
        (
            "containerStatuses",
            runs,
            Some(("kubelet", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")),
            vec!["but is not ready", "Unhealthy", "503"],
        ),
        (
            "containerStatuses",
            waiting("ContainerCreating", ""),
            Some((
                "kubelet",
                "FailedMount",
                "MountVolume.SetUp failed for volume \"c\" : configmap \"settings\" not found",
            )),
            vec!["FailedMount", "settings"],
        ),
        (
            "containerStatuses",
            waiting("ContainerCreating", ""),
            Some(("kubelet", "FailedCreatePodSandBox", "Failed to create pod sandbox: plugin type=\"calico\" failed")),
            vec!["FailedCreatePodSandBox", "calico"],
        ),
    ];
    for (list, statuses, said, words) in table {
        let pod = Pod::new("p", "", 0.0).on("worker-0", 0.0).with(|p| p["status"][list] = statuses);
        let mut there = Situation::new(&NODES).put(pod.0).now(600.0);
        if let Some((by, reason, message)) = said {
            there = there.said(by, "p", reason, message, 590.0);
        }
        let explained = there.explain("p");
        assert_eq!(explained.state, PodState::NotReady);
        let text = explained.why.join("\n");
        for word in words {
            let quoted = format!("{word:?}");
            assert!(text.contains(word) || text.contains(quoted.trim_matches('"')), "{word:?} is not in {text}");
        }
        assert_eq!(explained.forecast, Vec::new());
    }
}

#[test]
fn a_claim_that_is_not_bound_or_not_there() {
    let pod = Pod::new("p", "", 0.0).claim("data").on("worker-0", 0.0);
    let there = Situation::new(&NODES).put(pod.0).now(600.0);
    assert_eq!(there.explain("p").why, ["claim data does not exist"]);
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "default" }, "spec": {}, "status": { "phase": "Pending" } });
    assert_eq!(there.put(claim).explain("p").why, ["claim data is Pending, not bound to a volume"]);
}

#[test]
fn a_finalizer_is_named_with_its_owner() {
    let fields = json!([{ "manager": "backup-operator",
        "fieldsV1": { "f:metadata": { "f:finalizers": { ".": {}, "v:\"example.com/backup\"": {} } } } }]);
    let pod = Pod::new("p", "", 0.0).on("worker-0", 0.0).ready(1.0, 2.0).deleted(100.0).with(|p| {
        p["metadata"]["finalizers"] = json!(["example.com/backup", "example.com/other"]);
        p["metadata"]["managedFields"] = fields;
    });
    let why = Situation::new(&NODES).put(pod.0).now(200.0).explain("p").why.join("\n");
    assert!(why.contains("finalizer example.com/backup keeps the object until backup-operator"), "{why}");
    assert!(why.contains("finalizer example.com/other keeps the object until the owner of example.com"), "{why}");
}

/// The storage has the volume elsewhere, and Kubernetes does not know.
#[test]
fn the_drivers_words_are_kept() {
    let error = "disk disk-data is attached to a different instance (9454752c)";
    let there = Situation::new(&NODES)
        .workload("StatefulSet", "db")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce")
        .put(Pod::new("db-0", "StatefulSet/db", 0.0).claim("data").on("worker-3", 0.0).0)
        .attached("data", "worker-3")
        .change("VolumeAttachment", "csi-data-worker-3", |v| {
            v["status"] = json!({ "attached": false, "attachError": { "message": error } });
        })
        .now(100.0);
    let why = there.explain("db-0").why.join("\n");
    assert!(why.contains(error) && why.contains("openstack server remove volume"), "{why}");
}

fn risk(there: &Situation, pod: &str, way: Way) -> String {
    there.forecast(pod, way).risk
}

fn out_of_service(there: Situation, node: &str) -> Situation {
    there.change("Node", node, |n| {
        let taint = json!({ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" });
        n["spec"]["taints"].as_array_mut().expect("it has taints").push(taint);
    })
}

/// Leaving it to Kubernetes is not always harmless.
#[test]
fn a_detach_by_force_is_a_risk_of_doing_nothing() {
    let named = "volumes are force-detached (pv-data from worker-0)";
    let timer = cinder().remove("Pod", "web-1-x");
    for there in [timer.clone(), timer.clone().remove("Node", "worker-0"), out_of_service(timer.clone(), "worker-0")] {
        let risk = risk(&there, "web-1-y", Way::DoNothing);
        assert!(risk.contains(named), "{risk}");
    }
    // Nobody writes to what is not mounted, and nothing is detached while a pod holds it.
    let idle = timer.change("Node", "worker-0", |n| n["status"]["volumesInUse"] = json!([]));
    for there in [idle, cinder()] {
        let risk = risk(&there, "web-1-y", Way::DoNothing);
        assert!(risk.starts_with("no additional loss"), "{risk}");
    }
}

#[test]
fn a_node_that_comes_back_out_of_service_loses_its_volumes() {
    assert!(risk(&cinder(), "web-1-y", Way::NodeReturns).starts_with("none: "));
    let risk = risk(&out_of_service(cinder(), "worker-0"), "web-1-y", Way::NodeReturns);
    assert!(
        risk.contains(
            "has the taint node.kubernetes.io/out-of-service, volumes are detached although they are mounted"
        )
    );
}

#[test]
fn a_wait_that_is_over_is_not_said_to_last() {
    let why = |there: &Situation| there.explain("web-1-x").why.join("\n");
    assert!(why(&cinder()).contains("This does not happen by itself"));
    for (there, ends) in [
        (
            cinder().remove("Node", "worker-0"),
            "the pod garbage collector deletes the pods of a node that does not exist",
        ),
        (out_of_service(cinder(), "worker-0"), "the pod garbage collector deletes the pod on its next run"),
    ] {
        let why = why(&there);
        assert!(why.contains(ends) && !why.contains("by itself"), "{why}");
    }
    // The same of one whose deletion has not begun.
    let early = cinder().change("Pod", "web-1-x", |p| {
        p["metadata"].as_object_mut().expect("an object").remove("deletionTimestamp");
    });
    let why = why(&out_of_service(early, "worker-0"));
    assert!(why.contains("then the pod garbage collector deletes it on its next run"), "{why}");
}

#[test]
fn a_volume_that_is_being_detached_waits_for_no_timer() {
    let there = cinder().remove("Pod", "web-1-x").change("VolumeAttachment", "csi-data-worker-0", |v| {
        v["metadata"]["deletionTimestamp"] = at(890.0).to_string().into();
    });
    let why = there.explain("web-1-y").why.join("\n");
    assert!(why.contains("it is being detached from worker-0 since 2026-01-01T00:14:50Z, 10s ago"), "{why}");
    assert!(!why.contains("6m"), "{why}");
}

/// Evictions say a pod's name and not which one: those from before it are about the former pod of that name.
#[test]
fn cancelled_deletions_are_read_by_their_time() {
    let said = |there: Situation, message: &str, seconds: f64| {
        let by = "taint-eviction-controller";
        there.said(by, "db-0", "TaintManagerEviction", &format!("{message} Pod default/db-0"), seconds)
    };
    let pod = Pod::new("db-0", "StatefulSet/db", 100.0).on("worker-0", 100.0).ready(102.0, 103.0).deleted(800.0);
    let there = Situation::new(&NODES).workload("StatefulSet", "db").put(pod.0).silent("worker-0", 450.0, 500.0);
    let why = |there: Situation| there.now(900.0).explain("db-0").why.join("\n");
    let before = said(said(there.clone(), "Marking for deletion", 50.0), "Cancelling deletion of", 60.0);
    assert!(!why(before).contains("TaintManager") && !why(there.clone()).contains("deletion of Pod"));
    let former = why(said(there.clone(), "Marking for deletion", 50.0));
    assert!(!former.contains("Marking for deletion"), "{former}");
    let early = why(said(there.clone(), "Cancelling deletion of", 300.0));
    assert!(early.contains("took effect: the node lost its taints"), "{early}");
    let late = why(said(there, "Cancelling deletion of", 850.0));
    assert!(late.contains("has no effect"), "{late}");
}

#[test]
fn a_finalizer_keeps_what_is_deleted_by_force() {
    let there = cinder().change("Pod", "web-1-x", |p| p["metadata"]["finalizers"] = json!(["example.com/hold"]));
    let last = there.forecast("web-1-y", Way::ForceDeletePod).steps.pop().expect("a step").what;
    assert!(last.contains("finalizer example.com/hold is not removed"), "{last}");
}

/// No node is lost, but a volume is elsewhere: that is foreseen too.
#[test]
fn volumes_that_are_held_on_nodes_that_answer() {
    let base = Situation::new(&NODES)
        .deployment("Recreate")
        .workload("ReplicaSet", "web-1")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce")
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 410.0).claim("data").on("worker-3", 410.0).0);
    let holder = Pod::new("web-1-x", "ReplicaSet/web-1", 0.0).claim("data").on("worker-0", 0.0).ready(2.0, 3.0);
    let ways = |there: &Situation| {
        let forecast = there.explain("web-1-y").forecast;
        forecast.iter().map(|f| (f.way, f.ready_at.is_some(), f.commands.len())).collect::<Vec<_>>()
    };
    let held = base.clone().put(holder.clone().0).attached("data", "worker-0").now(900.0);
    assert_eq!(ways(&held), [(Way::DoNothing, false, 0)]);
    let overdue = base.clone().put(holder.deleted(400.0).0).attached("data", "worker-0").now(900.0);
    // Why its kubelet does not end it nothing tells, nor whether that unmounts the volume once the object is gone.
    assert_eq!(ways(&overdue), [(Way::DoNothing, false, 0), (Way::ForceDeletePod, false, 0)]);
    let unknown = overdue.forecast("web-1-y", Way::ForceDeletePod).unknown.unwrap_or_default();
    assert!(unknown.contains("the kubelet of worker-0 has not ended pod web-1-x"), "{unknown}");
    let why = overdue.explain("web-1-y").why.join("\n");
    assert!(why.contains("uses it there (Terminating; its grace period ended at"), "{why}");
    assert!(risk(&overdue, "web-1-y", Way::ForceDeletePod).contains("when that kubelet has unmounted it"));
    let refused = base.attached("data", "worker-3").change("VolumeAttachment", "csi-data-worker-3", |v| {
        v["status"] = json!({ "attached": false, "attachError": { "message": "attached to a different instance" } });
        v["metadata"]["creationTimestamp"] = at(415.0).to_string().into();
    });
    assert_eq!(ways(&refused.clone().now(900.0)), [(Way::DoNothing, false, 0)]);
    assert_eq!(ways(&refused.now(430.0)), [(Way::DoNothing, true, 0)], "it may come with the next try");
}

#[test]
fn a_forecast_is_a_list_in_json_even_where_nothing_is_foreseen() {
    let there = Situation::new(&NODES).put(Pod::new("p", "", 0.0).on("worker-0", 0.0).0).now(600.0);
    let told = serde_json::to_value(there.explain("p")).expect("JSON");
    assert_eq!((&told["forecast"], &told["asOf"]), (&json!([]), &json!(at(600.0).to_string())));
}

#[test]
fn what_was_not_read_is_named_where_it_matters() {
    let plain = Situation::new(&NODES).put(Pod::new("p", "", 0.0).on("worker-0", 0.0).0).now(600.0);
    let volumes = ["PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment"];
    let unread = |there: &Situation, kinds: &[&str]| {
        let notes = there.explain_without("p", kinds).notes;
        notes.iter().map(|n| n.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        plain.explain("p").why,
        ["it was scheduled at 2026-01-01T00:00:00Z, 10m ago; no object that was read tells why it is not Ready"]
    );
    assert_eq!(unread(&plain, &["Event"]), ["events"]);
    assert_eq!(unread(&plain, &volumes), [""; 0]);
    let claimed = plain.change("Pod", "p", |p| *p = Pod(p.clone()).claim("data").0);
    assert_eq!(unread(&claimed, &volumes), ["persistentvolumeclaims", "persistentvolumes", "volumeattachments"]);
    assert_eq!(claimed.explain("p").why, ["claim data does not exist"]);
    assert_eq!(claimed.explain_without("p", &volumes).why, ["claim data was not read"]);
}

/// What does not bring the pod back is shown, but nobody is told to type it.
#[test]
fn nothing_is_offered_that_does_not_help() {
    let pod = |of: &str| Pod::new("p-0", of, 0.0).on("worker-0", 0.0).ready(2.0, 3.0).deleted(410.0);
    let base = Situation::new(&NODES).workload("StatefulSet", "p");
    let local = base.clone().claim("disk", Storage::Node("worker-0"), "ReadWriteOnce");
    let ways = [Way::ForceDeletePod, Way::DeleteNode, Way::OutOfService];
    for (there, good) in [(local.put(pod("StatefulSet/p").claim("disk").0), true), (base.put(pod("").0), false)] {
        let there = there.silent("worker-0", 60.0, 110.0).now(900.0);
        for way in ways {
            let foreseen = there.forecast("p-0", way);
            assert_eq!((foreseen.ready_at, foreseen.commands.len()), (None, 0), "{foreseen:?}");
            assert_eq!(!foreseen.risk.contains("will not be recreated (no controller): default/p-0"), good);
        }
    }
    // A bare pod that is in another's way is gone for good by what helps that one.
    let bare = cinder().change("Pod", "web-1-x", |p| p["metadata"]["ownerReferences"] = json!([]));
    let foreseen = bare.forecast("web-1-y", Way::ForceDeletePod);
    assert!(foreseen.commands.len() == 1 && foreseen.risk.contains("will not be recreated"), "{foreseen:?}");
}

#[test]
fn a_pod_that_a_kubelet_fails_to_end() {
    let error = "error killing pod: failed to stop container: context deadline exceeded";
    let pod = Pod::new("db-0", "StatefulSet/db", 0.0).on("worker-0", 0.0).ready(2.0, 3.0).deleted(100.0);
    let there = Situation::new(&NODES).workload("StatefulSet", "db").put(pod.0);
    let why = there.said("kubelet", "db-0", "FailedKillPod", error, 580.0).now(600.0).explain("db-0").why.join("\n");
    assert!(why.contains("see the kubelet's log") && why.contains(error), "{why}");
}
