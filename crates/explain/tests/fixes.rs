//! Every way out that is offered for a recorded case is applied to the case, which is then asked anew.

#![expect(clippy::disallowed_types, reason = "the recorded verdicts are a file")]

use std::fs::File;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde_json::{Map, Value};
use stead_explain::{Change, ChangeAction, fixes};
use stead_model::{Kind, KubernetesVersion, Objects};
use stead_placement::{Cluster, Pod, Snapshot, evaluate};

fn cases() -> impl Iterator<Item = (String, Map<String, Value>, Value)> {
    let path = format!("{}/../../testdata/scheduler/cases.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let file = File::open(&path).expect("the recorded verdicts are part of the repository");
    BufReader::new(GzDecoder::new(file)).lines().map(|line| {
        let mut case: Value = serde_json::from_str(&line.expect("a line")).expect("a case");
        let given = case["given"].as_object().expect("a case has what is given").clone();
        (case["id"].as_str().expect("an id").to_owned(), given, case["want"].take())
    })
}

/// Makes one change to a case, from the JSON alone: what anybody would do who knows only the form of changes and of
/// cases. It is written anew here on purpose, so that the library does not judge its own idea of a change.
fn apply(given: &mut Map<String, Value>, change: &Value) {
    let kind = change["kind"].as_str().expect("a kind");
    let same = |o: &Value| {
        let meta = &o["metadata"];
        meta["name"] == change["name"]
            && (change.get("namespace").is_none() || meta["namespace"] == change["namespace"])
    };
    if kind == "Pod" && same(&given["pod"]) {
        let patch: json_patch::Patch =
            serde_json::from_value(change["patch"].clone()).expect("the pod to place is only patched");
        json_patch::patch(&mut given["pod"], &patch).expect("a patch that applies");
        return;
    }
    let list = Kind::named(kind).and_then(|k| k.case_list).expect("a kind of the case");
    let list = given.entry(list).or_insert_with(|| Value::Array(Vec::new())).as_array_mut().expect("a list");
    if let Some(object) = change.get("create") {
        list.push(object.clone());
    } else {
        let at = list.iter().position(same).expect("the object is in the case");
        if change.get("delete") == Some(&Value::Bool(true)) {
            list.remove(at);
        } else {
            let patch: json_patch::Patch = serde_json::from_value(change["patch"].clone()).expect("a patch");
            json_patch::patch(&mut list[at], &patch).expect("a patch that applies");
        }
    }
}

fn lets_in(given: &Map<String, Value>) -> bool {
    let snapshot: Snapshot = serde_json::from_value(Value::Object(given.clone())).expect("valid objects");
    let cluster = Cluster::from_snapshot(&snapshot, KubernetesVersion::NEWEST).expect("valid objects");
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(given["pod"].clone()).expect("a pod");
    let pod = Pod::compile(&pod, KubernetesVersion::NEWEST).expect("a valid pod");
    evaluate(&cluster, &pod).expect("nothing unmodelled").fits()
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts are worth reading when the test is run by hand")]
fn every_fix_lets_the_pod_in() {
    let (mut stuck, mut helped, mut offered) = (0, 0, 0);
    let mut without = Vec::new();
    for (id, given, want) in cases() {
        if want.get("message").is_none() {
            continue;
        }
        stuck += 1;
        let (objects, pod) = Objects::from_case(given.clone()).expect("a case");
        let fixes = fixes(&objects, &pod).expect("valid objects");
        for fix in &fixes {
            let mut changed = given.clone();
            for change in serde_json::to_value(&fix.changes).expect("data").as_array().expect("a list") {
                apply(&mut changed, change);
            }
            assert!(lets_in(&changed), "{id}: refuted: {}", fix.text);
            offered += 1;
        }
        let buys = |c: &Change| c.kind == "Node" && matches!(c.action, ChangeAction::Create(_));
        if fixes.iter().any(|f| !f.changes.iter().any(buys)) {
            helped += 1;
        } else {
            without.push(format!("{id}: {}", want["message"]));
        }
    }
    println!("{offered} ways out for {stuck} cases; {helped} have one that buys no node");
    assert!(
        helped * 100 >= stuck * 90,
        "only {helped} of {stuck} have a way out that buys no node:\n{}",
        without.join("\n")
    );
}
