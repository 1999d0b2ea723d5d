//! The report as text.

use super::{RootCause, Severity, Triage};
use crate::wrap::hanging;

/// How many causes fit on a screen of 24 lines, with two lines each.
const ON_SCREEN: usize = 10;

/// The longest line.
const WIDTH: usize = 100;

/// The causes that fit on one screen: one line for each, and one for the action.
pub fn render(triage: &Triage) -> String {
    let mut out = verdict(triage);
    for cause in triage.causes.iter().take(ON_SCREEN) {
        let stuck = count(cause.objects.len());
        out.push_str(&fitted(&format!("{:8} {:?} ({stuck}): {}", cause.severity.as_str(), cause.cause, cause.summary)));
        out.push_str(&format!("         {}\n", cause.action));
    }
    if triage.causes.len() > ON_SCREEN {
        out.push_str(&format!("… and {} more causes; use -o wide\n", triage.causes.len() - ON_SCREEN));
    }
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

/// A line that is cut at the width of the screen.
fn fitted(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return format!("{line}\n");
    }
    let cut: String = line.chars().take(WIDTH - 1).collect();
    format!("{cut}…\n")
}
