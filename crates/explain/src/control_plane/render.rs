//! The explanation of a control plane as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::explanation::{ControlPlaneExplanation, ServiceState};
use crate::wrap::{bullet, hanging, note, wrapped};

/// The explanation as text.
pub fn render(e: &ControlPlaneExplanation) -> String {
    let mut out = String::new();
    hanging(&mut out, "", "  ", &format!("openstackcontrolplane {}: {}", e.name, e.summary));
    for section in &e.sections {
        let _ = writeln!(out, "\n{}", section.section);
        if section.services.is_empty() {
            out.push_str("  enabled, nothing has been created for it\n");
        }
        for service in &section.services {
            render_service(&mut out, service);
        }
    }
    if !e.upstream.is_empty() {
        let _ = writeln!(out, "\nKnown defects of the OpenStack operators");
    }
    for finding in &e.upstream {
        bullet(&mut out, &finding.to_string());
    }
    for text in &e.notes {
        note(&mut out, text);
    }
    out
}

fn render_service(out: &mut String, service: &ServiceState) {
    let mut line = format!("{}: {}/{} ready", service.object, service.ready, service.wanted);
    if !service.pods.is_empty() {
        line.push_str(&format!("; pods: {}", counted(&service.pods)));
    }
    if service.without_node > 0 {
        line.push_str(&format!("; {} without a node", service.without_node));
    }
    if !service.volumes.is_empty() {
        line.push_str(&format!("; volumes: {}", counted(&service.volumes)));
    }
    wrapped(out, "  ", &line);
    let topology = match &service.topology {
        None => "no Topology".to_owned(),
        Some(chosen) => {
            let name = chosen.topology.as_ref().map_or("no Topology".into(), |name| format!("Topology {name}"));
            format!("{name}, {}: {}", chosen.level, chosen.reference)
        }
    };
    wrapped(out, "    ", &topology);
    for fault in &service.faults {
        hanging(out, "    - ", "      ", fault);
    }
}

fn counted(counts: &BTreeMap<String, usize>) -> String {
    let each: Vec<String> = counts.iter().map(|(place, count)| format!("{place} {count}")).collect();
    each.join(", ")
}
