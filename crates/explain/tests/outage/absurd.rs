//! Values that an API server takes, or a dump may hold, and that nobody can reckon with.

use serde_json::{Value, json};
use stead_explain::explain;
use stead_explain::outage::{Clock, explain_node, newest};
use stead_model::ObjectKey;

use crate::situation::{Pod, Situation, Storage};

/// A silent node with all that is reckoned with: a pod that stays, one that is being deleted with its successor, one that
/// ends late on a node that answers, a Job, volumes and events.
fn all() -> Situation {
    let probed = |p: &mut Value| {
        p["spec"]["containers"][0]["readinessProbe"] = json!({ "initialDelaySeconds": 3, "periodSeconds": 5 });
    };
    let old = Pod::new("web-1-x", "ReplicaSet/web-1", 0.0).claim("data").on("a", 0.0).ready(2.0, 3.0).deleted(400.0);
    let next = Pod::new("web-1-y", "ReplicaSet/web-1", 410.0).claim("data").on("b", 410.0);
    let wait = "Waiting for detach for volume \"pv-data\" Volume is already used by pod(s) web-1-x";
    Situation::new(&["a:x", "b:x", "c:y"])
        .deployment("Recreate")
        .workload("ReplicaSet", "web-1")
        .workload("StatefulSet", "db")
        .workload("Job", "j")
        .change("Job", "j", |j| j["status"] = json!({ "failed": 1 }))
        .claim("data", Storage::Zone("x"), "ReadWriteOnce")
        .put(old.0)
        .put(next.with(probed).0)
        .put(Pod::new("db-0", "StatefulSet/db", 0.0).on("a", 0.0).ready(2.0, 3.0).0)
        .put(Pod::new("db-1", "StatefulSet/db", 0.0).on("c", 0.0).ready(2.0, 3.0).deleted(500.0).with(probed).0)
        .put(Pod::new("j-x", "Job/j", 0.0).on("a", 0.0).ready(2.0, 3.0).0)
        .attached_at("data", "a", 1.0)
        .silent("a", 60.0, 110.0)
        .said("attachdetach-controller", "web-1-y", "FailedAttachVolume", wait, 411.0)
        .said("taint-eviction-controller", "web-1-x", "TaintManagerEviction", "Marking for deletion Pod x", 400.0)
        .now(900.0)
}

/// What is said of the node and of one of the pods, as of the newest time in it: what cannot be read is said to be so.
fn tell(items: Vec<Value>, there: &Situation, turn: usize) {
    let there = Situation { items, clock: there.clock.clone() };
    let objects = there.objects();
    for now in [Some(there.clock.now), newest(&objects)].into_iter().flatten() {
        let clock = Clock::new(&objects, now, there.clock.timers.clone());
        let pod = ["web-1-x", "web-1-y", "db-0", "db-1", "j-x"][turn % 5];
        let _ = explain(&objects, &ObjectKey::new("Pod", "default", pod), &Situation::kinds(), &clock);
        let _ = explain_node(&objects, "a", &Situation::kinds(), &clock);
    }
}

/// Where in a value numbers and times are.
fn leaves(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, v)| leaves(v, format!("{path}/{}", name.replace('/', "~1")), out));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{path}/{i}"), out)),
        Value::Number(_) => out.push(path),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => out.push(path),
        _ => {}
    }
}

#[test]
fn what_nobody_can_reckon_with_is_no_reason_to_fall_over() {
    let there = all();
    let numbers = [json!(i64::MAX), json!(i64::MIN), json!(1_000_000_000_000_i64), json!(i32::MAX), json!(-1)];
    let times = ["9999-12-30T22:00:00Z", "-009999-01-02T01:59:59Z", "0001-01-01T00:00:00Z", "5194-11-16T09:46:40Z"];
    let mut tried = 0;
    for (i, item) in there.items.iter().enumerate() {
        let mut paths = Vec::new();
        leaves(item, String::new(), &mut paths);
        for path in paths {
            let number = item.pointer(&path).is_some_and(Value::is_number);
            // A Job counts its failures in 32 bits.
            let wide = if item["kind"] == "Job" { 3 } else { 0 };
            let absurd = if number { numbers[wide..].to_vec() } else { times.map(Value::from).to_vec() };
            for value in absurd {
                let mut items = there.items.clone();
                *items[i].pointer_mut(&path).expect("it is there") = value;
                tell(items, &there, tried);
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "only {tried} values were tried");
}

#[test]
fn who_tolerates_for_ages_is_never_evicted() {
    for (seconds, evicted) in [(315_360_000, true), (1_000_000_000_000, false), (i64::MAX, false)] {
        let there = all().change("Pod", "db-0", |p| p["spec"]["tolerations"][1]["tolerationSeconds"] = seconds.into());
        let why = there.explain("db-0").why.join("\n");
        assert_eq!(why.contains("it is evicted at about"), evicted, "{why}");
        assert_eq!(why.contains("forever: it is not evicted"), !evicted, "{why}");
    }
}
