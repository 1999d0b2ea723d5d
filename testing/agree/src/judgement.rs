//! Whether the simulation agrees with a recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::compare::{Difference, Tolerances, compare};
use crate::recording::{Recording, What};
use crate::replay::replay;

/// What a comparison of a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The name of the run.
    pub name: String,
    /// The situation in words.
    pub situation: String,
    /// The kinds of actions that were done after the snapshot or before.
    pub actions: BTreeSet<String>,
    /// The kinds of workloads.
    pub workloads: BTreeSet<String>,
    /// Whether a volume is attached to a node.
    pub attached: bool,
    /// Whether a node fails.
    pub node_fails: bool,
    /// The differences, the earliest first; at most one for each object.
    pub differences: Vec<String>,
    /// The kind of the first difference.
    pub kind: Option<String>,
    /// The pods of which the simulation wrongly says that they are never ready.
    pub wrong_never: Vec<String>,
}

/// How much later or earlier something may happen: within the periods at which controllers and kubelets look.
fn tolerances(recording: &Recording) -> Tolerances {
    match recording.header.real_timers {
        true => Tolerances { time: 12.0, claims: 16.0, transient: 1.6 },
        false => Tolerances { time: 3.0, claims: 16.0, transient: 1.6 },
    }
}

/// Compares a recording with the simulation.
pub fn judge(recording: &Recording) -> Judgement {
    let (differences, kind, wrong_never) = match replay(recording) {
        Ok(replay) => {
            let tolerances = tolerances(recording);
            // What comes later may have happened after the recording.
            let end = recording.header.length as f64 / 1000.0 - tolerances.time;
            let found = compare(&replay.real, &replay.simulated, tolerances);
            let found: Vec<Difference> = found.into_iter().filter(|difference| difference.at < end).collect();
            let kind = found.first().map(|difference| difference.kind().to_owned());
            let kind = kind.or_else(|| replay.impossible.first().map(|_| "choice".to_owned()));
            let texts = found.iter().map(ToString::to_string).chain(replay.impossible.iter().cloned());
            (texts.collect(), kind, replay.wrong_never)
        }
        Err(error) => (vec![error], Some("error".to_owned()), Vec::new()),
    };
    let header = &recording.header;
    Judgement {
        name: header.name.clone(),
        situation: header.situation.clone(),
        actions: header.actions.iter().cloned().collect(),
        workloads: header.workloads.iter().cloned().collect(),
        attached: header.attached,
        node_fails: header.node_fails,
        differences,
        kind,
        wrong_never,
    }
}

impl Judgement {
    /// Whether there is no difference.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty() && self.wrong_never.is_empty()
    }
}

/// The number of deeds after the snapshot of a recording.
pub fn deeds(recording: &Recording) -> usize {
    recording.moments.iter().filter(|moment| matches!(moment.what, What::Did { .. })).count()
}

/// Counts runs by what occurs in them.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    runs: usize,
    agreed: usize,
    attached: usize,
    node_fails: usize,
    wrong_never: usize,
    by_action: BTreeMap<String, (usize, usize)>,
    by_workload: BTreeMap<String, (usize, usize)>,
    by_difference: BTreeMap<String, usize>,
}

impl Summary {
    /// Counts a run.
    pub fn add(&mut self, judgement: &Judgement) {
        let agrees = usize::from(judgement.agrees());
        self.runs += 1;
        self.agreed += agrees;
        self.attached += usize::from(judgement.attached);
        self.node_fails += usize::from(judgement.node_fails);
        self.wrong_never += usize::from(!judgement.wrong_never.is_empty());
        let count = |counts: &mut BTreeMap<String, (usize, usize)>, name: &String| {
            let entry = counts.entry(name.clone()).or_default();
            *entry = (entry.0 + 1, entry.1 + agrees);
        };
        judgement.actions.iter().for_each(|name| count(&mut self.by_action, name));
        judgement.workloads.iter().for_each(|name| count(&mut self.by_workload, name));
        if let Some(kind) = &judgement.kind {
            *self.by_difference.entry(kind.clone()).or_default() += 1;
        }
    }

    /// The number of runs, and of those that agree.
    pub fn counts(&self) -> (usize, usize) {
        (self.runs, self.agreed)
    }

    /// Whether enough runs agree, in percent, and none says "never" wrongly.
    pub fn is_good(&self, threshold: usize) -> bool {
        self.runs > 0 && self.agreed * 100 >= self.runs * threshold && self.wrong_never == 0
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = |f: &mut std::fmt::Formatter<'_>, title: &str, counts: &BTreeMap<String, (usize, usize)>| {
            writeln!(f, "{title:<26} runs  agree")?;
            counts.iter().try_for_each(|(name, (runs, agreed))| writeln!(f, "{name:<26} {runs:>4} {agreed:>6}"))?;
            writeln!(f)
        };
        table(f, "action", &self.by_action)?;
        table(f, "workload", &self.by_workload)?;
        if !self.by_difference.is_empty() {
            writeln!(f, "first difference           runs")?;
            self.by_difference.iter().try_for_each(|(kind, runs)| writeln!(f, "{kind:<26} {runs:>4}"))?;
            writeln!(f)?;
        }
        writeln!(f, "a node fails in {} runs, a volume is attached in {}", self.node_fails, self.attached)?;
        writeln!(f, "wrong \"never\": {}", self.wrong_never)?;
        write!(f, "agree: {} of {} runs", self.agreed, self.runs)
    }
}
