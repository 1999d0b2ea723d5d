//! Decides what the pool needs next.

use std::collections::BTreeMap;

use crate::{HostName, Note, NoteReason, PeerId, Record, Report, Severity, Wanted};

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

/// The input of a decision.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The desired pods.
    pub wanted: &'a Wanted,
    /// The record.
    pub record: &'a Record,
    /// The reports of the pods that answered, by ordinal, including the decider.
    pub reports: &'a BTreeMap<u32, Report>,
    /// The pods in Kubernetes, by ordinal, with their UIDs, including Terminating ones.
    pub pods: &'a BTreeMap<u32, String>,
    /// The pod whose agent decides: its glusterd executes the commands.
    pub decider: u32,
    /// The time in seconds.
    pub now: u64,
}

/// The result of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The new record, which is written before anything is executed. `None` if it does not change.
    pub record: Option<Record>,
    /// The command that the decider's glusterd has to execute.
    pub act: Option<Act>,
    /// Whether another agent should lead: the decider's glusterd is not a member of the pool.
    pub step_down: bool,
    /// Notes for people.
    pub notes: Vec<Note>,
}

/// A command for glusterd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// `gluster peer probe HOST`.
    Probe {
        /// The pod.
        ordinal: u32,
        /// Its name.
        host: HostName,
        /// The UUID that it was decided for: not executed if the host has another UUID now.
        uuid: PeerId,
    },
    /// `gluster peer detach HOST`, never by force.
    Detach {
        /// The pod.
        ordinal: u32,
        /// The name by which the decider knows it.
        host: HostName,
        /// The UUID that it was decided for: not executed if the host has another UUID now.
        uuid: PeerId,
    },
}

/// Decides what the pool needs next.
pub fn decide(view: &View<'_>) -> Decision {
    decide_by(view, Rules::default())
}

/// Decides with only these rules.
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
    // An agent that steps down writes nothing: changes of the record are written first.
    decision.step_down &= decision.record.is_none();
    decision
}

/// Decides for a pool that has a record: updates the record, then does the most urgent thing.
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

    // The record has changed: the following steps use the new one.
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

/// Notes bricks that do not answer: the agents cannot fix a hung disk, but somebody should know.
fn note_stuck_bricks(view: &View<'_>, notes: &mut Vec<Note>) {
    for report in view.reports.values().filter(|report| !report.stuck_bricks.is_empty()) {
        let (pod, bricks) = (view.wanted.pod(report.ordinal), report.stuck_bricks.join(", "));
        let text = format!("{pod}: brick {bricks} does not answer; its disk may hang");
        notes.push(Note::warning(report.ordinal, NoteReason::BrickNotAnswering, text));
    }
}
