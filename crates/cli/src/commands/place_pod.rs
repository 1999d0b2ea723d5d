//! `stead place -f FILE`: where one pod would go, for people.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;
use stead_explain::{hanging, table};
use stead_model::{KINDS, ObjectKey};
use stead_placement::{Cluster, Code, PlacementAnswer, Plugin, Pod, Verdict, evaluate};

use crate::args::{Format, SourceArgs};
use crate::cluster::Scope;
use crate::output::{self, Outcome, complain};
use crate::workload::DEFAULT_KINDS;
use crate::{cluster, workload};

pub(crate) fn run(file: &PathBuf, source: &SourceArgs, format: Format) -> anyhow::Result<Outcome> {
    let mut seen = cluster::read(source, &DEFAULT_KINDS, Scope::Namespace)?;
    let needed = seen.items.iter().filter(|item| workload::NEEDED_KINDS.contains(&item.kind()));
    let needed: Vec<Value> = needed.map(|item| item.clone().into_value()).collect();
    let planned = workload::first_pod(cluster::read_file(file)?, seen.namespace.as_deref(), &needed)?;
    for warning in &planned.warnings {
        complain("warning", warning);
    }
    if let Some(missing) = missing_kinds(&seen.kinds).filter(|_| !source.from.is_empty()) {
        complain("warning", &missing);
    }
    let key = ObjectKey::of(&planned.pod).context("pod: metadata.name: missing")?;
    let objects = seen.objects(&source.control_plane, planned.before.into_iter().chain([planned.pod]))?;
    let (cluster, pod) = (Cluster::from_objects(&objects, Some(&key)), Pod::from_objects(&objects, &key)?);
    for warning in objects.warnings() {
        complain("warning", &format!("{warning}: the object is ignored"));
    }
    let verdict = evaluate(&cluster, &pod)?;
    if !pod.gates.is_empty() {
        let gates = pod.gates.join(", ");
        complain(
            "warning",
            &format!("{key} has scheduling gates ({gates}): it is not scheduled until they are removed"),
        );
    }
    match format {
        Format::Json => output::json(&PlacementAnswer::from(&verdict))?,
        Format::Yaml => output::yaml(&PlacementAnswer::from(&verdict))?,
        Format::Table | Format::Wide => output::text(&render(&key, &verdict, format == Format::Wide))?,
    }
    Ok(if verdict.fits() { Outcome::Yes } else { Outcome::No })
}

/// Names the kinds that the dump does not have although the answer can depend on them.
fn missing_kinds(kinds: &BTreeSet<String>) -> Option<String> {
    const NEEDED: [&str; 7] =
        ["Pod", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "Service"];
    let missing = KINDS.iter().filter(|k| NEEDED.contains(&k.kind) && !kinds.contains(k.kind));
    let missing: Vec<&str> = missing.map(|k| k.kubectl).collect();
    (!missing.is_empty())
        .then(|| format!("the dump has no {}: the answer assumes that the cluster has none", missing.join(", ")))
}

/// The result, then a table of the nodes with the best first.
fn render(key: &ObjectKey, verdict: &Verdict, wide: bool) -> String {
    let plugins: BTreeSet<Plugin> = verdict.scores.values().flat_map(|s| s.by_plugin.keys().copied()).collect();
    let mut head = vec!["NODE", "VERDICT", "SCORE"];
    head.extend(plugins.iter().filter(|_| wide).map(|p| p.name()));
    head.push("REASONS");
    let mut feasible: Vec<_> = verdict.scores.iter().collect();
    feasible.sort_by_key(|(name, scores)| (Reverse(scores.total), *name));
    let mut rows = Vec::new();
    for (name, scores) in feasible {
        let best = if verdict.best.contains(name) { "best" } else { "fits" };
        let mut row = vec![name.to_string(), best.into(), scores.total.to_string()];
        let score = |p: &Plugin| scores.by_plugin.get(p).map_or("-".into(), ToString::to_string);
        row.extend(plugins.iter().filter(|_| wide).map(score));
        rows.push(row);
    }
    for (name, rejection) in &verdict.rejected {
        let mut row = vec![name.to_string(), "no".into(), "-".into()];
        row.extend(plugins.iter().filter(|_| wide).map(|_| "-".to_owned()));
        let note = if wide && rejection.code == Code::Unresolvable { " (preemption cannot help)" } else { "" };
        let reasons: Vec<String> = rejection.reasons.iter().map(ToString::to_string).collect();
        row.push(format!("{}{note}", reasons.join("; ")));
        rows.push(row);
    }
    let mut out = result(key, verdict);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&head, &rows));
    }
    out
}

fn result(key: &ObjectKey, verdict: &Verdict) -> String {
    if let Some(error) = &verdict.error {
        return format!("{key}: kube-scheduler fails with an error\n  {error}\n");
    }
    if let Some(message) = &verdict.message {
        let nodes = verdict.rejected.len();
        let mut out = format!("{key}: 0 of {nodes} nodes can run it\n\nkube-scheduler says\n");
        hanging(&mut out, "  ", "  ", message);
        for nominee in &verdict.nominees {
            let victims: Vec<String> = nominee.victims.iter().map(ToString::to_string).collect();
            let line = format!("Preemption would make room on {} by evicting {}.", nominee.node, victims.join(", "));
            hanging(&mut out, "  ", "  ", &line);
        }
        return out;
    }
    match verdict.best.as_slice() {
        [one] => format!("{key}: kube-scheduler would choose {one}\n"),
        several => format!("{key}: kube-scheduler would choose any of {} (same score)\n", several.join(", ")),
    }
}
