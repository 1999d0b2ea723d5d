//! The recordings of the OpenStack operators, played against the loops alone.
//!
//! A recording says what was asked for and what came of it. Here the API server is a map, and what the rest of the
//! cluster did (how many pods became ready, whether a Job ended) is taken from the recording; what the loops decide is
//! compared with it. The same recordings are played on a real control plane by `cargo xtask operators`.
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::fake::Cluster;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/operators"))
}

fn cases() -> Vec<Value> {
    let file = std::fs::File::open(root().join("recordings.jsonl.gz")).expect("the recordings are in the repository");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("they are text");
    text.lines().map(|line| serde_json::from_str(line).expect("a case a line")).collect()
}

/// What differs on purpose: a pattern of a case and a path, and why.
fn on_purpose() -> Vec<regex::Regex> {
    let text = std::fs::read_to_string(root().join("differences.tsv")).expect("the list is in the repository");
    let patterns = text.lines().map(|line| line.split('\t').next().unwrap_or_default());
    patterns.map(|p| regex::Regex::new(p).expect("a pattern")).collect()
}

#[test]
fn the_loops_decide_as_the_recorded_operators_did() {
    let on_purpose = on_purpose();
    let (mut cases_agreed, mut purposes) = (0, 0);
    let mut faults = Vec::new();
    let cases = cases();
    for case in &cases {
        let id = case["id"].as_str().expect("an id");
        let mut cluster = Cluster::new();
        for request in list(case, "given") {
            cluster.request(request);
        }
        let (mut agreed, mut meant) = (true, false);
        for (i, step) in list(case, "steps").iter().enumerate() {
            let after = &case["after"][i];
            let before = cluster.sets();
            for (request, answer) in list(step, "requests").iter().zip(list(after, "answers")) {
                // Whether a request is admitted is the definitions' business, which have tests of their own.
                if answer["code"].as_u64().is_some_and(|code| code < 300) {
                    cluster.request(request);
                }
            }
            cluster.settle(&after["state"]);
            let mut wanted = placement(&after["state"]);
            let mut have = cluster.placement(&before);
            for pointer in list(case, "unstable").iter().filter_map(Value::as_str) {
                let Some(rest) = pointer.strip_prefix(&format!("/after/{i}/state")) else { continue };
                forget(&mut wanted, rest);
                forget(&mut have, rest);
            }
            let mut found = Vec::new();
            differences(&wanted, &have, "/placement", &mut found);
            for (path, wanted, have) in found {
                let place = format!("{id}{path}");
                if on_purpose.iter().any(|p| p.is_match(&place)) {
                    meant = true;
                } else {
                    agreed = false;
                    faults.push(format!("step {i} {place}: recorded {wanted}, have {have}"));
                }
            }
        }
        cases_agreed += usize::from(agreed);
        purposes += usize::from(meant);
    }
    let shown: Vec<&String> = faults.iter().take(40).collect();
    assert!(
        faults.is_empty(),
        "{cases_agreed} of {} agree; {} differences, such as {shown:#?}",
        cases.len(),
        faults.len()
    );
    // The page on fidelity has this number.
    assert_eq!(purposes, 19, "cases with differences on purpose");
}

#[test]
fn what_differs_on_purpose_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FIDELITY.md");
    let page = std::fs::read_to_string(page).expect("the page is in the repository");
    let text = std::fs::read_to_string(root().join("differences.tsv")).expect("the list is in the repository");
    for line in text.lines() {
        let (pattern, reason) = line.split_once('\t').expect("a pattern and a reason");
        assert!(page.contains(&format!("| {reason} |")), "{pattern}: {reason}");
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// What decides where pods run, in the form that the player of the recordings compares.
fn placement(state: &Value) -> Value {
    let pick = |object: &Value, fields: &[&str]| -> Value {
        fields.iter().filter_map(|f| Some(((*f).to_owned(), object.get(*f)?.clone()))).collect::<Map<_, _>>().into()
    };
    let sets = list(state, "statefulsets").iter().map(|set| {
        let mut out = pick(set, &["name", "uid", "replicas", "podManagementPolicy", "selector"]);
        out["pod"] = pick(&set["pod"], &["labels", "affinity", "topologySpreadConstraints", "nodeSelector"]);
        out["claims"] =
            list(set, "volumeClaimTemplates").iter().map(|v| json!([v["name"], v["spec"]])).collect::<Vec<_>>().into();
        out
    });
    let apis = list(state, "glanceapis").iter().map(|api| {
        let told = list(&api["status"], "conditions").iter();
        let told = told.filter(|c| c["type"] == "TopologyReady" || c["type"] == "DeploymentReady").cloned();
        json!({
            "name": api["name"],
            "last": api["status"]["lastAppliedTopology"],
            "ready": api["status"]["readyCount"].as_i64().unwrap_or(0),
            "conditions": told.collect::<Vec<_>>(),
        })
    });
    let topologies = list(state, "topologies").iter().map(|t| pick(t, &["name", "finalizers", "deleting"]));
    let services = list(state, "services").iter();
    let services = services.map(|s| pick(s, &["name", "selector", "ports", "clusterIP"]));
    json!({
        "statefulsets": sets.collect::<Vec<_>>(),
        "glanceapis": apis.collect::<Vec<_>>(),
        "topologies": topologies.collect::<Vec<_>>(),
        "services": services.collect::<Vec<_>>(),
    })
}

/// What did not repeat when it was recorded is not compared.
fn forget(document: &mut Value, pointer: &str) {
    if let Some(value) = document.pointer_mut(pointer) {
        *value = json!("(unstable)");
    }
}

fn differences(wanted: &Value, have: &Value, path: &str, out: &mut Vec<(String, String, String)>) {
    let absent = json!("(absent)");
    match (wanted, have) {
        (Value::Object(w), Value::Object(h)) => {
            let keys: BTreeMap<&String, ()> = w.keys().chain(h.keys()).map(|k| (k, ())).collect();
            for key in keys.keys() {
                let at = |m: &Map<String, Value>| m.get(*key).cloned().unwrap_or_else(|| absent.clone());
                differences(&at(w), &at(h), &format!("{path}/{key}"), out);
            }
        }
        (Value::Array(w), Value::Array(h)) => {
            for i in 0..w.len().max(h.len()) {
                let at = |l: &Vec<Value>| l.get(i).cloned().unwrap_or_else(|| absent.clone());
                differences(&at(w), &at(h), &format!("{path}/{i}"), out);
            }
        }
        _ if wanted != have && *wanted != "(unstable)" && *have != "(unstable)" => {
            out.push((path.to_owned(), wanted.to_string(), have.to_string()));
        }
        _ => {}
    }
}
