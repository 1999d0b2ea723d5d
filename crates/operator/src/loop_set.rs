//! The loops to run, as functions, so that a test can run loops of its own.

use stead_loops::{LoopStep, ObjectKey, Store, Watched, World};
use stead_model::ObjectRef;

/// Loops, and the kinds that they read.
#[derive(Debug, Clone, Copy)]
pub struct LoopSet {
    /// The kinds that are watched.
    pub watched: &'static [Watched],
    /// The kinds of which single objects are read by name.
    pub read_by_name: &'static [Watched],
    /// The objects of these kinds that the loop of an object reads.
    pub references: fn(ObjectRef<'_>) -> Vec<ObjectKey>,
    /// The kinds that have a loop.
    pub reconciled: &'static [&'static str],
    /// The step of the loop of an object.
    pub step: fn(&World<'_>, &ObjectKey) -> LoopStep,
    /// The objects whose loops have to run after a change of an object: before, after.
    pub affected: fn(&Store, Option<ObjectRef<'_>>, Option<ObjectRef<'_>>) -> Vec<ObjectKey>,
}

impl LoopSet {
    /// Stead's own loops.
    pub const STEAD: LoopSet = LoopSet {
        watched: stead_loops::WATCHED,
        read_by_name: stead_loops::READ_BY_NAME,
        references: stead_loops::references,
        reconciled: &stead_loops::RECONCILED,
        step: stead_loops::step,
        affected: stead_loops::affected,
    };

    /// A kind that is watched or read by name.
    pub(crate) fn kind(&self, kind: &str) -> Option<&'static Watched> {
        self.watched.iter().chain(self.read_by_name).find(|w| w.kind.kind == kind)
    }

    /// Whether the index has every object of a kind that a loop may write: the kind is watched without a selector, or its
    /// objects are read by name.
    pub(crate) fn knows_all(&self, kind: &str) -> bool {
        self.kind(kind).is_some_and(|watched| watched.selector.is_empty())
    }

    /// Whether a kind has a loop.
    pub(crate) fn reconciles(&self, kind: &str) -> bool {
        self.reconciled.contains(&kind)
    }
}
