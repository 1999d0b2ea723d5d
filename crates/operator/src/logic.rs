//! What is run: the loops, as functions, so that a test can run loops of its own.

use serde_json::Value;
use stead_loops::{ObjectKey, Step, Store, Watched, World};

/// Loops, and what they look at.
#[derive(Debug, Clone, Copy)]
pub struct Logic {
    /// The kinds that are watched.
    pub watched: &'static [Watched],
    /// The kinds of which single objects are read by name.
    pub read_by_name: &'static [Watched],
    /// The objects of these kinds that the loop of an object reads.
    pub references: fn(&Value) -> Vec<ObjectKey>,
    /// The kinds that have a loop.
    pub reconciled: &'static [&'static str],
    /// What the loop of an object wants.
    pub step: fn(&World<'_>, &ObjectKey) -> Step,
    /// Whose loops should look again after a change.
    pub concerned: fn(&Store, Option<&Value>, Option<&Value>) -> Vec<ObjectKey>,
}

impl Logic {
    /// Stead's own loops.
    pub const STEAD: Logic = Logic {
        watched: stead_loops::WATCHED,
        read_by_name: stead_loops::READ_BY_NAME,
        references: stead_loops::references,
        reconciled: &stead_loops::RECONCILED,
        step: stead_loops::step,
        concerned: stead_loops::concerned,
    };

    /// A kind that is watched or read by name.
    pub(crate) fn kind(&self, kind: &str) -> Option<&'static Watched> {
        self.watched.iter().chain(self.read_by_name).find(|w| w.kind == kind)
    }

    /// Whether every object of a kind that matters is known without asking for it.
    pub(crate) fn knows_all(&self, kind: &str) -> bool {
        self.kind(kind).is_some_and(|watched| watched.selector.is_empty())
    }

    /// Whether a kind has a loop.
    pub(crate) fn reconciles(&self, kind: &str) -> bool {
        self.reconciled.contains(&kind)
    }
}
