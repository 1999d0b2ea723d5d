//! What is said in Kubernetes' events: each thing once, not every round.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stead_pool::{Note, Severity};

/// What is remembered of what was said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    notes: BTreeMap<(Option<u32>, &'static str), String>,
}

impl Said {
    /// Those of the notes that are new since the last time. One that has gone may be said again.
    pub(crate) fn new_of<'a>(&mut self, notes: &'a [Note]) -> Vec<&'a Note> {
        let before = std::mem::take(&mut self.notes);
        let mut new = Vec::new();
        for note in notes {
            let key = (note.ordinal, note.reason);
            if before.get(&key) != Some(&note.text) && !self.notes.contains_key(&key) {
                new.push(note);
            }
            self.notes.insert(key, note.text.clone());
        }
        new
    }
}

/// The pod that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About<'a> {
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// Its name.
    pub(crate) pod: &'a str,
    /// Its uid, if there is such a pod.
    pub(crate) uid: Option<&'a str>,
}

/// An event as the API server takes it. `number` makes its name one of its own.
pub(crate) fn event(about: &About<'_>, by: &str, note: &Note, time: &str, number: u128) -> Value {
    let kind = match note.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "namespace": about.namespace, "name": about.pod});
    if let Some(uid) = about.uid {
        object["uid"] = uid.into();
    }
    // The API server takes 1024 characters.
    let message: String = note.text.chars().take(1000).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": about.namespace, "name": format!("{}.{number:x}", about.pod)},
        "involvedObject": object,
        "reason": note.reason,
        "message": message,
        "type": kind,
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": "stead-gluster-agent", "host": by},
        "reportingComponent": "stead-gluster-agent",
        "reportingInstance": by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(ordinal: u32, reason: &'static str, text: &str) -> Note {
        Note { ordinal: Some(ordinal), reason, text: text.into(), severity: Severity::Warning }
    }

    #[test]
    fn each_thing_is_said_once_while_it_lasts() {
        let mut said = Said::default();
        let (a, b, c) = (note(1, "Rejected", "x"), note(2, "Waiting", "y"), note(2, "Waiting", "z"));
        for (notes, new) in [
            (vec![a.clone(), b.clone()], vec!["x", "y"]),
            (vec![a.clone(), b.clone()], vec![]),
            (vec![a.clone(), c.clone()], vec!["z"]),
            (vec![c.clone()], vec![]),
            (vec![a.clone(), c.clone()], vec!["x"]),
        ] {
            let found: Vec<&str> = said.new_of(&notes).iter().map(|n| n.text.as_str()).collect();
            assert_eq!(found, new, "{notes:?}");
        }
    }
}
