//! Conditions in the format of the OpenStack operators: each step has one, it starts as Unknown, and `Ready` repeats the
//! worst of them.

use jiff::Timestamp;
use serde_json::{Map, Value};
use stead_model::Condition;

/// How bad a condition is that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Error,
    Warning,
    Info,
}

/// The state of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConditionState {
    Met,
    NotMet { reason: &'static str, severity: Severity },
    Unknown { reason: &'static str },
}

#[derive(Debug, Clone)]
struct Decision {
    kind: &'static str,
    state: ConditionState,
    message: String,
    /// Whether `Ready` depends on it. Those that do come first in the status.
    counts: bool,
}

/// The conditions of one object, as far as a step has decided them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    decided: Vec<Decision>,
}

/// Somebody has to act, or something is still in progress.
pub(crate) const REQUESTED: &str = "Requested";
/// Something is wrong.
pub(crate) const ERROR: &str = "Error";

impl Conditions {
    /// The conditions that a loop will decide, each with its message until then.
    pub(crate) fn new(undecided: &[(&'static str, &str)]) -> Conditions {
        let mut conditions = Conditions::default();
        for (kind, message) in undecided {
            conditions.put(kind, ConditionState::Unknown { reason: "Init" }, (*message).to_owned(), true);
        }
        conditions
    }

    /// It is met.
    pub(crate) fn met(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, ConditionState::Met, message.into(), true);
    }

    /// It is not met, because something is missing or in progress.
    pub(crate) fn waiting(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, ConditionState::NotMet { reason: REQUESTED, severity: Severity::Info }, message.into(), true);
    }

    /// It is not met, because something is wrong.
    pub(crate) fn failed(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, ConditionState::NotMet { reason: ERROR, severity: Severity::Warning }, message.into(), true);
    }

    /// A condition that `Ready` does not depend on.
    pub(crate) fn report(&mut self, kind: &'static str, state: ConditionState, message: impl Into<String>) {
        self.put(kind, state, message.into(), false);
    }

    fn put(&mut self, kind: &'static str, state: ConditionState, message: String, counts: bool) {
        self.decided.retain(|c| c.kind != kind);
        self.decided.push(Decision { kind, state, message, counts });
    }

    /// Whether all that count are met.
    pub(crate) fn all_met(&self) -> bool {
        self.decided.iter().filter(|c| c.counts).all(|c| c.state == ConditionState::Met)
    }

    /// The conditions as JSON: `Ready` first, then those that it depends on, by type, then the others, by type. The
    /// transition time of one that did not change is taken from `before`, the conditions in the present status.
    pub(crate) fn into_json(self, ready: bool, before: &[Condition], now: Timestamp) -> Value {
        let mut list = vec![self.ready(ready)];
        let mut decided = self.decided;
        decided.sort_by_key(|c| (!c.counts, c.kind));
        list.extend(decided);
        Value::Array(list.iter().map(|c| c.json(before, now)).collect())
    }

    /// `Ready` repeats the worst condition.
    fn ready(&self, ready: bool) -> Decision {
        let worst = self.decided.iter().filter(|c| c.counts).min_by_key(|c| c.state.rank());
        let (state, message) = match worst {
            Some(worst) if !ready && worst.state != ConditionState::Met => (worst.state.clone(), worst.message.clone()),
            _ if ready => (ConditionState::Met, "Setup complete".to_owned()),
            _ => (ConditionState::Unknown { reason: "Init" }, "Setup started".to_owned()),
        };
        Decision { kind: "Ready", state, message, counts: true }
    }
}

impl ConditionState {
    /// The worst comes first.
    fn rank(&self) -> (u8, Option<Severity>) {
        match self {
            ConditionState::NotMet { severity, .. } => (0, Some(*severity)),
            ConditionState::Unknown { .. } => (1, None),
            ConditionState::Met => (2, None),
        }
    }
}

impl Decision {
    fn json(&self, before: &[Condition], now: Timestamp) -> Value {
        let (status, reason, severity) = match &self.state {
            ConditionState::Met => ("True", "Ready", None),
            ConditionState::NotMet { reason, severity } => ("False", *reason, Some(format!("{severity:?}"))),
            ConditionState::Unknown { reason } => ("Unknown", *reason, None),
        };
        let message = Some(self.message.as_str()).filter(|message| !message.is_empty());
        let is_same = |old: &&Condition| {
            old.r#type == self.kind
                && old.status == status
                && old.reason.as_deref() == Some(reason)
                && old.severity == severity
                && old.message.as_deref() == message
        };
        let since = before.iter().find(is_same).and_then(|old| old.last_transition_time.as_ref());
        let fields = [
            ("type", Some(self.kind.to_owned())),
            ("status", Some(status.to_owned())),
            ("reason", Some(reason.to_owned())),
            ("severity", severity),
            ("message", message.map(str::to_owned)),
            ("lastTransitionTime", Some(seconds(since.map_or(now, |time| time.0)))),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        Value::Object(fields.collect::<Map<_, _>>())
    }
}

/// A time as Kubernetes writes it: in whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The `Ready` condition of an object, for the status of its owner.
pub(crate) struct ReadyCondition {
    pub(crate) state: ConditionState,
    pub(crate) message: String,
}

impl ReadyCondition {
    /// The `Ready` among an object's conditions; none where it has none yet.
    pub(crate) fn of(conditions: &[Condition]) -> Option<ReadyCondition> {
        let ready = conditions.iter().find(|c| c.r#type == "Ready")?;
        let reason = if ready.reason.as_deref() == Some(ERROR) { ERROR } else { REQUESTED };
        let severity = match ready.severity.as_deref() {
            Some("Error") => Severity::Error,
            Some("Warning") => Severity::Warning,
            _ => Severity::Info,
        };
        let state = match ready.status.as_str() {
            "True" => ConditionState::Met,
            "False" => ConditionState::NotMet { reason, severity },
            _ => ConditionState::Unknown { reason: "Init" },
        };
        Some(ReadyCondition { state, message: ready.message.clone().unwrap_or_default() })
    }

    /// The worst comes first.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        self.state.rank()
    }

    /// Repeats it as a condition of the owner.
    pub(crate) fn copy_to(self, conditions: &mut Conditions, kind: &'static str) {
        conditions.put(kind, self.state, self.message, true);
    }
}
