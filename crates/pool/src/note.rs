//! Notes about the pool: lines of the status, and events.

/// A note about the pool or one of its pods. It becomes a line of the status and, once, an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The ordinal of the pod; none if the note is about the whole pool.
    pub ordinal: Option<u32>,
    /// The reason, for programs.
    pub reason: NoteReason,
    /// A sentence for people.
    pub text: String,
    /// The severity.
    pub severity: Severity,
}

impl Note {
    pub(crate) fn of(ordinal: Option<u32>, severity: Severity, reason: NoteReason, text: impl Into<String>) -> Note {
        Note { ordinal, reason, text: text.into(), severity }
    }

    pub(crate) fn normal(ordinal: u32, reason: NoteReason, text: impl Into<String>) -> Note {
        Note::of(Some(ordinal), Severity::Normal, reason, text)
    }

    pub(crate) fn warning(ordinal: u32, reason: NoteReason, text: impl Into<String>) -> Note {
        Note::of(Some(ordinal), Severity::Warning, reason, text)
    }
}

/// The severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing needs attention.
    Normal,
    /// An administrator should look at it.
    Warning,
}

impl Severity {
    /// The type of an event of this severity.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// The reason of a note. The name of the variant is the reason of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteReason {
    /// A brick's disk does not answer.
    BrickNotAnswering,
    /// A peer that was scaled away holds bricks, and stays in the pool.
    BricksKept,
    /// A peer is in the pool with another UUID than the recorded one.
    Changed,
    /// Pods have the same UUID.
    Copied,
    /// A peer was detached.
    Detached,
    /// A detach failed.
    DetachFailed,
    /// A peer is being detached.
    Detaching,
    /// A detach has to wait.
    DetachWaits,
    /// The peers list different members, and there is no record.
    Disagree,
    /// The pool was created.
    Founded,
    /// A peer has joined the pool.
    Joined,
    /// A peer is joining the pool.
    Joining,
    /// A peer has left the pool.
    Left,
    /// No majority of the pool answers.
    NoMajority,
    /// A peer looks for another one at an old address.
    OldAddress,
    /// A peer is not repaired: it has the only copy of something.
    OnlyCopy,
    /// A pod belongs to another pool.
    OtherPool,
    /// A peer was probed.
    Probed,
    /// A probe failed.
    ProbeFailed,
    /// A peer is being probed.
    Probing,
    /// Two peers reject each other, and all others accept both.
    Quarrel,
    /// The record cannot be read.
    RecordUnreadable,
    /// A peer is rejected by others.
    Rejected,
    /// A peer was repaired.
    Repaired,
    /// A repair was given up.
    RepairDropped,
    /// A repair failed.
    RepairFailed,
    /// A peer is being repaired.
    Repairing,
    /// The report of an agent was rejected.
    ReportRejected,
    /// The StatefulSet is scaled to 0.
    ScaledToZero,
    /// The leader leaves the decision to another agent.
    StepsDown,
    /// A peer of the pool is not a pod of the StatefulSet.
    Stranger,
    /// A pool that existed before was recorded.
    TakenOver,
    /// The leader waits for something.
    Waiting,
}

impl std::fmt::Display for NoteReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_printed_as_variant_names() {
        assert_eq!(NoteReason::BrickNotAnswering.to_string(), "BrickNotAnswering");
    }
}
