//! What is run: the loops, as functions, so that a test can run loops of its own.

use serde_json::Value;
use stead_loops::{ObjectKey, Step, Store, Watched, World};

/// Loops, and what they look at.
#[derive(Debug, Clone, Copy)]
pub struct Logic {
    /// The kinds that are watched.
    pub watched: &'static [Watched],
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
        reconciled: &stead_loops::RECONCILED,
        step: stead_loops::step,
        concerned: stead_loops::concerned,
    };

    /// How a kind is watched.
    pub(crate) fn kind(&self, kind: &str) -> Option<&'static Watched> {
        self.watched.iter().find(|w| w.kind == kind)
    }

    /// Whether a kind has a loop.
    pub(crate) fn reconciles(&self, kind: &str) -> bool {
        self.reconciled.contains(&kind)
    }
}
