//! What hangs on a node.

use expect_test::expect_file;
use serde_json::json;
use stead_explain::outage::{Fares, NodeExplanation, Way, explain_node, render_node};

use crate::situation::{Pod, Situation, Storage, at, lease};

const NODES: [&str; 4] = ["worker-0:zoneA", "worker-1:zoneB", "worker-2:zoneC", "worker-3:zoneA"];

fn explained(there: &Situation, node: &str) -> Option<NodeExplanation> {
    explain_node(&there.objects(), node, &Situation::kinds(), &there.clock()).expect("it can be explained")
}

/// A node with a bit of everything.
fn full() -> Situation {
    let pod = |name: &str, of: &str| Pod::new(name, of, 0.0).on("worker-0", 0.0).ready(1.0, 2.0);
    Situation::new(&NODES)
        .deployment("Recreate")
        .workload("ReplicaSet", "web-1")
        .workload("StatefulSet", "db")
        .workload("StatefulSet", "local")
        .workload("DaemonSet", "agent")
        .claim("data", Storage::Zone("zoneA"), "ReadWriteOnce")
        .claim("disk", Storage::Node("worker-0"), "ReadWriteOnce")
        .put(pod("web-1-x", "ReplicaSet/web-1").0)
        .put(pod("db-0", "StatefulSet/db").claim("data").0)
        .put(pod("local-0", "StatefulSet/local").claim("disk").0)
        .put(pod("agent-x", "DaemonSet/agent").with(|p| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }])).0)
        .put(pod("bare", "").0)
        .attached("data", "worker-0")
}

#[test]
fn a_silent_node() {
    let there = full().silent("worker-0", 60.0, 110.0).now(130.0);
    let e = explained(&there, "worker-0").expect("it is there");
    expect_file!["../golden/node.txt"].assert_eq(&render_node(&e));
    let fares: Vec<(&str, Fares)> = e.pods.iter().map(|p| (p.pod.as_str(), p.fares)).collect();
    assert_eq!(
        fares,
        [
            ("default/agent-x", Fares::NodesOwn),
            ("default/bare", Fares::WithNode),
            ("default/db-0", Fares::WithHelp),
            ("default/local-0", Fares::WithNode),
            ("default/web-1-x", Fares::ByItself),
        ]
    );
    let back = e.forecast.iter().find(|f| f.way == Way::NodeReturns).expect("a way");
    assert!(back.ready_at.is_some(), "with the node, all come back");
    assert!(e.forecast.iter().filter(|f| f.way != Way::NodeReturns).all(|f| f.ready_at.is_none()));
}

#[test]
fn a_node_whose_object_is_gone() {
    let there = full().remove("Node", "worker-0").now(130.0);
    let e = explained(&there, "worker-0").expect("something hangs on it");
    assert!(!e.exists && e.pods.len() == 5 && e.volumes.len() == 1, "{e:#?}");
    assert_eq!(e.forecast.iter().map(|f| f.way).collect::<Vec<_>>(), [Way::DoNothing, Way::ForceDeletePod]);
    let there = Situation::new(&NODES);
    assert_eq!(explained(&there, "worker-9"), None, "of this one nothing is known");
}

#[test]
fn a_node_that_answers() {
    let e = explained(&full().now(30.0), "worker-0").expect("it is there");
    assert_eq!(e.forecast, Vec::new());
    assert!(e.pods.iter().all(|p| p.fares == Fares::Well));
    assert_eq!(e.volumes[0].pods, ["default/db-0"]);
}

/// Two that each fit, but not both.
#[test]
fn the_pods_of_a_node_take_each_others_room() {
    let big = |name: &str| {
        let pod =
            Pod::new(&format!("{name}-0"), &format!("StatefulSet/{name}"), 0.0).on("worker-0", 0.0).ready(1.0, 2.0);
        pod.with(|p| p["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "10" } })).0
    };
    let there = Situation::new(&["worker-0:a", "worker-1:a"]).put(big("one")).put(big("two"));
    let there = there.workload("StatefulSet", "one").workload("StatefulSet", "two");
    let there = there.silent("worker-0", 60.0, 110.0).now(130.0);
    let e = explained(&there, "worker-0").expect("it is there");
    let way = e.forecast.iter().find(|f| f.way == Way::OutOfService).expect("a way");
    let comes: Vec<bool> = way.pods.iter().map(|p| p.ready_at.is_some()).collect();
    assert_eq!(comes, [true, false], "{way:#?}");
}

/// A node that says itself that it is not ready, and is being emptied for it.
#[test]
fn a_node_that_is_not_ready_by_its_own_word() {
    let key = "node.kubernetes.io/not-ready";
    let unready = |there: Situation, taints: serde_json::Value| {
        let there = there.change("Node", "worker-0", |n| {
            n["status"]["conditions"][0]["status"] = "False".into();
            n["status"]["conditions"][0]["lastTransitionTime"] = at(300.0).to_string().into();
            n["spec"]["taints"] = taints;
        });
        there.put(lease("worker-0", 400.0)).now(400.0)
    };
    let tainted = json!([{ "key": key, "effect": "NoExecute", "timeAdded": at(300.0).to_string() }]);
    // The node controller looks again at 402.5 s.
    for (taints, evicted) in [(tainted, 600.5), (json!([]), 702.5)] {
        let there = unready(full(), taints.clone());
        let e = explained(&there, "worker-0").expect("it is there");
        let fares: Vec<Fares> = e.pods.iter().map(|p| p.fares).collect();
        assert_eq!(fares, [Fares::NodesOwn, Fares::Evicted, Fares::Evicted, Fares::Evicted, Fares::Evicted]);
        let late = e.pods[1].evicted_at.expect("it is evicted").duration_since(at(evicted)).as_secs_f64();
        assert!(late.abs() <= 0.1, "{late} s after {evicted} s: {taints}");
        let said = format!("it has the taint {key}:NoExecute since 2026-01-01T00:05:00Z, which evicts its pods");
        assert_eq!(e.why.contains(&said), evicted < 700.0, "{:?}", e.why);
        assert!(render_node(&e).contains("will be evicted at 2026-01-01T00:1"), "{}", render_node(&e));
        let pod = there.explain("db-0").why.join("\n");
        assert!(pod.contains("it tolerates that for 5m: it is evicted at about 2026-01-01T00:1"), "{pod}");
        assert!(pod.contains("the kubelet of worker-0 stops it"), "{pod}");
    }
    let stays = full().change("Pod", "bare", |p| p["spec"]["tolerations"] = json!([{ "operator": "Exists" }]));
    let e = explained(&unready(stays, json!([])), "worker-0").expect("it is there");
    assert_eq!((e.pods[1].fares, e.pods[1].evicted_at), (Fares::WithNode, None));
    // Of a node without conditions, nothing was ever said.
    let unsaid = full().change("Node", "worker-0", |n| n["status"]["conditions"] = json!([])).now(400.0);
    let e = explained(&unsaid, "worker-0").expect("it is there");
    assert!(e.pods.iter().all(|p| p.evicted_at.is_none()), "{:?}", e.pods);
}

/// Where nothing has to come back, all is back at once.
#[test]
fn a_silent_node_with_its_own_pods_alone() {
    let own = Pod::new("agent-x", "DaemonSet/agent", 0.0).on("worker-0", 0.0).ready(1.0, 2.0);
    let there = Situation::new(&NODES).workload("DaemonSet", "agent").put(own.0);
    let e = explained(&there.silent("worker-0", 60.0, 110.0).now(130.0), "worker-0").expect("it is there");
    assert!(e.forecast.len() > 3 && e.forecast.iter().all(|f| f.ready_at == Some(at(130.0))), "{:#?}", e.forecast);
}

/// A dump has no managedFields as a rule, and so no time but the node's own.
#[test]
fn a_clock_that_is_behind_is_no_silence() {
    let there = full().put(lease("worker-0", 510.0)).put(lease("worker-1", 600.0)).now(600.0);
    let e = explained(&there, "worker-0").expect("it is there");
    assert_eq!((e.summary.as_str(), e.forecast.len()), ("Ready", 0));
    assert!(e.why.iter().any(|w| w.contains("by the node's own clock, which must be behind")), "{:?}", e.why);
    assert!(e.pods.iter().all(|p| p.fares == Fares::Well));
    // One that the node controller can not have found yet.
    let silent = full().put(lease("worker-0", 552.0)).put(lease("worker-1", 600.0)).now(600.0);
    assert!(!explained(&silent, "worker-0").expect("it is there").forecast.is_empty());
}
