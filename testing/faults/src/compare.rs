//! What triage finds, beside what was planted.

use std::fmt::Write;

use stead_explain::outage::Clock;
use stead_explain::triage::{Thresholds, TriageScope, triage};
use stead_model::Objects;

use crate::cluster::{Expected, FaultyCluster};

/// What triage finds: through the JSON that it prints.
pub fn found(cluster: &FaultyCluster) -> Expected {
    let objects = Objects::from_items(cluster.items().iter().cloned());
    let kinds = cluster.kinds();
    let found = triage(&objects, &kinds, &Clock::at(cluster.now()), &Thresholds::default(), &TriageScope::default());
    let printed = serde_json::to_value(&found).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut out = Expected::new();
    for cause in printed["causes"].as_array().into_iter().flatten() {
        let objects = cause["objects"].as_array().into_iter().flatten().map(text);
        out.entry((text(&cause["cause"]), text(&cause["about"]))).or_default().extend(objects);
    }
    out
}

/// The first differences; none where triage finds exactly what was planted.
pub fn difference(cluster: &FaultyCluster) -> Option<String> {
    let found = found(cluster);
    if found == *cluster.expected() {
        return None;
    }
    let mut out = String::new();
    for (mark, left, right) in
        [("expected, not found", cluster.expected(), &found), ("found, not expected", &found, cluster.expected())]
    {
        for ((cause, about), objects) in left {
            let other = right.get(&(cause.clone(), about.clone())).cloned().unwrap_or_default();
            let missing: Vec<&str> = objects.difference(&other).map(String::as_str).collect();
            if !missing.is_empty() {
                let _ = writeln!(out, "  {mark}: {cause} {about}: {}", missing.join(" "));
            }
        }
    }
    Some(out)
}
