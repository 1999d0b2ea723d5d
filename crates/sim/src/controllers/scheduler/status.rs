//! The status of pods that the scheduler writes, and its events.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as RawPod, PodCondition};

use crate::event_log::EventNote;
use crate::object::{SimKey, SimObject};
use crate::pods::{reported, status_mut};
use crate::settings::Settings;
use crate::step::Write;

/// The longest text of an event (`NoteLengthLimit`).
const NOTE_LIMIT: usize = 1024;

/// What happens to the nominated node of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nomination<'a> {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Clear,
    /// It is this one.
    Set(&'a str),
}

/// The write that sets a condition and the nominated node of a pod; none if both are so already (`updatePod` and
/// `PatchPodStatus`). The text of a condition counts, not the generation that it is about.
pub(super) fn patch(
    pod: &Arc<RawPod>,
    condition: Option<PodCondition>,
    nomination: Nomination<'_>,
    now: Timestamp,
) -> Option<Write> {
    let mut patched = RawPod::clone(pod);
    let status = status_mut(&mut patched);
    let nominated = status.nominated_node_name.as_deref().filter(|name| !name.is_empty());
    let wanted = match nomination {
        Nomination::Keep => nominated,
        Nomination::Clear => None,
        Nomination::Set(node) => Some(node),
    };
    let mut changed = wanted != nominated;
    status.nominated_node_name = wanted.map(ToOwned::to_owned);
    if let Some(condition) = condition {
        changed |= set_condition(status.conditions.get_or_insert_default(), condition, now);
    }
    // A patch never conflicts with another version.
    patched.metadata.resource_version = None;
    changed.then(|| Write::Status(SimObject::from(patched)))
}

/// Sets a condition, and gives whether it changed (`UpdatePodCondition`).
fn set_condition(conditions: &mut Vec<PodCondition>, mut new: PodCondition, now: Timestamp) -> bool {
    new.last_transition_time = reported(now);
    let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    let changed = old.status != new.status
        || old.reason.as_deref().unwrap_or_default() != new.reason.as_deref().unwrap_or_default()
        || old.message.as_deref().unwrap_or_default() != new.message.as_deref().unwrap_or_default()
        || old.last_transition_time != new.last_transition_time;
    *old = new;
    changed
}

/// A condition that the scheduler sets.
pub(super) fn condition(
    pod: &RawPod,
    settings: &Settings,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        // PodObservedGenerationTracking.
        observed_generation: pod.metadata.generation.filter(|_| settings.since(34)),
        ..PodCondition::default()
    }
}

/// The event of a failed attempt.
pub(super) fn failed_scheduling(key: &SimKey, version: Option<&str>, message: &str) -> Write {
    Write::Event(EventNote::warning(key, "FailedScheduling", shortened(message)).of_version(version))
}

/// A message as long as that of an event can be (`truncateMessage`).
fn shortened(message: &str) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= NOTE_LIMIT {
        return message.to_owned();
    }
    let end = (0..=NOTE_LIMIT - SUFFIX.len()).rfind(|at| message.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{SUFFIX}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unchanged_text_is_not_written_again() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let settings = Settings::default();
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "generation": 1, "resourceVersion": "5" } });
        let pod: RawPod = serde_json::from_value(pod).expect("a pod");
        let rejected = |pod: &RawPod, text: &str| condition(pod, &settings, "PodScheduled", "False", "Unschedulable", text);
        let write = |pod: &RawPod, text: &str, nomination, second| {
            let write = patch(&Arc::new(pod.clone()), Some(rejected(pod, text)), nomination, at(second))?;
            let Write::Status(SimObject::Pod(pod)) = write else { panic!("a status") };
            Some(RawPod::clone(&pod))
        };
        let first = write(&pod, "a", Nomination::Clear, 10).expect("a new condition");
        let conditions = first.status.clone().and_then(|status| status.conditions).expect("conditions");
        assert_eq!((conditions[0].last_transition_time.clone(), conditions[0].observed_generation), (reported(at(10)), Some(1)));
        let mut newer = first.clone();
        newer.metadata.generation = Some(2);
        assert_eq!(write(&newer, "a", Nomination::Keep, 20), None);
        let nominated = write(&newer, "a", Nomination::Set("n"), 20).expect("a nominated node");
        assert_eq!(nominated.status.and_then(|status| status.nominated_node_name).as_deref(), Some("n"));
        let changed = write(&first, "b", Nomination::Keep, 20).expect("another text");
        let conditions = changed.status.and_then(|status| status.conditions).expect("conditions");
        // The time is that of the first failure.
        assert_eq!((conditions[0].message.as_deref(), conditions[0].last_transition_time.clone()), (Some("b"), reported(at(10))));
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(shortened(&"x".repeat(1024)).len(), 1024);
        let cut = shortened(&"x".repeat(1025));
        assert!(cut.len() == 1024 && cut.ends_with("x ..."), "{cut}");
        assert!(shortened(&"é".repeat(600)).len() <= 1024);
    }
}
