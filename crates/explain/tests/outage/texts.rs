//! What people read.

use expect_test::{ExpectFile, expect_file};
use serde_json::json;
use stead_explain::{State, render};

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
    assert_eq!(there.explain("glance-azone-edge-api-1").state, State::Terminating);
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
    assert_eq!(cinder().explain("web-1-y").state, State::NotReady);
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
    assert_eq!(explained.state, State::Unschedulable);
    assert_eq!(
        explained.why,
        [
            "volume pv-data can be used with zone=zoneA only, and nothing is heard of the nodes there: worker-0, worker-3"
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
        ("containerStatuses", waiting("ImagePullBackOff", image), None, vec!["its image cannot be had", image]),
        (
            "containerStatuses",
            waiting("CreateContainerConfigError", secret),
            None,
            vec!["configured from is missing", secret],
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
        assert_eq!(explained.state, State::NotReady);
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
    assert_eq!(there.explain("p").why, ["claim data is not there"]);
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
    assert!(why.contains("finalizer example.com/other keeps the object until whoever owns example.com"), "{why}");
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
