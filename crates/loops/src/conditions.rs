//! Conditions in the manner of the OpenStack operators: each step has one, it starts as Unknown, and `Ready` tells the
//! worst of them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::object::{items, text};

/// How bad a condition is that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Error,
    Warning,
    Info,
}

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Met,
    NotMet { reason: &'static str, severity: Severity },
    Unknown { reason: &'static str },
}

#[derive(Debug, Clone)]
struct Condition {
    kind: &'static str,
    standing: Standing,
    message: String,
    /// Whether `Ready` depends on it. What does not is told after what does.
    counts: bool,
}

/// The conditions of one object, as a step finds them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    found: Vec<Condition>,
}

/// Somebody has to act, or something is still on its way.
pub(crate) const REQUESTED: &str = "Requested";
/// Something is wrong.
pub(crate) const ERROR: &str = "Error";

impl Conditions {
    /// The conditions that a loop will decide, each with what it says until then.
    pub(crate) fn new(undecided: &[(&'static str, &str)]) -> Conditions {
        let mut conditions = Conditions::default();
        for (kind, message) in undecided {
            conditions.put(kind, Standing::Unknown { reason: "Init" }, (*message).to_owned(), true);
        }
        conditions
    }

    /// It is met.
    pub(crate) fn met(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, Standing::Met, message.into(), true);
    }

    /// It is not met, because something is missing or on its way.
    pub(crate) fn waiting(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, Standing::NotMet { reason: REQUESTED, severity: Severity::Info }, message.into(), true);
    }

    /// It is not met, because something is wrong.
    pub(crate) fn failed(&mut self, kind: &'static str, message: impl Into<String>) {
        self.put(kind, Standing::NotMet { reason: ERROR, severity: Severity::Warning }, message.into(), true);
    }

    /// Something worth telling that `Ready` does not depend on.
    pub(crate) fn told(&mut self, kind: &'static str, standing: Standing, message: impl Into<String>) {
        self.put(kind, standing, message.into(), false);
    }

    fn put(&mut self, kind: &'static str, standing: Standing, message: String, counts: bool) {
        self.found.retain(|c| c.kind != kind);
        self.found.push(Condition { kind, standing, message, counts });
    }

    /// Whether all that count are met.
    pub(crate) fn all_met(&self) -> bool {
        self.found.iter().filter(|c| c.counts).all(|c| c.standing == Standing::Met)
    }

    /// As they stand in a status: `Ready` first, then by type what it depends on, then by type what else is told. A
    /// time is that of the last change: `before` is the status that was there.
    pub(crate) fn into_json(self, ready: bool, before: &Value, now: Timestamp) -> Value {
        let mut list = vec![self.ready(ready)];
        let mut found = self.found;
        found.sort_by_key(|c| (!c.counts, c.kind));
        list.extend(found);
        Value::Array(list.iter().map(|c| c.json(before, now)).collect())
    }

    /// `Ready` says what the worst condition says.
    fn ready(&self, ready: bool) -> Condition {
        let worst = self.found.iter().filter(|c| c.counts).min_by_key(|c| c.standing.rank());
        let (standing, message) = match worst {
            Some(worst) if !ready && worst.standing != Standing::Met => (worst.standing.clone(), worst.message.clone()),
            _ if ready => (Standing::Met, "Setup complete".to_owned()),
            _ => (Standing::Unknown { reason: "Init" }, "Setup started".to_owned()),
        };
        Condition { kind: "Ready", standing, message, counts: true }
    }
}

impl Standing {
    /// What is worse comes first.
    fn rank(&self) -> (u8, Option<Severity>) {
        match self {
            Standing::NotMet { severity, .. } => (0, Some(*severity)),
            Standing::Unknown { .. } => (1, None),
            Standing::Met => (2, None),
        }
    }
}

impl Condition {
    fn json(&self, before: &Value, now: Timestamp) -> Value {
        let (status, reason, severity) = match &self.standing {
            Standing::Met => ("True", "Ready", None),
            Standing::NotMet { reason, severity } => ("False", *reason, Some(*severity)),
            Standing::Unknown { reason } => ("Unknown", *reason, None),
        };
        let mut condition = Map::new();
        condition.insert("type".into(), self.kind.into());
        condition.insert("status".into(), status.into());
        condition.insert("reason".into(), reason.into());
        if let Some(severity) = severity {
            condition.insert("severity".into(), format!("{severity:?}").into());
        }
        if !self.message.is_empty() {
            condition.insert("message".into(), self.message.clone().into());
        }
        let since = items(before, "/conditions")
            .find(|old| {
                let same = |key: &str| old.get(key) == condition.get(key);
                ["type", "status", "reason", "severity", "message"].iter().all(|key| same(key))
            })
            .map(|old| text(old, "/lastTransitionTime").to_owned());
        condition.insert("lastTransitionTime".into(), since.unwrap_or_else(|| seconds(now)).into());
        Value::Object(condition)
    }
}

/// A time as Kubernetes writes it: in whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What an object's own `Ready` says, or the worst of its conditions: for the one above it.
pub(crate) struct Mirrored {
    /// Whether it is met, how bad it is otherwise; less is worse.
    pub(crate) standing: Standing,
    /// What it says.
    pub(crate) message: String,
}

/// What stands in an object's `Ready`; none for one that says nothing yet.
pub(crate) fn mirror(object: &Value) -> Option<Mirrored> {
    let ready = items(object, "/status/conditions").find(|c| c["type"] == "Ready")?;
    let message = text(ready, "/message").to_owned();
    let reason = if text(ready, "/reason") == ERROR { ERROR } else { REQUESTED };
    let standing = match (text(ready, "/status"), text(ready, "/severity")) {
        ("True", _) => Standing::Met,
        ("False", "Error") => Standing::NotMet { reason, severity: Severity::Error },
        ("False", "Warning") => Standing::NotMet { reason, severity: Severity::Warning },
        ("False", _) => Standing::NotMet { reason, severity: Severity::Info },
        _ => Standing::Unknown { reason: "Init" },
    };
    Some(Mirrored { standing, message })
}

impl Mirrored {
    /// What is worse comes first.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        self.standing.rank()
    }

    /// Says the same under another name.
    pub(crate) fn tell(self, conditions: &mut Conditions, kind: &'static str) {
        conditions.put(kind, self.standing, self.message, true);
    }
}

/// An object's status, to be written.
pub(crate) fn status(object: &Value, status: Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"], "uid": object["metadata"]["uid"]},
        "status": status,
    })
}
