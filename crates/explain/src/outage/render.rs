//! Forecasts as text.

use std::fmt::Write;

use jiff::Timestamp;

use super::forecast::Forecast;
use super::time_text::when;
use super::way::Step;
use crate::explanation::some;
use crate::wrap::wrapped;

/// Writes the forecasts.
pub(crate) fn render_forecasts(out: &mut String, forecasts: &[Forecast], now: Timestamp) {
    if !forecasts.is_empty() {
        let _ = writeln!(out, "\nOutlook: when the pod would be Ready with each option, the safest first");
    }
    for f in forecasts {
        let ready = match (f.ready_at, &f.unknown) {
            (Some(at), _) => when(at, now),
            (None, Some(_)) => "unknown".to_owned(),
            (None, None) => "never".to_owned(),
        };
        let place =
            if f.nodes.is_empty() || f.ready_at.is_none() { String::new() } else { format!(", on {}", some(&f.nodes)) };
        let _ = writeln!(out, "  {}: {ready}{place}", f.way.as_str());
        // The last step of a pod that becomes Ready is in the first line.
        let shown = f.steps.len() - usize::from(f.ready_at.is_some() && !f.steps.is_empty());
        let time = |step: &Step| step.at.map(|at| when(at, now));
        for together in f.steps[..shown].chunk_by(|a, b| time(a) == time(b)) {
            let what = together.iter().map(|s| s.what.as_str()).collect::<Vec<_>>().join(", ");
            match time(&together[0]) {
                Some(time) => wrapped(out, "    ", &format!("{time}: {what}")),
                None => wrapped(out, "    ", &what),
            }
        }
        if let Some(why) = &f.unknown {
            wrapped(out, "    ", why);
        }
        wrapped(out, "    ", &format!("risk: {}", f.risk));
        for command in &f.commands {
            let _ = writeln!(out, "      {command}");
        }
    }
}
