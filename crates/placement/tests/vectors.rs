//! Every recorded verdict of the real kube-scheduler, compared in every field.
#![expect(clippy::disallowed_types, reason = "the recording is a file")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod as RawPod;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use stead_model::KubernetesVersion;
use stead_placement::{Cluster, PlacementAnswer, Pod, Snapshot, evaluate, refusal};

#[derive(Deserialize)]
struct Case {
    id: String,
    given: Given,
    want: PlacementAnswer,
}

#[derive(Deserialize)]
struct Given {
    pod: RawPod,
    #[serde(flatten)]
    snapshot: Snapshot,
}

fn cases(file: &str) -> impl Iterator<Item = Case> {
    lines(file)
}

fn lines<T: DeserializeOwned>(file: &str) -> impl Iterator<Item = T> {
    let path = format!("{}/../../testdata/scheduler/{file}", env!("CARGO_MANIFEST_DIR"));
    let file = File::open(&path).expect("the recorded verdicts are part of the repository");
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("a case"))
}

#[test]
fn agrees_with_kube_scheduler_in_every_field() {
    let (mut count, mut wrong) = (0, Vec::new());
    for case in cases("cases.jsonl.gz") {
        count += 1;
        let cluster = Cluster::from_snapshot(&case.given.snapshot, KubernetesVersion::NEWEST).expect("valid objects");
        let pod = Pod::compile(&case.given.pod, KubernetesVersion::NEWEST).expect("a valid pod");
        let mut got = PlacementAnswer::from(&evaluate(&cluster, &pod).expect("nothing unmodelled"));
        // kube-scheduler picks one of the equally good nodes at random.
        if got.nominees == case.want.nominees {
            got.nominated.clone_from(&case.want.nominated);
        }
        if got != case.want {
            wrong.push(format!("{}\n  got  {got:?}\n  want {:?}", case.id, case.want));
        }
    }
    assert_eq!(count, 2563, "all of the recording is read");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

#[derive(Deserialize)]
struct Recorded {
    id: String,
    want: PlacementAnswer,
}

/// The verdicts of every older version, on some of the same cases.
#[test]
fn agrees_with_older_versions() {
    let older = || KubernetesVersion::all().filter(|version| *version != KubernetesVersion::NEWEST);
    let recorded: Vec<BTreeMap<String, PlacementAnswer>> = older()
        .map(|version| {
            let file = format!("versions/{version}.jsonl.gz");
            let all = lines(&file);
            all.map(|Recorded { id, want }| (id, want)).collect()
        })
        .collect();
    assert!(recorded.iter().all(|all| all.len() == 855), "all of the recordings are read");
    let mut wrong = Vec::new();
    for case in cases("cases.jsonl.gz") {
        for (version, all) in older().zip(&recorded) {
            let Some(want) = all.get(&case.id) else { continue };
            wrong.extend(difference(&case, version, want).map(|text| format!("{version}, {}: {text}", case.id)));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

fn difference(case: &Case, version: KubernetesVersion, want: &PlacementAnswer) -> Option<String> {
    let mut cluster = Cluster::from_snapshot(&case.given.snapshot, version).expect("valid objects");
    let pod = Pod::compile(&case.given.pod, version).expect("a valid pod");
    let mut got = PlacementAnswer::from(&evaluate(&cluster, &pod).expect("nothing unmodelled"));
    // What is random is not recorded: the nominated one of several equal nodes, and what was found before an error.
    got.nominated = None;
    if got.error.is_some() {
        got = PlacementAnswer { error: got.error.take(), ..PlacementAnswer::default() };
    }
    if got != *want {
        return Some(format!("\n  got  {got:?}\n  want {want:?}"));
    }
    let fast = cluster.place(&pod).expect("nothing unmodelled");
    let best: Vec<&str> = fast.best().map(|n| &**n).collect();
    let same = best == want.best && fast.fitting() == want.feasible.len();
    (!same).then(|| format!("the fast path finds {best:?}, {} nodes fit", fast.fitting()))
}

/// The fast path gives no reasons but has to find the same nodes.
#[test]
fn the_fast_path_agrees_with_kube_scheduler() {
    for case in cases("cases.jsonl.gz") {
        let mut cluster =
            Cluster::from_snapshot(&case.given.snapshot, KubernetesVersion::NEWEST).expect("valid objects");
        let pod = Pod::compile(&case.given.pod, KubernetesVersion::NEWEST).expect("a valid pod");
        let got = cluster.place(&pod).expect("nothing unmodelled");
        let mut feasible: Vec<&str> = got.feasible().map(|n| &**n).collect();
        feasible.sort_unstable();
        assert_eq!(feasible, case.want.feasible, "{}", case.id);
        assert_eq!(got.best().map(|n| &**n).collect::<Vec<_>>(), case.want.best, "{}", case.id);
        let refusal = refusal(&cluster, &pod).expect("nothing unmodelled");
        let (message, error) = refusal.map(|r| (r.message, r.error.map(|e| e.to_string()))).unwrap_or_default();
        assert_eq!((message, error), (case.want.message, case.want.error), "{}", case.id);
    }
}

#[test]
fn pods_with_device_claims_are_not_modelled() {
    let mut count = 0;
    for case in cases("devices.jsonl.gz") {
        let cluster = Cluster::from_snapshot(&case.given.snapshot, KubernetesVersion::NEWEST).expect("valid objects");
        let pod = Pod::compile(&case.given.pod, KubernetesVersion::NEWEST).expect("a valid pod");
        let error = evaluate(&cluster, &pod).expect_err("devices are not modelled").to_string();
        assert!(error.contains("not modelled") && error.contains("spec.resourceClaims"), "{}: {error}", case.id);
        count += 1;
    }
    assert_eq!(count, 437);
}
