//! An explanation as people read it.

use std::fmt::Write;

use crate::explanation::{Explanation, NodeNote, Reason, some};
use crate::outage::render_forecasts;

/// The explanation as text, lines no longer than they have to be.
pub fn render(e: &Explanation) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "pod {}\n  {}", e.pod, e.summary);
    if let Some(message) = &e.message {
        let _ = writeln!(out, "\nkube-scheduler 1.36 says\n  {message}");
    }
    if let Some(message) = &e.status_message {
        let _ = writeln!(out, "the pod's status says\n  {message}");
    }
    if !e.reasons.is_empty() {
        let _ = writeln!(out, "\nWhy, node by node");
    }
    for reason in &e.reasons {
        render_reason(&mut out, reason);
    }
    if !e.fixes.is_empty() {
        let _ = writeln!(out, "\nWays out, each tried with the scheduler's own rules; the least harmful first");
    }
    for (i, fix) in e.fixes.iter().enumerate() {
        let _ = writeln!(out, "  {}. {}", i + 1, fix.text);
        let _ = writeln!(out, "     it would go to {}; {}", some(&fix.nodes), fix.harm.as_str());
        for line in &fix.also {
            let _ = writeln!(out, "     {line}");
        }
        for command in &fix.commands {
            for line in command.lines() {
                let _ = writeln!(out, "       {line}");
            }
        }
    }
    if !e.why.is_empty() {
        let _ = writeln!(out, "\nWhy");
    }
    for line in &e.why {
        let _ = writeln!(out, "  - {line}");
    }
    if let Some(now) = e.as_of {
        render_forecasts(&mut out, &e.forecast, now);
    }
    if e.message.is_some() && e.fixes.is_empty() {
        let _ = writeln!(out, "\nNo way out was found in up to three changes, nor would a node more help.");
    }
    for note in &e.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

fn render_reason(out: &mut String, reason: &Reason) {
    let nodes: Vec<String> = reason.nodes.iter().map(node).collect();
    let _ = writeln!(out, "  {} x {}", reason.nodes.len(), reason.reason);
    let _ = writeln!(out, "    {}", some(&nodes));
    if reason.looked_at < reason.nodes.len() && !reason.because.is_empty() {
        let _ = writeln!(out, "    of the first {}:", reason.looked_at);
    }
    for because in &reason.because {
        if because.nodes.len() == reason.looked_at {
            let _ = writeln!(out, "    - {}", because.text);
        } else {
            let _ = writeln!(out, "    - {}: {}", some(&because.nodes), because.text);
        }
    }
}

fn node(n: &NodeNote) -> String {
    match &n.zone {
        Some(zone) => format!("{} ({zone})", n.name),
        None => n.name.clone(),
    }
}
