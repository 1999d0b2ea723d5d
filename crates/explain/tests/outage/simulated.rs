//! What the simulation says of the outages whose forecasts were checked against a real control plane (`forecasts.rs`).
//!
//! The numbers are those of the forecasts, to a tenth of a second, except where a comment says why the simulation is right:
//! it goes by the polling periods of Kubernetes' components, and by what they do in each.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_explain::outage::{Timers, Way};
use stead_forecast::{Forecaster, Intervention, Milestone, Outcome, Outlook, Uncertainty};
use stead_model::ObjectKey;
use stead_placement::Cluster;

use crate::situation::{Pod, Situation, Storage, at, lease};

const NODES: [&str; 3] = ["a:x", "b:x", "c:y"];

/// From a node to Ready, of the pods here: they start in a second and are ready one later.
const PLACED: f64 = 2.0;
/// The same with a volume that has to be detached and attached first: the attach-detach controller runs each 100 ms, and
/// looks after each of its two operations when 500 ms have passed.
const ATTACHED: f64 = PLACED + 1.35;
/// A kubelet mounts a volume only after it has reported it as in use, with its next status: each ten seconds.
const IN_USE: f64 = 10.0;
/// A kubelet that is back compares the statuses of its pods with the API server each ten seconds, half of that after its
/// first report on average.
const REPORTED: f64 = 1.0 + 5.0;

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

/// What becomes of a pod. `lost` is deleted by force.
fn outlook(there: &Situation, pod: &str, way: Way, lost: &[&str]) -> Outlook {
    let (objects, clock) = (there.completed(), there.clock());
    let pod = objects.pod(&ObjectKey::pod("default", pod)).expect("it is well formed").expect("it exists");
    let lost: BTreeSet<ObjectKey> = lost.iter().map(|name| ObjectKey::pod("default", name)).collect();
    let intervention = match way {
        Way::DoNothing => Intervention::Nothing,
        Way::NodeReturns => Intervention::ReturnNode("a".into()),
        Way::ForceDeletePod => Intervention::ForceDelete(lost),
        Way::DeleteNode => Intervention::DeleteNode("a".into()),
        Way::OutOfService => Intervention::OutOfService("a".into()),
        Way::RecreateStrategy => Intervention::Recreate("default".into(), "web".into()),
    };
    let whole = Cluster::from_objects(&objects, None);
    let forecaster = Forecaster::new(&objects, &clock, &whole, &[pod]).expect("the objects are well formed");
    forecaster.run(&intervention, &[pod]).outlooks.remove(0)
}

fn ready(outlook: &Outlook) -> Option<f64> {
    match outlook.outcome {
        Outcome::Ready(ready) => Some(ready.duration_since(at(0.0)).as_secs_f64()),
        Outcome::Never | Outcome::Unknown(_) => None,
    }
}

#[track_caller]
fn check(there: &Situation, pod: &str, table: &[(Way, Option<f64>)]) {
    let mut wrong = Vec::new();
    for (way, expected) in table {
        let found = outlook(there, pod, *way, &[pod]);
        let same = match (ready(&found), expected) {
            (Some(seen), Some(expected)) => (seen - expected).abs() <= 0.1,
            (None, None) => found.outcome == Outcome::Never,
            _ => false,
        };
        if !same {
            wrong.push(format!("{pod} {way:?}: {:?}, not {expected:?}: {found:#?}", ready(&found)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_deployment_moves_by_itself() {
    let there = silent(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, Some(350.5 + PLACED)),
            (Way::NodeReturns, Some(100.0 + REPORTED)),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::DeleteNode, Some(100.0 + 50.0 + PLACED)),
            (Way::OutOfService, Some(100.0 + PLACED)),
        ],
    );
    let found = outlook(&there, "web-1-x", Way::DoNothing, &[]);
    let nodes: BTreeSet<&str> = found.nodes.iter().map(String::as_str).collect();
    assert_eq!(nodes, BTreeSet::from(["b", "c"]));
    let steps: Vec<&Milestone> = found.milestones.iter().map(|(_, milestone)| milestone).collect();
    let requested = Milestone::DeletionRequested("web-1-x".into());
    assert_eq!(steps, [&requested, &Milestone::Created { again: false }, &Milestone::Scheduled]);
}

#[test]
fn a_volume_waits_for_the_old_object() {
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").0)
        .attached("data", "a");
    let there = silent(there);
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, None),
            (Way::ForceDeletePod, Some(100.0 + 360.0 + ATTACHED)),
            (Way::DeleteNode, Some(100.0 + 50.0 + 360.0 + ATTACHED)),
            (Way::OutOfService, Some(100.0 + 10.0 + ATTACHED)),
        ],
    );
    assert_eq!(outlook(&there, "web-1-x", Way::OutOfService, &[]).nodes, ["b"], "the volume's zone has no other");
    let idle = there.clone().change("Node", "a", |n| n["status"]["volumesInUse"] = json!([]));
    check(&idle, "web-1-x", &[(Way::ForceDeletePod, Some(100.0 + IN_USE + PLACED))]);
    let mut never = there.clone();
    never.clock.timers.force_detach = None;
    check(&never, "web-1-x", &[(Way::ForceDeletePod, None), (Way::OutOfService, Some(110.0 + ATTACHED))]);
    let mut known = there;
    known.clock.timers = Timers { pod_gc_seen: Some(at(5.0)), ..Timers::default() };
    check(
        &known,
        "web-1-x",
        &[(Way::OutOfService, Some(100.0 + IN_USE + PLACED)), (Way::DeleteNode, Some(145.0 + 360.0 + ATTACHED))],
    );
}

#[test]
fn a_replacement_on_its_node_waits_as_its_predecessor_does() {
    let there = web()
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").claim("data").deleted(350.0).0)
        .put(Pod::new("web-1-y", "ReplicaSet/web-1", 350.0).claim("data").on("b", 350.0).0)
        .attached("data", "a")
        .silent("a", 0.0, 50.0)
        .now(400.0);
    for pod in ["web-1-x", "web-1-y"] {
        let forced = outlook(&there, pod, Way::ForceDeletePod, &["web-1-x"]);
        let expected = 400.0 + 360.0 + ATTACHED;
        assert!(ready(&forced).is_some_and(|seen| (seen - expected).abs() < 0.1), "{forced:#?}");
        check(&there, pod, &[(Way::DoNothing, None), (Way::OutOfService, Some(410.0 + ATTACHED))]);
    }
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
    let there = set(false).claim("data", Storage::Node("a"), "ReadWriteOnce");
    let there = silent(there.put(pod("db-0", "StatefulSet/db").claim("data").0));
    check(
        &there,
        "db-0",
        &[(Way::DoNothing, None), (Way::ForceDeletePod, None), (Way::OutOfService, None), (Way::DeleteNode, None)],
    );
}

#[test]
fn in_order_each_waits_for_those_before_it() {
    let both = set(true).put(pod("db-0", "StatefulSet/db").0).put(pod("db-1", "StatefulSet/db").0);
    let there = silent(both);
    check(&there, "db-1", &[(Way::ForceDeletePod, None), (Way::OutOfService, Some(110.0 + PLACED + PLACED))]);
    let lasting = there.change("StatefulSet", "db", |s| s["spec"]["minReadySeconds"] = 7.into());
    check(&lasting, "db-1", &[(Way::OutOfService, Some(110.0 + PLACED + 7.0 + PLACED))]);
}

#[test]
fn some_are_not_created_again() {
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
}

/// The pods of a Job are looked at together, a second after the first of their changes (syncJobBatchPeriod).
#[test]
fn a_job_counts_it_as_a_failure() {
    let job = |failed: i64| {
        let there = Situation::new(&NODES).workload("Job", "j").put(pod("j-x", "Job/j").0);
        silent(there.change("Job", "j", |j| j["status"] = json!({ "failed": failed })))
    };
    check(&job(0), "j-x", &[(Way::DoNothing, Some(350.5 + 1.0 + PLACED))]);
    check(&job(6), "j-x", &[(Way::ForceDeletePod, None)]);
}

#[test]
fn tolerations_decide_when_it_goes() {
    let with = |tolerations: Value| {
        let pod = pod("web-1-x", "ReplicaSet/web-1").with(|p| p["spec"]["tolerations"] = tolerations);
        silent(web().put(pod.0))
    };
    let for_seconds = |s: i64| json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": s }]);
    check(&with(for_seconds(60)), "web-1-x", &[(Way::DoNothing, Some(110.5 + PLACED))]);
    check(&with(for_seconds(60)), "web-1-x", &[(Way::OutOfService, Some(110.5 + PLACED))]);
    check(&with(json!([{ "operator": "Exists" }])), "web-1-x", &[(Way::DoNothing, None), (Way::OutOfService, None)]);
}

#[test]
fn a_node_that_is_not_yet_known_to_be_silent() {
    let leases = |there: Situation| there.put(lease("a", 0.0)).put(lease("b", 41.0)).put(lease("c", 35.0)).now(41.0);
    let there = leases(web().put(pod("web-1-x", "ReplicaSet/web-1").0));
    check(
        &there,
        "web-1-x",
        &[(Way::DoNothing, Some(52.5 + 300.0 + PLACED)), (Way::OutOfService, Some(41.0 + PLACED))],
    );
    // A pod that is created too early may go there; it is evicted like its predecessor.
    let rather = |pod: Pod| {
        pod.with(|p| {
            p["spec"]["affinity"] = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100, "preference": { "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] } }] } });
        })
    };
    let there = leases(web().put(rather(pod("web-1-x", "ReplicaSet/web-1")).0));
    check(&there, "web-1-x", &[(Way::ForceDeletePod, Some(352.5 + PLACED))]);
}

/// The timers of a taint go on without the node.
#[test]
fn a_node_that_is_deleted_evicts_all_the_same() {
    let short = |p: &mut Value| p["spec"]["tolerations"][1]["tolerationSeconds"] = 20.into();
    let there = web().put(pod("web-1-x", "ReplicaSet/web-1").with(short).0).silent("a", 0.0, 50.0).now(55.0);
    check(&there, "web-1-x", &[(Way::DeleteNode, Some(70.5 + PLACED))]);
    let gone = there.remove("Node", "a");
    check(&gone, "web-1-x", &[(Way::DoNothing, Some(70.5 + PLACED))]);
    let mut anew = gone;
    anew.clock.timers.controllers_since = Some(at(54.0));
    // The pod garbage collector looks first when it starts, and each 20 s after that.
    check(&anew, "web-1-x", &[(Way::DoNothing, Some(114.0 + PLACED))]);
}

#[test]
fn a_rollout_that_recreates_waits_for_the_end_of_old_pods() {
    let there = Situation::new(&NODES).deployment("Recreate").workload("ReplicaSet", "web-1").change(
        "ReplicaSet",
        "web-1",
        |s| s["spec"]["replicas"] = 0.into(),
    );
    let there = silent(there.put(pod("web-1-x", "ReplicaSet/web-1").deleted(60.0).0));
    check(
        &there,
        "web-1-x",
        &[
            (Way::DoNothing, None),
            (Way::ForceDeletePod, Some(100.0 + PLACED)),
            (Way::OutOfService, Some(110.0 + PLACED)),
            (Way::DeleteNode, Some(150.0 + PLACED)),
        ],
    );
}

#[test]
fn what_cannot_be_judged_is_not_never() {
    let unknown = |there: &Situation, pod: &str, way: Way| match outlook(there, pod, way, &[pod]).outcome {
        Outcome::Unknown(why) => why,
        other => panic!("{pod} {way:?}: {other:?}"),
    };
    let devices = |p: &mut Value| p["spec"]["resourceClaims"] = json!([{ "name": "gpu" }]);
    let there = silent(set(true).put(pod("db-0", "StatefulSet/db").with(devices).0));
    assert!(matches!(unknown(&there, "db-0", Way::ForceDeletePod), Uncertainty::Unmodelled(_)));
    let next = silent(there.put(pod("db-1", "StatefulSet/db").0));
    assert!(matches!(unknown(&next, "db-1", Way::OutOfService), Uncertainty::Predecessor { pod, .. } if pod == "db-0"));
    let there = silent(set(false).put(pod("db-0", "StatefulSet/db").claim("data").0));
    let unread = Uncertainty::Unread("persistentvolumeclaims");
    assert_eq!(unknown(&there, "db-0", Way::ForceDeletePod), unread);
    let foreign = silent(set(false).put(pod("w-0", "Widget/w").0)).change("Pod", "w-0", |p| {
        p["metadata"]["ownerReferences"][0]["apiVersion"] = "example.org/v1".into();
    });
    let other = Uncertainty::OtherController("Widget".into(), "w".into());
    assert_eq!(unknown(&foreign, "w-0", Way::ForceDeletePod), other);
    // A kubelet that is heard of, and does not end a pod.
    let stuck = set(false).put(pod("db-0", "StatefulSet/db").deleted(100.0).0).now(600.0);
    assert!(matches!(unknown(&stuck, "db-0", Way::DoNothing), Uncertainty::KubeletStuck { .. }));
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
