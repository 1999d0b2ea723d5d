//! The explanation of a Glance as text.

use std::fmt::Write;

use super::explanation::{GlanceApiState, GlanceExplanation};
use crate::table::table;
use crate::workload_pods::render_waiting;
use crate::wrap::{bullet, hanging, note, wrapped};

/// The explanation as text.
pub fn render(e: &GlanceExplanation) -> String {
    let mut out = String::new();
    hanging(&mut out, "", "  ", &format!("{} {}: {}", e.kind.to_lowercase(), e.name, e.summary));
    for condition in &e.conditions {
        wrapped(&mut out, "  ", condition);
    }
    out.push('\n');
    let rows: Vec<Vec<String>> = e.apis.iter().map(row).collect();
    out.push_str(&table(&["API", "TYPE", "READY", "TOPOLOGY", "FROM", "STORAGE", "STATE"], &rows));
    for api in e.apis.iter().filter(|a| !a.is_well()) {
        render_api(&mut out, api);
    }
    if !e.remarks.is_empty() {
        let _ = writeln!(out, "\nAlso reported");
    }
    for remark in &e.remarks {
        bullet(&mut out, remark);
    }
    for text in &e.notes {
        note(&mut out, text);
    }
    out
}

fn row(api: &GlanceApiState) -> Vec<String> {
    let (topology, from) = match &api.topology {
        None => ("-".to_owned(), "-".to_owned()),
        Some(chosen) => {
            (chosen.topology.clone().unwrap_or_else(|| "none (opted out)".into()), chosen.level.to_string())
        }
    };
    vec![
        api.entry.clone(),
        api.sort.clone(),
        format!("{}/{}", api.ready, api.wanted),
        topology,
        from,
        api.storage.clone(),
        state(api),
    ]
}

fn state(api: &GlanceApiState) -> String {
    let waiting = api.pods.iter().filter(|p| p.waiting.is_some()).count();
    match (api.is_well(), waiting) {
        (true, _) => "ready".into(),
        (false, 1) => "no node can run 1 pod".into(),
        (false, n) if n > 1 => format!("no node can run {n} pods"),
        _ if api.topology_missing => "its Topology does not exist".into(),
        _ => "not ready".into(),
    }
}

fn render_api(out: &mut String, api: &GlanceApiState) {
    let name = api.name.as_deref().unwrap_or(&api.entry);
    let _ = writeln!(out, "\n{name} is not ready");
    for fault in &api.faults {
        wrapped(out, "  ", fault);
    }
    for pod in api.pods.iter().filter(|p| !p.ready) {
        if pod.waiting.is_some() {
            render_waiting(out, pod);
        } else {
            let place = pod.node.as_ref().map(|n| format!(" on {n}")).unwrap_or_default();
            wrapped(out, "  ", &format!("{}{place}: {}", pod.name, pod.state));
        }
    }
}
