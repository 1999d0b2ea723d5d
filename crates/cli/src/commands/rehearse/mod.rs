//! `stead rehearse`: plays failures and changes in a simulated cluster, and checks what is expected.
//!
//! `source` finds and reads rehearsals, `cluster` reads the cluster in which one begins, `seeds` plays it, `report` prints.

mod cluster;
mod report;
mod seeds;
mod shipped;
mod source;

use stead_whatif::schema;

use crate::args::{Format, RehearseArgs};
use crate::output::{self, Outcome, complain};
use seeds::Played;

pub(crate) use shipped::SHIPPED;

/// The rehearsal that is played if none is named: the first field report.
const FIRST: &str = "glance";

pub(crate) fn run(args: &RehearseArgs) -> anyhow::Result<Outcome> {
    if args.list {
        output::text(&report::list())?;
        return Ok(Outcome::Yes);
    }
    if args.schema {
        output::json(&schema())?;
        return Ok(Outcome::Yes);
    }
    let names = names(args);
    if args.print {
        for name in &names {
            output::text(&source::text(name)?.text)?;
        }
        return Ok(Outcome::Yes);
    }
    let mut sources = Vec::new();
    for name in &names {
        sources.extend(source::read(name)?);
    }
    let is_text = matches!(args.output, Format::Table | Format::Wide);
    let mut played = Vec::new();
    for source in sources {
        let scene = cluster::scene(&source, args)?;
        for warning in &scene.warnings {
            complain("warning", warning);
        }
        let one = seeds::play(source, &scene, args.seed, args.seeds)?;
        if is_text {
            let gap = if played.is_empty() { "" } else { "\n" };
            output::text(&format!("{gap}{}", report::story(&one, args.output)))?;
        }
        played.push(one);
    }
    report::write(&played, args)?;
    if played.len() > 1 && is_text {
        output::text(&report::summary(&played))?;
    }
    let passed = played.iter().all(Played::passed);
    Ok(if passed { Outcome::Yes } else { Outcome::No })
}

fn names(args: &RehearseArgs) -> Vec<String> {
    if args.all {
        return SHIPPED.iter().map(|shipped| shipped.name.to_owned()).collect();
    }
    match args.rehearsals.as_slice() {
        [] => vec![FIRST.to_owned()],
        names => names.to_vec(),
    }
}
