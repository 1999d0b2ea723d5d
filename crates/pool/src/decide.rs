//! What the pool needs next.

use std::collections::BTreeMap;

use crate::{HostName, PeerId, Record, Report, Wanted};

mod belongs;
mod left;
mod missing;
mod naming;
mod order;
mod rejected;
mod rules;
mod sight;

pub use order::{loses_nothing, still_needed};
pub use rules::{Rule, Rules};
use sight::Sight;

/// All that a decision is made from.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// What is wanted.
    pub wanted: &'a Wanted,
    /// What is recorded.
    pub record: &'a Record,
    /// Those that answered, by ordinal; the one who decides among them.
    pub reports: &'a BTreeMap<u32, Report>,
    /// The pods that Kubernetes has, by ordinal, with their uids; also those that are about to end.
    pub pods: &'a BTreeMap<u32, String>,
    /// Who decides: acts are done by this one's glusterd.
    pub decider: u32,
    /// Seconds of a clock.
    pub now: u64,
}

/// What to do next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The record as it should be; it is written before anything is done. `None` if it stays.
    pub record: Option<Record>,
    /// What the decider's own glusterd is to do: one thing.
    pub act: Option<Act>,
    /// Whether another one should decide: this one's glusterd is not of the pool.
    pub step_down: bool,
    /// What is to be said of the pool, for people.
    pub notes: Vec<Note>,
}

/// What a glusterd is told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// `gluster peer probe HOST`.
    Probe {
        /// The pod.
        ordinal: u32,
        /// Its name.
        host: HostName,
        /// Whom it was decided for: not done if the host has another identity now.
        uuid: PeerId,
    },
    /// `gluster peer detach HOST`, never by force.
    Detach {
        /// The pod.
        ordinal: u32,
        /// The name by which the decider knows it.
        host: HostName,
        /// Whom it was decided for: not done if the host has another identity now.
        uuid: PeerId,
    },
}

/// Something to be said, which becomes a line of the status and, once, an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whose pod; none if it is about the whole pool.
    pub ordinal: Option<u32>,
    /// A word for machines: `Joined`, `Rejected`, `Waiting`, `BricksKept`, …
    pub reason: &'static str,
    /// A sentence for people.
    pub text: String,
    /// Whether it is trouble.
    pub severity: Severity,
}

/// Whether a note is trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// As the type of an event.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

impl Note {
    fn of(ordinal: Option<u32>, severity: Severity, reason: &'static str, text: impl Into<String>) -> Note {
        Note { ordinal, reason, text: text.into(), severity }
    }

    fn normal(ordinal: u32, reason: &'static str, text: impl Into<String>) -> Note {
        Note::of(Some(ordinal), Severity::Normal, reason, text)
    }

    fn warning(ordinal: u32, reason: &'static str, text: impl Into<String>) -> Note {
        Note::of(Some(ordinal), Severity::Warning, reason, text)
    }
}

/// What the pool needs next.
pub fn decide(view: &View<'_>) -> Decision {
    decide_by(view, Rules::default())
}

/// What the pool would need next if these rules were all.
#[cfg(feature = "switchable-guards")]
pub fn decide_under(view: &View<'_>, rules: Rules) -> Decision {
    decide_by(view, rules)
}

fn decide_by(view: &View<'_>, rules: Rules) -> Decision {
    let mut decision = Decision::default();
    let mut record = view.record.clone();
    if record.joined().next().is_none() {
        belongs::begin(view, &mut record, &mut decision);
    }
    if record.joined().next().is_some() && !decision.step_down {
        next(view, rules, &mut record, &mut decision);
    }
    decision.record = (record != *view.record).then_some(record);
    // Who steps down writes nothing: what is to be recorded is recorded first.
    decision.step_down &= decision.record.is_none();
    decision
}

/// What a pool that is recorded needs next: the record is brought up to date, then one thing is done, the most urgent.
fn next(view: &View<'_>, rules: Rules, record: &mut Record, decision: &mut Decision) {
    let before = record.clone();
    let sight = Sight::new(view, rules, &before);
    sight.note_copies(&mut decision.notes);
    note_stuck_bricks(view, &mut decision.notes);
    if !sight.decider_belongs() {
        decision.step_down = true;
        decision.notes.push(sight.why_not_the_decider());
        return;
    }
    order::drop_if_gone(view, record, decision);
    if !sight.majority_answers() {
        decision.notes.push(sight.why_no_majority());
        return;
    }
    belongs::keep_up(&sight, record, decision);

    // The record has changed: what follows looks with it.
    let current = record.clone();
    let sight = Sight::new(view, rules, &current);
    order::follow(&sight, record, decision);
    if record.order.is_some() && rules.hold(Rule::OneRepair) {
        return;
    }
    rejected::cure(&sight, record, decision);
    if record.order.is_some() && rules.hold(Rule::OneRepair) {
        return;
    }
    left::detach(&sight, decision);
    missing::probe(&sight, record, decision);
    naming::correct(&sight, record, decision);
    if decision.act.is_none() && record.order.is_none() {
        naming::name(&sight, decision);
    }
}

/// Says which bricks do not answer: nothing can be done about a disk that hangs, but somebody should know.
fn note_stuck_bricks(view: &View<'_>, notes: &mut Vec<Note>) {
    for report in view.reports.values().filter(|report| !report.stuck_bricks.is_empty()) {
        let (pod, bricks) = (view.wanted.pod(report.ordinal), report.stuck_bricks.join(", "));
        let text = format!("{pod}: brick {bricks} does not answer; its disk may hang");
        notes.push(Note::warning(report.ordinal, "BrickNotAnswering", text));
    }
}
