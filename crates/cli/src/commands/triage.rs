//! `stead explain` without an object: everything that is stuck, grouped by root cause.

use std::thread::sleep;
use std::time::Duration;

use anyhow::anyhow;
use stead_explain::SuggestsCommands;
use stead_explain::triage::{self, TriageScope};
use stead_semantics::Selector;

use super::explain::clock;
use crate::args::{ExplainArgs, Format};
use crate::client_at_hand;
use crate::cluster::{self, Scope};
use crate::output::{self, ExitWith, Outcome, complain};

/// Kinds beyond those of placement that can be stuck, or that tell why something is.
/// ConfigMaps are read from dumps only.
const KINDS: [&str; 9] =
    ["Topology", "Deployment", "DaemonSet", "Job", "CronJob", "ResourceQuota", "ConfigMap", "Lease", "Event"];

/// The time between two lists of `--watch`.
const REFRESH: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    loop {
        let outcome = list(args)?;
        if !args.triage.watch {
            return Ok(outcome);
        }
        sleep(REFRESH);
        if args.output == Format::Table || args.output == Format::Wide {
            // Clears the screen, as `watch` does.
            output::text("\x1b[H\x1b[2J")?;
        }
    }
}

fn list(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    if args.field_selector.is_some() {
        let message = "--field-selector needs a kind, such as `stead explain pods --field-selector ...`";
        return Err(ExitWith::Usage(anyhow!(message)).into());
    }
    let selector = args.selector.as_deref().map(Selector::parse).transpose();
    let selector = selector.map_err(|error| ExitWith::Usage(anyhow!("--selector: {error}")))?;
    let mut seen = cluster::read(&args.source, &KINDS, Scope::Everything)?;
    let objects = seen.objects(&args.source.control_plane, [])?;
    let scope = TriageScope {
        namespace: seen.namespace.filter(|_| !args.all_namespaces),
        selector,
        node: args.triage.node.clone(),
        zone: args.triage.zone.clone(),
    };
    let clock = clock(args, &objects, seen.taken);
    let mut found = triage::triage(&objects, &seen.kinds, &clock, &args.triage.thresholds(), &scope);
    found.use_client(&client_at_hand::find(&args.source.connect));
    if let Some(note) = &found.note {
        complain("note", note);
    }
    for warning in objects.warnings() {
        complain("warning", &format!("{warning}: the object is ignored"));
    }
    match args.output {
        Format::Table => output::text(&triage::render(&found))?,
        Format::Wide => output::text(&triage::render_wide(&found))?,
        Format::Json => output::json(&found)?,
        Format::Yaml => output::yaml(&found)?,
    }
    Ok(if found.stuck && !args.triage.exit_zero { Outcome::No } else { Outcome::Yes })
}
