//! The explanation of a pod as text.

use std::fmt::Write;

use crate::explanation::{Explanation, NodeAndZone, OfferedFix, Reason, some};
use crate::outage::{render_forecasts, render_settings};
use crate::wrap::{bullet, hanging, note, wrapped};

/// The explanation as text: the verdict, what to do, and the details.
pub fn render(e: &Explanation) -> String {
    let mut out = String::new();
    hanging(&mut out, "", "  ", &format!("pod {}: {}", e.pod, e.summary));
    if let Some(message) = &e.message {
        wrapped(&mut out, "  ", &format!("kube-scheduler {} says: {message}", e.kubernetes));
    }
    if let Some(message) = &e.status_message {
        wrapped(&mut out, "  ", &format!("the pod's status says: {message}"));
    }
    if !e.fixes.is_empty() {
        let _ = writeln!(out, "\nPossible fixes (each verified against the scheduler), the least harmful first");
    }
    for (i, fix) in e.fixes.iter().enumerate() {
        render_fix(&mut out, i + 1, fix);
    }
    if e.message.is_some() && e.fixes.is_empty() {
        let _ =
            writeln!(out, "\nNo fix was found: up to three changes were tried, and an additional node would not help.");
    }
    if let Some(now) = e.as_of {
        render_forecasts(&mut out, &e.forecast, now);
    }
    if !e.why.is_empty() {
        let _ = writeln!(out, "\nWhy");
    }
    for line in &e.why {
        bullet(&mut out, line);
    }
    if !e.reasons.is_empty() {
        let _ = writeln!(out, "\nWhy, by node");
    }
    for reason in &e.reasons {
        render_reason(&mut out, reason);
    }
    for text in render_settings(&e.timing).iter().chain(&e.notes) {
        note(&mut out, text);
    }
    out
}

fn render_fix(out: &mut String, number: usize, fix: &OfferedFix) {
    hanging(out, &format!("  {number}. "), "     ", &fix.text);
    hanging(out, "     ", "     ", &format!("goes to {}; {}", some(&fix.nodes), fix.harm.as_str()));
    for line in &fix.also {
        hanging(out, "     ", "     ", line);
    }
    for command in &fix.commands {
        for line in command.to_string().lines() {
            let _ = writeln!(out, "       {line}");
        }
    }
}

fn render_reason(out: &mut String, reason: &Reason) {
    let nodes: Vec<String> = reason.nodes.iter().map(node).collect();
    wrapped(out, "  ", &format!("{} x {}", reason.nodes.len(), reason.reason));
    hanging(out, "    ", "    ", &some(&nodes));
    if reason.looked_at < reason.nodes.len() && !reason.because.is_empty() {
        let _ = writeln!(out, "    of the first {}:", reason.looked_at);
    }
    for because in &reason.because {
        let nodes =
            if because.nodes.len() == reason.looked_at { String::new() } else { format!("{}: ", some(&because.nodes)) };
        hanging(out, "    - ", "      ", &format!("{nodes}{}", because.text));
    }
}

fn node(n: &NodeAndZone) -> String {
    match &n.zone {
        Some(zone) => format!("{} ({zone})", n.name),
        None => n.name.clone(),
    }
}
