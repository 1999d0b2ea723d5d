//! The explanation of a Topology as text.

use std::fmt::Write;

use super::explanation::{DomainCounts, TopologyExplanation, TopologyUse};
use super::problems::ProblemEffect;
use crate::table::table;
use crate::workload_pods::render_waiting;
use crate::wrap::{bullet, hanging, note, wrapped};

/// The explanation as text.
pub fn render(e: &TopologyExplanation) -> String {
    let mut out = String::new();
    hanging(&mut out, "", "  ", &format!("topology {}: {}", e.topology, e.summary));
    if !e.problems.is_empty() {
        let _ = writeln!(out, "\nProblems and notes");
    }
    for problem in &e.problems {
        let effect = match problem.effect {
            ProblemEffect::Blocks => "PODS STAY PENDING: ",
            ProblemEffect::Idle => "NO EFFECT: ",
            ProblemEffect::Note => "",
        };
        bullet(&mut out, &format!("{effect}{} ({})", problem.message, problem.reason.as_str()));
    }
    let waiting: Vec<_> = e.used_by.iter().flat_map(|u| &u.pods).filter(|p| p.waiting.is_some()).collect();
    if !waiting.is_empty() {
        let _ = writeln!(out, "\nPods that no node can run");
    }
    for pod in waiting {
        render_waiting(&mut out, pod);
    }
    if !e.says.is_empty() {
        let _ = writeln!(out, "\nRules");
    }
    for line in &e.says {
        bullet(&mut out, line);
    }
    if !e.used_by.is_empty() {
        let _ = writeln!(out, "\nUsed by");
    }
    for one in &e.used_by {
        render_use(&mut out, one, e.domain.as_deref());
    }
    render_references(&mut out, e);
    if !e.upstream.is_empty() {
        let _ = writeln!(out, "\nKnown defects of the OpenStack operators");
    }
    for finding in &e.upstream {
        bullet(&mut out, &finding.to_string());
    }
    if !e.counts.is_empty() {
        let _ = writeln!(out, "\nPods per value of the spread label");
    }
    for count in &e.counts {
        wrapped(&mut out, "  ", &format!("{}, {}: {}", count.key, count.of, counted(count)));
    }
    for text in &e.notes {
        note(&mut out, text);
    }
    out
}

fn render_use(out: &mut String, one: &TopologyUse, domain: Option<&str>) {
    wrapped(out, "  ", &format!("{}, {}: {}", one.consumer, one.level, one.reference));
    for lag in &one.lags {
        hanging(out, "    - ", "      ", lag);
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

/// The references that led to no consumer above: overridden ones, and those of services that are not examined.
fn render_references(out: &mut String, e: &TopologyExplanation) {
    let told = |r: &&crate::references::Reference| {
        e.used_by.iter().any(|u| u.reference == **r || (u.consumer == r.object && r.field == "spec.topologyRef"))
    };
    // A service that a control plane created repeats the control plane's references.
    let repeated = |r: &&crate::references::Reference| {
        r.key.kind != "OpenStackControlPlane"
            && e.references.iter().any(|p| {
                p.key.kind == "OpenStackControlPlane"
                    && (p.field == "spec.topologyRef" && r.field == "spec.topologyRef"
                        || p.field
                            .split_once(".template.")
                            .is_some_and(|(_, field)| r.field == format!("spec.{field}")))
            })
    };
    let others: Vec<_> = e.references.iter().filter(|r| !told(r) && !repeated(r)).collect();
    if !others.is_empty() {
        let _ = writeln!(out, "\nOther references");
    }
    for reference in others {
        let _ = writeln!(out, "  {reference}");
    }
}

fn counted(count: &DomainCounts) -> String {
    if count.domains.is_empty() {
        return "no node has the label".into();
    }
    let each: Vec<String> = count.domains.iter().map(|(value, pods)| format!("{value} {pods}")).collect();
    let most = i64::from(count.max_skew);
    let than = if i64::try_from(count.skew).is_ok_and(|s| s > most) { "MORE THAN" } else { "at most" };
    format!("{}; the difference is {}, {than} {most} is allowed", each.join(", "), count.skew)
}
