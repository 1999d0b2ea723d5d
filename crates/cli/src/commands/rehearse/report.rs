//! How rehearsals are reported: as a story, as JSON or YAML, as JUnit, and as a page.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use stead_whatif::{EXAMPLES, PageRun, RunReport, StoryOptions, junit, page, render};

use super::seeds::{ManySeeds, Played};
use super::shipped::SHIPPED;
use crate::args::{Format, RehearseArgs};
use crate::output;

/// The story of a rehearsal, and what was found with many seeds.
pub(super) fn story(played: &Played, format: Format) -> String {
    let options = match format {
        Format::Wide => StoryOptions { lines: None, ..StoryOptions::default() },
        _ => StoryOptions::default(),
    };
    let told = || render(&played.source.rehearsal, &played.run, played.seed, options);
    let Some(many) = &played.many else { return told() };
    let name = &played.source.rehearsal.metadata.name;
    if many.failed.is_empty() {
        return format!("{name}: passed with all {} seeds ({})\n", many.count, range(many));
    }
    let argument = &played.source.argument;
    format!(
        "{}\n{name}: failed with {} of {} seeds ({}); above is the shortest run that fails\nrepeat it with: stead rehearse {argument} --seed {}\n",
        told(),
        many.failed.len(),
        many.count,
        range(many),
        played.seed
    )
}

fn range(many: &ManySeeds) -> String {
    format!("{} to {}", many.first, many.first.wrapping_add(many.count - 1))
}

/// One line for each of several rehearsals.
pub(super) fn summary(played: &[Played]) -> String {
    let failed = played.iter().filter(|one| !one.passed());
    let names: Vec<&str> = failed.map(|one| one.source.rehearsal.metadata.name.as_str()).collect();
    match names.as_slice() {
        [] => format!("\nall {} rehearsals passed\n", played.len()),
        names => format!("\n{} of {} rehearsals failed: {}\n", names.len(), played.len(), names.join(", ")),
    }
}

/// What programs read.
#[derive(Serialize)]
struct Reports<'a> {
    passed: bool,
    rehearsals: Vec<Report<'a>>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    run: RunReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<SeedsReport<'a>>,
}

#[derive(Serialize)]
struct SeedsReport<'a> {
    first: u64,
    count: u64,
    failed: &'a [u64],
}

impl<'a> Report<'a> {
    fn new(played: &'a Played) -> Report<'a> {
        let seeds = played.many.as_ref();
        Report {
            run: RunReport::new(&played.source.rehearsal, &played.run, played.seed),
            seeds: seeds.map(|many| SeedsReport { first: many.first, count: many.count, failed: &many.failed }),
        }
    }
}

/// Writes everything but the story.
pub(super) fn write(played: &[Played], args: &RehearseArgs) -> anyhow::Result<()> {
    let reports =
        || Reports { passed: played.iter().all(Played::passed), rehearsals: played.iter().map(Report::new).collect() };
    match args.output {
        Format::Json => output::json(&reports())?,
        Format::Yaml => output::yaml(&reports())?,
        Format::Table | Format::Wide => {}
    }
    if let Some(path) = &args.junit {
        let runs: Vec<RunReport> = reports().rehearsals.into_iter().map(|report| report.run).collect();
        write_file(path, &junit(&runs))?;
    }
    if let Some(path) = &args.html {
        fn run(one: &Played) -> PageRun<'_> {
            PageRun { rehearsal: &one.source.rehearsal, run: &one.run, seed: one.seed }
        }
        write_file(path, &page(&played.iter().map(run).collect::<Vec<_>>()))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The shipped rehearsals and the example clusters.
pub(super) fn list() -> String {
    let names = SHIPPED.iter().map(|shipped| shipped.name).chain(EXAMPLES.iter().map(|example| example.name));
    let width = names.map(str::len).max().unwrap_or_default();
    let mut out = String::from("Rehearsals (stead rehearse NAME):\n");
    for shipped in SHIPPED {
        let _ = writeln!(out, "  {:width$}  {}", shipped.name, shipped.about);
    }
    out.push_str("\nExample clusters (cluster: {example: NAME}):\n");
    for example in EXAMPLES {
        let _ = writeln!(out, "  {:width$}  {}", example.name, example.about);
    }
    out
}
