//! A run as a story for people: what was done, and what followed from it, with virtual times.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_sim::{Change, Happening};

use crate::play::{PlayedStep, Run};
use crate::rehearsal::Rehearsal;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoryOptions {
    /// How many lines follow a step.
    pub lines_per_step: usize,
    /// The width of a line.
    pub width: usize,
}

impl Default for StoryOptions {
    fn default() -> StoryOptions {
        StoryOptions { lines_per_step: 4, width: 100 }
    }
}

/// Something that followed from a step: what happened, to which objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consequence {
    /// When it happened first.
    pub at: Timestamp,
    /// The kind of the objects, such as `pod`.
    pub kind: &'static str,
    /// What happened, such as `ready on worker-1`.
    pub what: String,
    /// The objects.
    pub names: Vec<String>,
}

/// What happened in a step that a person wants to know, in the order of time. The same thing that happens to several
/// objects within five seconds is one consequence.
pub fn consequences(step: &PlayedStep) -> Vec<Consequence> {
    let mut out: Vec<Consequence> = Vec::new();
    let mut last: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
    for (at, happening) in &step.happenings {
        let Happening::Changed(change) = happening else { continue };
        for (kind, what) in told(change) {
            let name = change.key.name.to_string();
            let name = if kind == "volume" { volume_of(change).unwrap_or(name) } else { name };
            let near = last.get(&(kind, what.clone())).copied();
            let near = near.filter(|i| at.duration_since(out[*i].at) < SignedDuration::from_secs(5));
            match near {
                Some(i) if out[i].names.contains(&name) => {}
                Some(i) => out[i].names.push(name),
                None => {
                    last.insert((kind, what.clone()), out.len());
                    out.push(Consequence { at: *at, kind, what, names: vec![name] });
                }
            }
        }
    }
    out
}

fn volume_of(change: &Change) -> Option<String> {
    let (before, after) = change.of::<VolumeAttachment>();
    after.or(before)?.spec.source.persistent_volume_name.clone()
}

/// What a change means.
fn told(change: &Change) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let (before, after) = change.of::<Node>();
    if let (Some(before), Some(after)) = (before, after) {
        let (was, is) = (node_ready(before), node_ready(after));
        if was != is {
            out.push(("node", if is == "True" { "ready".to_owned() } else { "not ready".to_owned() }));
        }
        let out_of_service = |node: &Node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            taints.iter().any(|taint| taint.key == stead_model::OUT_OF_SERVICE)
        };
        if out_of_service(after) && !out_of_service(before) {
            out.push(("node", "out of service".to_owned()));
        }
    } else if before.is_some() {
        out.push(("node", "deleted".to_owned()));
    }
    let (before, after) = change.of::<Pod>();
    match (before, after) {
        (Some(_), None) => out.push(("pod", "gone".to_owned())),
        (before, Some(after)) => out.extend(told_of_pod(before.map(|pod| &**pod), after).map(|what| ("pod", what))),
        (None, None) => {}
    }
    let (before, after) = change.of::<VolumeAttachment>();
    let attached = |it: &VolumeAttachment| it.status.as_ref().is_some_and(|status| status.attached);
    match (before, after) {
        (before, Some(after)) if attached(after) && !before.is_some_and(|before| attached(before)) => {
            out.push(("volume", format!("attached to {}", after.spec.node_name)));
        }
        (Some(before), None) => out.push(("volume", format!("detached from {}", before.spec.node_name))),
        _ => {}
    }
    out
}

fn node_ready(node: &Node) -> &str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").map_or("", |condition| condition.status.as_str())
}

fn told_of_pod(before: Option<&Pod>, after: &Pod) -> Option<String> {
    let condition = |pod: &Pod, kind: &str| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == kind).cloned()
    };
    let ready = |pod: &Pod| condition(pod, "Ready").is_some_and(|condition| condition.status == "True");
    let node = after.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let was_terminating = before.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    if after.metadata.deletion_timestamp.is_some() && !was_terminating {
        return Some("Terminating".to_owned());
    }
    match (before.is_some_and(ready), ready(after)) {
        (false, true) => return Some(format!("ready on {node}")),
        (true, false) => return Some("not ready".to_owned()),
        _ => {}
    }
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let (was, is) = (before.map(phase).unwrap_or_default(), phase(after));
    if was != is && matches!(is.as_str(), "Failed" | "Succeeded") {
        return Some(is);
    }
    let unscheduled = |pod: &Pod| condition(pod, "PodScheduled").filter(|c| c.status == "False")?.message;
    let (was, is) = (before.and_then(unscheduled), unscheduled(after));
    is.filter(|message| was.as_ref() != Some(message)).map(|message| format!("Pending: {message}"))
}

/// The story of a run.
pub fn render(rehearsal: &Rehearsal, run: &Run, options: StoryOptions) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}{}",
        rehearsal.metadata.name,
        rehearsal.description.as_deref().map(|text| format!(": {}", text.trim())).unwrap_or_default()
    );
    out.push('\n');
    for step in &run.steps {
        let mark = if step.failure.is_some() { "FAILED  " } else { "" };
        line(&mut out, options, run.began, Some(step.began), &format!("{mark}{}", step.title));
        for text in step.output.iter().take(options.lines_per_step) {
            line(&mut out, options, run.began, None, &format!("  {text}"));
        }
        more(&mut out, options, run.began, step.output.len());
        let followed = consequences(step);
        for item in followed.iter().take(options.lines_per_step) {
            let text = format!("  {} {}: {}", item.kind, names(&item.names), item.what);
            line(&mut out, options, run.began, Some(item.at), &text);
        }
        more(&mut out, options, run.began, followed.len());
        for text in step.failure.iter().flat_map(|failure| failure.lines()) {
            line(&mut out, options, run.began, None, &format!("  {text}"));
        }
    }
    out.push('\n');
    match run.failure() {
        None => {
            let _ = writeln!(out, "passed: {} steps, {} of cluster time", run.steps.len(), run.took());
        }
        Some((index, why)) => {
            let first = why.lines().next().unwrap_or_default().to_owned();
            let _ = writeln!(out, "failed in step {} (steps[{index}]): {first}", index + 1);
        }
    }
    out
}

fn more(out: &mut String, options: StoryOptions, began: Timestamp, count: usize) {
    if count > options.lines_per_step {
        line(out, options, began, None, &format!("  … and {} more", count - options.lines_per_step));
    }
}

fn names(names: &[String]) -> String {
    match names {
        [first, second, third, rest @ ..] if rest.len() > 1 => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        all => all.join(", "),
    }
}

/// One line with the time since the beginning, wrapped.
fn line(out: &mut String, options: StoryOptions, began: Timestamp, at: Option<Timestamp>, text: &str) {
    const TIME: usize = 12;
    let time = at.map(|at| clock(at.duration_since(began))).unwrap_or_default();
    let indent = text.len() - text.trim_start().len();
    let mut current = format!("{time:>TIME$}  {}", " ".repeat(indent));
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > options.width {
            let _ = writeln!(out, "{}", current.trim_end());
            current = " ".repeat(TIME + 2 + indent + 2);
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{}", current.trim_end());
}

/// A time since the beginning: `1:02:03`, with days if there are any.
pub(crate) fn clock(since: SignedDuration) -> String {
    let seconds = since.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let time = format!("{hours}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 { time } else { format!("{days}d {time}") }
}
