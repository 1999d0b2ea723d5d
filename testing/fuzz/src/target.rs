//! The code under test: everything between a text and an explanation.

use std::collections::BTreeSet;

use serde_json::Value;
use stead_dump::{Dump, DumpOrigin, DumpWriter, described_pod, redact};
use stead_explain::outage::Clock;
use stead_explain::{explain, fixes, render};
use stead_model::{KubernetesVersion, ObjectKey, Objects, UnreadObject};
use stead_placement::{Cluster, PlacementAnswer, Pod, Snapshot, evaluate};

use crate::corpus::Case;

/// Maximum number of pods per input.
const MAX_PODS: usize = 3;

/// Redacts a dump, writes it, and reads it again.
fn check_dump(dump: &Dump) {
    let mut objects: Vec<Value> = dump.items.iter().map(|item| item.value()).collect();
    redact(&mut objects);
    let Ok(mut writer) = DumpWriter::new(Vec::new(), &DumpOrigin::default()) else { return };
    for object in objects {
        let of = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        std::hint::black_box(writer.list(&of("apiVersion"), &of("kind"), vec![object]).is_ok());
    }
    let written = writer.finish().ok().and_then(|bytes| String::from_utf8(bytes).ok()).expect("a dump in UTF-8");
    stead_dump::read_str("written", &written, &|_, _| true).expect("a dump that was written can be read");
}

/// Processes an input. The results do not matter, only that nothing panics.
pub(crate) fn run(case: &Case) {
    std::hint::black_box(described_pod(&case.text));
    if let Ok(dump) = stead_dump::read_str("fuzz", &case.text, &|_, _| true) {
        check_dump(&dump);
        let kinds: BTreeSet<String> = dump.kinds;
        let objects = Objects::from_items(dump.items.into_iter().map(|i| UnreadObject::Text(i.object)));
        let pods: Vec<ObjectKey> = objects.keys("Pod").cloned().collect();
        for key in pods.iter().take(MAX_PODS) {
            check_placement(&objects, key);
        }
        if let (true, Some(key)) = (case.explain, pods.first())
            && let Ok(explanation) = explain(&objects, key, &kinds, &Clock::at(jiff::Timestamp::UNIX_EPOCH))
        {
            std::hint::black_box(render(&explanation));
        }
    }
    let Some(given) = &case.given else { return };
    if let Ok(snapshot) = serde_json::from_value::<Snapshot>(given.clone().into()) {
        std::hint::black_box(Cluster::from_snapshot(&snapshot, KubernetesVersion::NEWEST).is_ok());
    }
    if let Ok((objects, key)) = Objects::from_case(given.clone()) {
        check_placement(&objects, &key);
        if case.explain {
            std::hint::black_box(fixes(&objects, &key).is_ok());
        }
    }
}

fn check_placement(objects: &Objects, key: &ObjectKey) {
    let Ok(pod) = Pod::from_objects(objects, key) else { return };
    let mut cluster = Cluster::from_objects(objects, Some(key));
    let plain = evaluate(&cluster, &pod);
    if let Ok(verdict) = &plain {
        std::hint::black_box(serde_json::to_string(&PlacementAnswer::from(verdict)).is_ok());
    }
    let fast = cluster.place(&pod);
    if let (Ok(verdict), Ok(placement)) = (&plain, &fast) {
        let best: Vec<&str> = placement.best().map(|n| &**n).collect();
        let expected: Vec<&str> = verdict.best.iter().map(|n| &**n).collect();
        assert_eq!(best, expected, "the fast path differs from the plain one");
    }
}
