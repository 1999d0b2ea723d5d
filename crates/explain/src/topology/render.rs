//! The answer about a Topology as people read it.

use std::fmt::Write;

use super::explanation::{Count, TopologyExplanation, Use};
use super::troubles::Effect;
use crate::table::table;
use crate::workload_pods::render_waiting;

/// The explanation as text.
pub fn render(e: &TopologyExplanation) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "topology {}\n  {}", e.topology, e.summary);
    if !e.says.is_empty() {
        let _ = writeln!(out, "\nWhat it says");
    }
    for line in &e.says {
        let _ = writeln!(out, "  - {line}");
    }
    if !e.troubles.is_empty() {
        let _ = writeln!(out, "\nWhat to know about it");
    }
    for trouble in &e.troubles {
        let effect = match trouble.effect {
            Effect::Blocks => "PODS STAY PENDING: ",
            Effect::Idle => "IT DOES NOTHING: ",
            Effect::Note => "",
        };
        let _ = writeln!(out, "  - {effect}{} ({})", trouble.message, trouble.reason.as_str());
    }
    if !e.used_by.is_empty() {
        let _ = writeln!(out, "\nWho uses it");
    }
    for one in &e.used_by {
        render_use(&mut out, one, e.domain.as_deref());
    }
    render_references(&mut out, e);
    if !e.counts.is_empty() {
        let _ = writeln!(out, "\nHow the pods are spread");
    }
    for count in &e.counts {
        let _ = writeln!(out, "  by {}, {}: {}", count.key, count.of, counted(count));
    }
    let waiting: Vec<_> = e.used_by.iter().flat_map(|u| &u.pods).filter(|p| p.waiting.is_some()).collect();
    if !waiting.is_empty() {
        let _ = writeln!(out, "\nPods that wait");
    }
    for pod in waiting {
        render_waiting(&mut out, &e.namespace, pod);
    }
    for note in &e.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

fn render_use(out: &mut String, one: &Use, domain: Option<&str>) {
    let _ = writeln!(out, "  {}, {}: {}", one.consumer, one.level.as_str(), one.reference);
    for lag in &one.lags {
        let _ = writeln!(out, "    - {lag}");
    }
    if one.pods.is_empty() {
        return;
    }
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let rows: Vec<Vec<String>> =
        one.pods.iter().map(|p| vec![p.name.clone(), dash(&p.node), dash(&p.domain), p.state.clone()]).collect();
    let heading = domain.map_or("ZONE".to_owned(), |d| d.rsplit('/').next().unwrap_or(d).to_uppercase());
    for line in table(&["POD", "NODE", &heading, "STATE"], &rows).lines() {
        let _ = writeln!(out, "    {line}");
    }
}

/// The references that led to nobody above: overridden ones, and those of services that are not looked into.
fn render_references(out: &mut String, e: &TopologyExplanation) {
    let told = |r: &&crate::references::Reference| {
        e.used_by.iter().any(|u| u.reference == **r || (u.consumer == r.object && r.field == "spec.topologyRef"))
    };
    // A Glance that a control plane made repeats what the control plane says.
    let repeated = |r: &&crate::references::Reference| {
        r.object.starts_with("Glance ")
            && e.references.iter().any(|p| {
                p.object.starts_with("OpenStackControlPlane ")
                    && (p.field == "spec.topologyRef" && r.field == "spec.topologyRef"
                        || p.field.replace("spec.glance.template.", "spec.") == r.field)
            })
    };
    let others: Vec<_> = e.references.iter().filter(|r| !told(r) && !repeated(r)).collect();
    if !others.is_empty() {
        let _ = writeln!(out, "\nAlso referred to by");
    }
    for reference in others {
        let _ = writeln!(out, "  {reference}");
    }
}

fn counted(count: &Count) -> String {
    if count.domains.is_empty() {
        return "no node counts".into();
    }
    let each: Vec<String> = count.domains.iter().map(|(value, pods)| format!("{value} {pods}")).collect();
    let most = i64::from(count.max_skew);
    let than = if i64::try_from(count.skew).is_ok_and(|s| s > most) { "MORE THAN" } else { "at most" };
    format!("{}; the fullest has {} more than the emptiest, {than} {most} allowed", each.join(", "), count.skew)
}
