//! Runs as one page of HTML that needs nothing else: a timeline, the steps with their results, and all changes as text.
//!
//! `lanes` finds what each node and pod was and when, `axis` where a time is on the page, `timeline` draws both. Nothing is
//! said by colour alone: states have letters and patterns, results have words.

mod axis;
mod lanes;
mod timeline;

use std::fmt::Write;

use crate::markup::escaped;
use crate::play::{PlayedStep, Run, StepKind};
use crate::rehearsal::Rehearsal;
use crate::story::{clock, consequences};
use lanes::LaneState;
use timeline::{Chapter, chapters, timeline};

const STYLE: &str = include_str!("style.css");

/// A run and what it is a run of.
#[derive(Debug, Clone, Copy)]
pub struct PageRun<'a> {
    /// The rehearsal.
    pub rehearsal: &'a Rehearsal,
    /// Its run.
    pub run: &'a Run,
    /// The seed.
    pub seed: u64,
}

/// A page about some runs.
pub fn page(runs: &[PageRun<'_>]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.rehearsal.metadata.name.as_str()).collect();
    let title = escaped(&names.join(", "));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Rehearsal: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{PATTERNS}<main>\n"
    );
    if runs.len() > 1 {
        contents(&mut out, runs);
    }
    for (i, run) in runs.iter().enumerate() {
        section(&mut out, run, &format!("run{}", i + 1));
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// The patterns of the states. Their lines have the colour of the text around them.
const PATTERNS: &str = "<svg class=\"patterns\" aria-hidden=\"true\" width=\"0\" height=\"0\"><defs>\
<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"ground\" width=\"6\" height=\"6\"/><line class=\"stripe\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern>\
<pattern id=\"cross\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"ground-t\" width=\"6\" height=\"6\"/><path class=\"stripe-t\" d=\"M0 0V6M0 0H6\"/></pattern>\
<pattern id=\"dots\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"ground-n\" width=\"5\" height=\"5\"/><circle class=\"dot\" cx=\"2\" cy=\"2\" r=\"0.9\"/></pattern>\
<pattern id=\"down\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(-45)\">\
<rect class=\"ground-d\" width=\"7\" height=\"7\"/><line class=\"stripe-d\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern>\
</defs></svg>\n";

/// The list of several runs.
fn contents(out: &mut String, runs: &[PageRun<'_>]) {
    let failed = runs.iter().filter(|run| !run.run.passed()).count();
    let verdict = match failed {
        0 => format!("all {} rehearsals passed", runs.len()),
        count => format!("{count} of {} rehearsals failed", runs.len()),
    };
    let _ = writeln!(out, "<nav aria-label=\"Rehearsals\"><p>{verdict}</p><ul>");
    for (i, run) in runs.iter().enumerate() {
        let name = escaped(&run.rehearsal.metadata.name);
        let word = if run.run.passed() { "passed" } else { "FAILED" };
        let _ = writeln!(out, "<li><a href=\"#run{}\">{name}</a>: {word}</li>", i + 1);
    }
    out.push_str("</ul></nav>\n");
}

fn section(out: &mut String, shown: &PageRun<'_>, id: &str) {
    let PageRun { rehearsal, run, seed } = shown;
    let name = escaped(&rehearsal.metadata.name);
    let about = escaped(rehearsal.description.as_deref().unwrap_or_default().trim());
    let (class, mark, word) = if run.passed() { ("pass", "✓", "Passed") } else { ("fail", "✗", "Failed") };
    let checks = run.steps.iter().filter(|step| step.kind == StepKind::Check).count();
    let took = clock(run.took().0);
    let version = run.start.settings().version;
    let _ = writeln!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-name\">\n<header>\n<h1 id=\"{id}-name\">{name}</h1>\n\
         <p class=\"verdict {class}\"><span aria-hidden=\"true\">{mark}</span> {word}</p>\n<p class=\"about\">{about}</p>\n\
         <dl class=\"facts\"><div><dt>Steps</dt><dd>{} ({checks} checks)</dd></div>\
         <div><dt>Cluster time</dt><dd>{took}</dd></div><div><dt>Kubernetes</dt><dd>{version}</dd></div>\
         <div><dt>Seed</dt><dd>{seed}</dd></div></dl>\n</header>",
        run.steps.len()
    );
    if let Some((index, why)) = run.failure() {
        let _ = writeln!(
            out,
            "<div class=\"why\" role=\"note\"><strong>Failed in step {}</strong><pre>{}</pre></div>",
            index + 1,
            escaped(&why)
        );
    }
    let _ = writeln!(out, "<h2>Timeline</h2>\n{}", legend());
    let _ = writeln!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Timeline of {name}\">\n{}</div>",
        timeline(run, id)
    );
    let _ = writeln!(
        out,
        "<p class=\"note\">Numbers are the headings of the steps below. Time is not to scale: the longer nothing happens, \
         the more is left out.</p>"
    );
    steps(out, run);
    changes(out, run);
    out.push_str("</section>\n");
}

fn legend() -> String {
    let mut out = String::from("<ul class=\"legend\" aria-label=\"Legend\">");
    for state in LaneState::ALL {
        let (letter, class, meaning) = state.shown();
        let _ = write!(
            out,
            "<li><svg width=\"22\" height=\"16\" aria-hidden=\"true\"><g class=\"{class}\"><rect x=\"1\" y=\"1\" width=\"20\" \
             height=\"14\" rx=\"2\"/><text x=\"7\" y=\"12\">{letter}</text></g></svg> {meaning}</li>"
        );
    }
    for (class, mark, meaning) in [("fault", "✕", "fault"), ("repair", "↺", "repair")] {
        let _ = write!(
            out,
            "<li><svg width=\"20\" height=\"18\" aria-hidden=\"true\"><g class=\"{class}\"><rect x=\"1\" y=\"0\" width=\"18\" \
             height=\"18\" rx=\"3\"/><text x=\"10\" y=\"13.5\">{mark}</text></g></svg> {meaning}</li>"
        );
    }
    out + "</ul>"
}

fn steps(out: &mut String, run: &Run) {
    out.push_str(
        "<h2>Steps</h2>\n<table class=\"steps\">\n<thead><tr><th scope=\"col\">Step</th><th scope=\"col\">Time</th>\
         <th scope=\"col\">What</th><th scope=\"col\">Result</th></tr></thead>\n",
    );
    for chapter in chapters(run) {
        out.push_str("<tbody>\n");
        heading(out, &chapter);
        chapter.steps.iter().for_each(|step| row(out, run, step));
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n");
}

fn heading(out: &mut String, chapter: &Chapter<'_>) {
    let Some(name) = chapter.steps.first().and_then(|step| step.name.as_ref()) else { return };
    let number = chapter.number;
    let _ = writeln!(
        out,
        "<tr class=\"heading\"><th colspan=\"4\" scope=\"rowgroup\"><span class=\"number\">{number}</span> {}</th></tr>",
        escaped(name)
    );
}

fn row(out: &mut String, run: &Run, step: &PlayedStep) {
    let time = clock(step.began.duration_since(run.began));
    let (kind, word) = match step.kind {
        StepKind::Command => ("command", ""),
        StepKind::Failure => ("fault", "✕ "),
        StepKind::Repair => ("repair", "↺ "),
        StepKind::Time => ("time", ""),
        StepKind::Check => ("check", ""),
    };
    let title = escaped(&step.title);
    let title = if kind == "command" { format!("<code>{title}</code>") } else { format!("{word}{title}") };
    let output: String = step.output.iter().map(|line| format!("{}\n", escaped(line))).collect();
    let output = if output.is_empty() { output } else { format!("<pre>{output}</pre>") };
    let (class, result) = match (&step.failure, step.kind) {
        (Some(_), _) => ("fail", "✗ FAILED"),
        (None, StepKind::Check) => ("pass", "✓ passed"),
        (None, _) => ("done", "done"),
    };
    let failure = step.failure.as_ref().map(|text| format!("<pre class=\"why\">{}</pre>", escaped(text)));
    let _ = writeln!(
        out,
        "<tr class=\"{kind}\"><td>{}</td><td class=\"clock\">{time}</td><td>{title}{output}{}</td><td class=\"{class}\">{result}</td></tr>",
        step.index + 1,
        failure.unwrap_or_default()
    );
}

/// The timeline as text.
fn changes(out: &mut String, run: &Run) {
    out.push_str(
        "<details>\n<summary>All changes, as text</summary>\n<table class=\"changes\">\n<thead><tr><th scope=\"col\">Time</th>\
         <th scope=\"col\">Object</th><th scope=\"col\">What happened</th></tr></thead>\n<tbody>\n",
    );
    for item in run.steps.iter().flat_map(|step| consequences([step])) {
        let time = clock(item.at.duration_since(run.began));
        let kind = item.kind;
        let (names, what) = (escaped(&item.names.join(", ")), escaped(&item.what));
        let _ = writeln!(out, "<tr><td class=\"clock\">{time}</td><td>{kind} {names}</td><td>{what}</td></tr>");
    }
    out.push_str("</tbody>\n</table>\n</details>\n");
}
