//! The events of a StatefulSet (`recordPodEvent`, `recordClaimEvent`).

use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::settings::Settings;

/// What is done to a pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Create,
    Update,
    Delete,
}

impl Verb {
    /// The word in messages: with a capital since 1.35.
    fn word(self, settings: &Settings) -> &'static str {
        match (self, settings.since(35)) {
            (Verb::Create, true) => "Create",
            (Verb::Create, false) => "create",
            (Verb::Update, true) => "Update",
            (Verb::Update, false) => "update",
            (Verb::Delete, true) => "Delete",
            (Verb::Delete, false) => "delete",
        }
    }

    fn reason(self, failed: bool) -> &'static str {
        match (self, failed) {
            (Verb::Create, false) => "SuccessfulCreate",
            (Verb::Create, true) => "FailedCreate",
            (Verb::Update, false) => "SuccessfulUpdate",
            (Verb::Update, true) => "FailedUpdate",
            (Verb::Delete, false) => "SuccessfulDelete",
            (Verb::Delete, true) => "FailedDelete",
        }
    }
}

pub(super) fn pod_done(settings: &Settings, set: &SimKey, verb: Verb, pod: &str) -> EventNote {
    let message = format!("{} Pod {pod} in StatefulSet {} successful", verb.word(settings), set.name);
    EventNote::normal(set, verb.reason(false), message)
}

pub(super) fn pod_failed(settings: &Settings, set: &SimKey, verb: Verb, pod: &str, error: &str) -> EventNote {
    let message = format!("{} Pod {pod} in StatefulSet {} failed error: {error}", verb.word(settings), set.name);
    EventNote::warning(set, verb.reason(true), message)
}

pub(super) fn claim_created(settings: &Settings, set: &SimKey, claim: &str, pod: &str) -> EventNote {
    let word = Verb::Create.word(settings);
    let message = format!("{word} Claim {claim} Pod {pod} in StatefulSet {} success", set.name);
    EventNote::normal(set, Verb::Create.reason(false), message)
}

pub(super) fn claim_failed(settings: &Settings, set: &SimKey, claim: &str, pod: &str, error: &str) -> EventNote {
    let word = Verb::Create.word(settings);
    let message = format!("{word} Claim {claim} for Pod {pod} in StatefulSet {} failed error: {error}", set.name);
    EventNote::warning(set, Verb::Create.reason(true), message)
}
