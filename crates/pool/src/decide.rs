//! Decides what the pool needs next.

use std::collections::BTreeMap;

use crate::{HostName, Note, NoteReason, PeerId, PoolSpec, Record, Report, Severity};

mod detach;
mod host_names;
mod membership;
mod pool_view;
mod probe;
mod repair;
mod repair_order;
mod rules;

use pool_view::PoolView;
pub use repair_order::{loses_nothing, still_needed};
pub use rules::{Rule, Rules};

/// The input of a decision.
#[derive(Debug, Clone)]
pub struct DecisionInput<'a> {
    /// The desired pods.
    pub wanted: &'a PoolSpec,
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
    pub act: Option<PeerCommand>,
    /// Whether another agent should lead: the decider's glusterd is not a member of the pool.
    pub step_down: bool,
    /// Notes for users.
    pub notes: Vec<Note>,
}

/// A command for glusterd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCommand {
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
pub fn decide(view: &DecisionInput<'_>) -> Decision {
    decide_by(view, Rules::default())
}

/// Decides with only these rules.
#[cfg(feature = "switchable-guards")]
pub fn decide_under(view: &DecisionInput<'_>, rules: Rules) -> Decision {
    decide_by(view, rules)
}

fn decide_by(view: &DecisionInput<'_>, rules: Rules) -> Decision {
    let mut decision = Decision::default();
    let mut record = view.record.clone();
    if record.joined().next().is_none() {
        membership::initialize(view, &mut record, &mut decision);
    }
    if record.joined().next().is_some() && !decision.step_down {
        next(view, rules, &mut record, &mut decision);
    }
    decision.record = (record != *view.record).then_some(record);
    // An agent writes pending changes of the record before it steps down.
    decision.step_down &= decision.record.is_none();
    decision
}

/// Decides for a pool that has a record: updates the record, then does the most urgent thing.
fn next(view: &DecisionInput<'_>, rules: Rules, record: &mut Record, decision: &mut Decision) {
    let before = record.clone();
    let pool = PoolView::new(view, rules, &before);
    pool.note_copies(&mut decision.notes);
    note_stuck_bricks(view, &mut decision.notes);
    if !pool.decider_belongs() {
        decision.step_down = true;
        decision.notes.push(pool.why_not_the_decider());
        return;
    }
    repair_order::drop_if_gone(view, record, decision);
    if !pool.majority_answers() {
        decision.notes.push(pool.why_no_majority());
        return;
    }
    membership::update(&pool, record, decision);

    // The record has changed: the following steps use the new one.
    let current = record.clone();
    let pool = PoolView::new(view, rules, &current);
    repair_order::follow(&pool, record, decision);
    if record.order.is_some() && rules.hold(Rule::OneRepair) {
        return;
    }
    repair::order_repairs(&pool, record, decision);
    if record.order.is_some() && rules.hold(Rule::OneRepair) {
        return;
    }
    detach::detach(&pool, decision);
    probe::probe_missing(&pool, record, decision);
    host_names::correct(&pool, record, decision);
    if decision.act.is_none() && record.order.is_none() {
        host_names::probe_by_name(&pool, decision);
    }
}

/// Adds a warning for bricks that do not answer: the agents cannot fix a hung disk.
fn note_stuck_bricks(view: &DecisionInput<'_>, notes: &mut Vec<Note>) {
    for report in view.reports.values().filter(|report| !report.stuck_bricks.is_empty()) {
        let (pod, bricks) = (view.wanted.pod(report.ordinal), report.stuck_bricks.join(", "));
        let text = format!("{pod}: brick {bricks} does not answer; its disk may hang");
        notes.push(Note::warning(report.ordinal, NoteReason::BrickNotAnswering, text));
    }
}
