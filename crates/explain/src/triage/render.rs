//! The report as text.

use super::{RootCause, Severity, Triage};
use crate::wrap::hanging;

/// The lines of a screen that causes may use; the first and the last line say how many there are.
const LINES: usize = 22;

/// The longest line.
const WIDTH: usize = 100;

const INDENT: &str = "         ";

/// The causes that fit on one screen, with what was reported if all of them fit with it; otherwise a line for each, and one
/// for the action.
pub fn render(triage: &Triage) -> String {
    let full: Vec<String> = triage.causes.iter().map(|cause| entry(cause, &cause.summary)).collect();
    let lines = |text: &String| text.lines().count();
    if full.iter().map(lines).sum::<usize>() <= LINES {
        return verdict(triage) + &full.concat();
    }
    let mut out = verdict(triage);
    let mut used = 0;
    for (shown, cause) in triage.causes.iter().enumerate() {
        let text = compact(cause);
        used += lines(&text);
        if used > LINES {
            let more = triage.causes.len() - shown;
            let causes = if more == 1 { "cause" } else { "causes" };
            out.push_str(&format!("and {more} more {causes}: -o wide\n"));
            break;
        }
        out.push_str(&text);
    }
    out
}

/// A cause without what was reported, unless that fits on its line.
fn compact(cause: &RootCause) -> String {
    let full = entry(cause, &cause.summary);
    let fits = full.lines().count() == 2 && full.lines().next().is_some_and(|line| line.chars().count() <= WIDTH);
    if fits { full } else { entry(cause, &cause.headline) }
}

fn entry(cause: &RootCause, text: &str) -> String {
    let mut out = String::new();
    let first = format!("{:8} {:?} ({}): {text}", cause.severity.as_str(), cause.cause, count(cause.objects.len()));
    hanging(&mut out, "", INDENT, &first);
    out.push_str(&format!("{INDENT}{}\n", cause.action));
    out
}

/// All causes with all objects.
pub fn render_wide(triage: &Triage) -> String {
    let mut out = verdict(triage);
    for cause in &triage.causes {
        out.push('\n');
        hanging(
            &mut out,
            "",
            "  ",
            &format!("{} {:?} {}: {}", cause.severity.as_str(), cause.cause, cause.about, cause.summary),
        );
        out.push_str(&format!("  action: {}\n", cause.action));
        for object in &cause.objects {
            out.push_str(&format!("  - {object}\n"));
        }
    }
    out
}

fn verdict(triage: &Triage) -> String {
    if !triage.stuck {
        return "nothing is stuck\n".into();
    }
    let objects = triage.causes.iter().map(|cause| cause.objects.len()).sum();
    let of = |severity| triage.causes.iter().filter(|cause: &&RootCause| cause.severity == severity).count();
    let critical = of(Severity::Critical);
    let causes =
        if triage.causes.len() == 1 { "1 cause".to_owned() } else { format!("{} causes", triage.causes.len()) };
    let verb = if objects == 1 { "is" } else { "are" };
    format!("{} {verb} stuck for {causes}, {critical} of them critical\n", count(objects))
}

fn count(objects: usize) -> String {
    if objects == 1 { "1 object".into() } else { format!("{objects} objects") }
}
