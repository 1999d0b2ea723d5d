//! The answer about a Glance as people read it.

use std::fmt::Write;

use super::explanation::{Api, GlanceExplanation};
use crate::table::table;
use crate::workload_pods::render_waiting;

/// The explanation as text.
pub fn render(e: &GlanceExplanation) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} {}\n  {}", e.kind.to_lowercase(), e.name, e.summary);
    for condition in &e.conditions {
        let _ = writeln!(out, "  {condition}");
    }
    out.push('\n');
    let rows: Vec<Vec<String>> = e.apis.iter().map(row).collect();
    out.push_str(&table(&["API", "TYPE", "READY", "TOPOLOGY", "FROM", "STORAGE", "STATE"], &rows));
    for api in e.apis.iter().filter(|a| !a.is_well()) {
        render_api(&mut out, api, &e.namespace);
    }
    if !e.remarks.is_empty() {
        let _ = writeln!(out, "\nWhat else to know");
    }
    for remark in &e.remarks {
        let _ = writeln!(out, "  - {remark}");
    }
    for note in &e.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

fn row(api: &Api) -> Vec<String> {
    let (topology, from) = match &api.topology {
        None => ("-".to_owned(), "-"),
        Some(chosen) => (chosen.topology.clone().unwrap_or_else(|| "none (opted out)".into()), chosen.level.as_str()),
    };
    vec![
        api.entry.clone(),
        api.sort.clone(),
        format!("{}/{}", api.ready, api.wanted),
        topology,
        from.to_owned(),
        api.storage.clone(),
        state(api),
    ]
}

fn state(api: &Api) -> String {
    let waiting = api.pods.iter().filter(|p| p.waiting.is_some()).count();
    let missing = api.faults.iter().find(|f| f.starts_with("Topology "));
    match (api.is_well(), waiting) {
        (true, _) => "ready".into(),
        (false, 1) => "1 pod fits on no node".into(),
        (false, n) if n > 1 => format!("{n} pods fit on no node"),
        _ if missing.is_some() => "its Topology is missing".into(),
        _ => "not ready".into(),
    }
}

fn render_api(out: &mut String, api: &Api, namespace: &str) {
    let name = api.name.as_deref().unwrap_or(&api.entry);
    let _ = writeln!(out, "\n{name} is not ready");
    for fault in &api.faults {
        let _ = writeln!(out, "  {fault}");
    }
    for pod in api.pods.iter().filter(|p| !p.ready) {
        if pod.waiting.is_some() {
            render_waiting(out, namespace, pod);
        } else {
            let place = pod.node.as_ref().map(|n| format!(" on {n}")).unwrap_or_default();
            let _ = writeln!(out, "  {}{place}: {}", pod.name, pod.state);
        }
    }
}
