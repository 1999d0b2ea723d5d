//! Forecasts as people read them.

use std::fmt::Write;

use jiff::Timestamp;

use super::forecast::Forecast;
use super::way::Step;
use super::words::when;
use crate::explanation::some;

/// The forecasts, as a part of a text.
pub(crate) fn render_forecasts(out: &mut String, forecasts: &[Forecast], now: Timestamp) {
    if !forecasts.is_empty() {
        let _ = writeln!(out, "\nEvery way out, and when the pod would be Ready");
    }
    for f in forecasts {
        let ready = match (f.ready_at, &f.unknown) {
            (Some(at), _) => when(at, now),
            (None, Some(_)) => "not known".to_owned(),
            (None, None) => "never".to_owned(),
        };
        let place =
            if f.nodes.is_empty() || f.ready_at.is_none() { String::new() } else { format!(", on {}", some(&f.nodes)) };
        let _ = writeln!(out, "  {}: {ready}{place}", f.way.as_str());
        let steps: Vec<&Step> = f.steps.iter().filter(|s| s.what != "Ready").collect();
        for together in steps.chunk_by(|a, b| a.at == b.at) {
            let what = together.iter().map(|s| s.what.as_str()).collect::<Vec<_>>().join(", ");
            let _ = match together[0].at {
                Some(at) => writeln!(out, "    {}: {what}", when(at, now)),
                None => writeln!(out, "    {what}"),
            };
        }
        if let Some(why) = &f.unknown {
            let _ = writeln!(out, "    {why}");
        }
        let _ = writeln!(out, "    risk: {}", f.risk);
        for command in &f.commands {
            let _ = writeln!(out, "      {command}");
        }
    }
}
