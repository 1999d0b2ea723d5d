//! `stead place -f FILE`: where one pod would go, for people.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

use stead_explain::table;
use stead_model::{KINDS, ObjectKey, Objects};
use stead_placement::{Answer, Cluster, Code, Plugin, Pod, Verdict, evaluate};

use crate::args::{Format, SourceArgs};
use crate::cluster::Scope;
use crate::output::{self, Outcome, complain};
use crate::{cluster, workload};

pub(crate) fn run(file: &PathBuf, source: &SourceArgs, format: Format) -> anyhow::Result<Outcome> {
    let seen = cluster::read(source, &workload::DEFAULTS, Scope::Namespace)?;
    let wanted = workload::first_pod(cluster::read_file(file)?, seen.namespace.as_deref(), &seen.items)?;
    for note in &wanted.notes {
        complain("warning", note);
    }
    if let Some(missing) = missing(&seen.kinds).filter(|_| !source.from.is_empty()) {
        complain("warning", &missing);
    }
    let text = |field: &str| wanted.pod["metadata"][field].as_str().unwrap_or_default();
    let key = ObjectKey::new("Pod", text("namespace"), text("name"));
    let objects = Objects::from_items(seen.items.into_iter().chain(wanted.before).chain([wanted.pod.clone()]));
    let (cluster, pod) = (Cluster::from_objects(&objects, Some(&key)), Pod::from_objects(&objects, &key)?);
    for warning in objects.warnings() {
        complain("warning", &format!("{warning}: the object is ignored"));
    }
    let verdict = evaluate(&cluster, &pod)?;
    if !pod.gates.is_empty() {
        let gates = pod.gates.join(", ");
        complain("warning", &format!("{key} has scheduling gates ({gates}): it is looked at once they are gone"));
    }
    match format {
        Format::Json => output::json(&Answer::from(&verdict))?,
        Format::Yaml => output::yaml(&Answer::from(&verdict))?,
        Format::Table | Format::Wide => output::text(&render(&key, &verdict, format == Format::Wide))?,
    }
    Ok(if verdict.fits() { Outcome::Yes } else { Outcome::No })
}

/// What nothing is known about, if the answer can depend on it.
fn missing(kinds: &BTreeSet<String>) -> Option<String> {
    const MATTER: [&str; 7] =
        ["Pod", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "Service"];
    let absent = KINDS.iter().filter(|k| MATTER.contains(&k.kind) && !kinds.contains(k.kind));
    let absent: Vec<&str> = absent.map(|k| k.kubectl).collect();
    (!absent.is_empty()).then(|| format!("{} were not read: the answer is as if there were none", absent.join(", ")))
}

/// The nodes in a table, the best first, and what comes of it.
fn render(key: &ObjectKey, verdict: &Verdict, wide: bool) -> String {
    let plugins: BTreeSet<Plugin> = verdict.scores.values().flat_map(|s| s.by_plugin.keys().copied()).collect();
    let mut head = vec!["NODE", "VERDICT", "SCORE"];
    head.extend(plugins.iter().filter(|_| wide).map(|p| p.name()));
    head.push("REASONS");
    let mut fitting: Vec<_> = verdict.scores.iter().collect();
    fitting.sort_by_key(|(name, scores)| (Reverse(scores.total), *name));
    let mut rows = Vec::new();
    for (name, scores) in fitting {
        let best = if verdict.best.contains(name) { "best" } else { "fits" };
        let mut row = vec![name.to_string(), best.into(), scores.total.to_string()];
        let score = |p: &Plugin| scores.by_plugin.get(p).map_or("-".into(), ToString::to_string);
        row.extend(plugins.iter().filter(|_| wide).map(score));
        rows.push(row);
    }
    for (name, rejection) in &verdict.rejected {
        let mut row = vec![name.to_string(), "no".into(), "-".into()];
        row.extend(plugins.iter().filter(|_| wide).map(|_| "-".to_owned()));
        let hopeless = if wide && rejection.code == Code::Unresolvable { " (evicting pods cannot help)" } else { "" };
        let reasons: Vec<String> = rejection.reasons.iter().map(ToString::to_string).collect();
        row.push(format!("{}{hopeless}", reasons.join("; ")));
        rows.push(row);
    }
    let mut out = table(&head, &rows);
    out.push('\n');
    out.push_str(&closing(key, verdict));
    out
}

fn closing(key: &ObjectKey, verdict: &Verdict) -> String {
    if let Some(error) = &verdict.error {
        return format!("{key}: kube-scheduler fails with: {error}\n");
    }
    if let Some(message) = &verdict.message {
        let mut out = format!("{key} fits nowhere:\n  {message}\n");
        for nominee in &verdict.nominees {
            let victims: Vec<String> = nominee.victims.iter().map(ToString::to_string).collect();
            out.push_str(&format!("Preemption would clear {} by evicting {}.\n", nominee.node, victims.join(", ")));
        }
        return out;
    }
    match verdict.best.as_slice() {
        [one] => format!("{key} goes to {one}.\n"),
        several => format!("{key} goes to any of {}: they are equally good.\n", several.join(", ")),
    }
}
