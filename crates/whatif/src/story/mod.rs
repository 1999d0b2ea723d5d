//! A run as a story for people: what was done, and what followed from it, with virtual times.
//!
//! The steps under one heading are a chapter. Chapters are shown as completely as there is space, those with faults first.

mod consequences;

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use crate::play::{PlayedStep, Run, StepKind};
use crate::rehearsal::Rehearsal;
pub use consequences::{Consequence, consequences};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoryOptions {
    /// How many lines there may be, if everything that has to be shown fits into them; none for everything.
    pub lines: Option<usize>,
    /// The width of a line.
    pub width: usize,
}

impl Default for StoryOptions {
    fn default() -> StoryOptions {
        StoryOptions { lines: Some(60), width: 100 }
    }
}

/// What is shown of each chapter.
#[derive(Debug, Clone, Copy)]
struct Detail {
    /// How many commands and faults.
    acts: usize,
    /// How many consequences.
    consequences: usize,
    /// How many lines a text may have.
    wrapped: usize,
    /// Whether output, waits and checks are shown.
    everything: bool,
}

/// From the least to the most.
const DETAILS: [Detail; 6] = [
    Detail { acts: 0, consequences: 1, wrapped: 1, everything: false },
    Detail { acts: 1, consequences: 1, wrapped: 1, everything: false },
    Detail { acts: 2, consequences: 3, wrapped: 1, everything: false },
    Detail { acts: 3, consequences: 4, wrapped: 2, everything: false },
    Detail { acts: 4, consequences: 6, wrapped: 2, everything: false },
    Detail { acts: 6, consequences: 8, wrapped: 3, everything: false },
];

const EVERYTHING: Detail = Detail { acts: usize::MAX, consequences: usize::MAX, wrapped: usize::MAX, everything: true };

/// The story of a run.
pub fn render(rehearsal: &Rehearsal, run: &Run, seed: u64, options: StoryOptions) -> String {
    let begin = beginning(rehearsal, options.width);
    let end = format!("\n{}\n", verdict(run, seed));
    // Without headings each step is a chapter of its own.
    let has_names = run.steps.iter().any(|step| step.name.is_some());
    let chapters: Vec<&[PlayedStep]> = match has_names && options.lines.is_some() {
        true => chapters(&run.steps),
        false => run.steps.chunks(1).collect(),
    };
    let told = |steps: &[PlayedStep], detail| Page::of_chapter(run, steps, detail, options.width);
    let Some(limit) = options.lines else {
        return chapters.iter().fold(begin, |text, steps| text + &told(steps, EVERYTHING)) + &end;
    };
    let texts: Vec<Vec<String>> =
        chapters.iter().map(|steps| DETAILS.iter().map(|detail| told(steps, *detail)).collect()).collect();
    let lines = |text: &str| text.lines().count();
    let mut left = limit.saturating_sub(lines(&begin) + lines(&end));
    left = left.saturating_sub(texts.iter().map(|texts| lines(&texts[0])).sum());
    let mut order: Vec<usize> = (0..chapters.len()).collect();
    order.sort_by_key(|chapter| !chapters[*chapter].iter().any(is_fault));
    let mut levels = vec![0; chapters.len()];
    for level in 1..DETAILS.len() {
        for chapter in &order {
            let texts = &texts[*chapter];
            let more = lines(&texts[level]).saturating_sub(lines(&texts[levels[*chapter]]));
            if more <= left {
                left -= more;
                levels[*chapter] = level;
            }
        }
    }
    texts.iter().zip(levels).fold(begin, |text, (texts, level)| text + &texts[level]) + &end
}

fn is_fault(step: &PlayedStep) -> bool {
    matches!(step.kind, StepKind::Failure | StepKind::Repair) || step.failure.is_some()
}

/// The name and the description.
fn beginning(rehearsal: &Rehearsal, width: usize) -> String {
    let mut page = Page { text: String::new(), width, began: Timestamp::UNIX_EPOCH, wrapped: usize::MAX };
    let description = rehearsal.description.as_deref().map(|text| format!(": {}", text.trim())).unwrap_or_default();
    page.wrap("", &format!("{}{description}", rehearsal.metadata.name));
    page.text.push('\n');
    page.text
}

/// The steps under each heading.
fn chapters(steps: &[PlayedStep]) -> Vec<&[PlayedStep]> {
    let mut starts: Vec<usize> = (0..steps.len()).filter(|i| *i == 0 || steps[*i].name.is_some()).collect();
    starts.push(steps.len());
    starts.windows(2).map(|pair| &steps[pair[0]..pair[1]]).collect()
}

/// The last line: whether the run passed.
fn verdict(run: &Run, seed: u64) -> String {
    let checks = run.steps.iter().filter(|step| step.kind == StepKind::Check).count();
    match run.failure() {
        None => format!(
            "passed: {} steps, {checks} of them checks, {} of cluster time (seed {seed})",
            run.steps.len(),
            whole_seconds(run)
        ),
        Some((index, why)) => {
            let first = why.lines().next().unwrap_or_default();
            format!("failed in step {} (steps[{index}], seed {seed}): {first}", index + 1)
        }
    }
}

fn whole_seconds(run: &Run) -> crate::HumanDuration {
    crate::HumanDuration(SignedDuration::from_secs(run.took().0.as_secs()))
}

/// The text so far.
struct Page {
    text: String,
    width: usize,
    began: Timestamp,
    /// How many lines a text may have.
    wrapped: usize,
}

/// The width of the times, and the two spaces after them.
const TIME: usize = 13;

impl Page {
    fn of_chapter(run: &Run, steps: &[PlayedStep], detail: Detail, width: usize) -> String {
        let mut page = Page { text: String::new(), width, began: run.began, wrapped: detail.wrapped };
        page.chapter(steps, detail);
        page.text
    }

    fn chapter(&mut self, steps: &[PlayedStep], detail: Detail) {
        let Some(first) = steps.first() else { return };
        let failed = steps.iter().find_map(|step| step.failure.as_deref());
        let mark = if failed.is_some() { "FAILED: " } else { "" };
        let checks = steps.iter().filter(|step| step.kind == StepKind::Check && step.failure.is_none()).count();
        let passed = match checks {
            _ if detail.everything => String::new(),
            0 => String::new(),
            1 => " (1 check passed)".to_owned(),
            count => format!(" ({count} checks passed)"),
        };
        if let Some(name) = &first.name {
            // A heading is never shortened.
            self.wrapped = usize::MAX;
            self.line(Some(first.began), 0, &format!("{mark}{name}{passed}"));
            self.wrapped = detail.wrapped;
        }
        let acts: Vec<&PlayedStep> = steps.iter().filter(|step| detail.everything || is_act(step)).collect();
        // A step without a heading is its own.
        let indent = usize::from(first.name.is_some()) * 2;
        let shown = if first.name.is_some() { detail.acts } else { usize::MAX };
        for (i, step) in acts.iter().take(shown).enumerate() {
            let mark = if indent == 0 { mark } else { "" };
            let at = (indent == 0).then_some(step.began);
            let more = match acts.len().saturating_sub(shown) {
                more if more > 0 && i + 1 == shown => format!(" … and {more} more"),
                _ => String::new(),
            };
            self.act(at, indent, &format!("{mark}{}", step.title), &more);
            if detail.everything {
                step.output.iter().for_each(|text| self.line(None, indent + 2, text));
            }
        }
        self.consequences(steps, indent + 2, detail);
        self.wrapped = usize::MAX;
        for text in failed.into_iter().flat_map(str::lines) {
            // Tables keep their columns.
            let _ = writeln!(self.text, "{:width$}{text}", "", width = TIME + indent + 2);
        }
        self.wrapped = detail.wrapped;
    }

    /// The consequences that matter most, in the order of time.
    fn consequences(&mut self, steps: &[PlayedStep], indent: usize, detail: Detail) {
        let mut followed: Vec<(usize, Consequence)> = consequences(steps).into_iter().enumerate().collect();
        followed.sort_by_key(|(at, item)| (item.rank, *at));
        followed.truncate(detail.consequences);
        followed.sort_by_key(|(at, _)| *at);
        for (_, item) in &followed {
            self.line(Some(item.at), indent, &sentence(item, detail.everything));
        }
    }

    /// A command or a fault, and how many are left out after it.
    fn act(&mut self, at: Option<Timestamp>, indent: usize, title: &str, more: &str) {
        let space = (self.width - TIME - indent)
            .saturating_mul(self.wrapped)
            .saturating_sub(self.wrapped.saturating_mul(4).saturating_add(more.len()));
        let text = if more.is_empty() || title.chars().count() <= space {
            format!("{title}{more}")
        } else {
            let short: String = title.chars().take(space).collect();
            format!("{}{more}", short.trim_end())
        };
        self.line(at, indent, &text);
    }

    /// One text with the time since the beginning, wrapped.
    fn line(&mut self, at: Option<Timestamp>, indent: usize, text: &str) {
        let time = at.map(|at| clock(at.duration_since(self.began))).unwrap_or_default();
        let prefix = format!("{time:>width$}  {}", " ".repeat(indent), width = TIME - 2);
        self.wrap(&prefix, text);
    }

    fn wrap(&mut self, prefix: &str, text: &str) {
        let mut lines = vec![prefix.to_owned()];
        let mut is_empty = true;
        for word in text.split_whitespace() {
            let line = lines.last().map_or(0, |line| line.chars().count());
            if !is_empty && line + 1 + word.chars().count() > self.width {
                lines.push(" ".repeat(prefix.chars().count() + 2));
                is_empty = true;
            }
            let Some(line) = lines.last_mut() else { return };
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        if lines.len() > self.wrapped {
            lines.truncate(self.wrapped);
            if let Some(line) = lines.last_mut() {
                while line.chars().count() + 2 > self.width {
                    let end = line.trim_end().rfind(' ').unwrap_or_default();
                    line.truncate(end);
                }
                line.push_str(" …");
            }
        }
        for line in lines {
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }
}

/// Whether a step does something to the cluster.
fn is_act(step: &PlayedStep) -> bool {
    matches!(step.kind, StepKind::Command | StepKind::Failure | StepKind::Repair)
}

fn sentence(item: &Consequence, everything: bool) -> String {
    let (kind, count) = (item.kind, item.names.len());
    let kind = if count == 1 { kind.to_owned() } else { format!("{count} {kind}s") };
    let shown = if everything { usize::MAX } else { 3 };
    let mut names = item.names.iter().take(shown).cloned().collect::<Vec<_>>().join(", ");
    if count > shown {
        let _ = write!(names, " and {} more", count - shown);
    }
    // What is said about several objects comes first.
    match count {
        1 => format!("{kind} {names}: {}", item.what),
        _ => format!("{kind} {}: {names}", item.what),
    }
}

/// A time since the beginning: `1:02:03`, with days if there are any.
pub(crate) fn clock(since: SignedDuration) -> String {
    let seconds = since.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let time = format!("{hours}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 { time } else { format!("{days}d {time}") }
}
