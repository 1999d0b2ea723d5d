//! What hangs on a node.

use expect_test::expect_file;
use serde_json::json;
use stead_explain::outage::{Fares, NodeExplanation, Way, explain_node, render_node};

use crate::situation::{Pod, Situation, Storage};

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
        let pod = Pod::new(name, &format!("StatefulSet/{name}"), 0.0).on("worker-0", 0.0).ready(1.0, 2.0);
        pod.with(|p| p["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "10" } })).0
    };
    let there = Situation::new(&["worker-0:a", "worker-1:a"]).put(big("one")).put(big("two"));
    let there = there.silent("worker-0", 60.0, 110.0).now(130.0);
    let e = explained(&there, "worker-0").expect("it is there");
    let way = e.forecast.iter().find(|f| f.way == Way::OutOfService).expect("a way");
    let comes: Vec<bool> = way.pods.iter().map(|p| p.ready_at.is_some()).collect();
    assert_eq!(comes, [true, false], "{way:#?}");
}
