//! The rules that a decision keeps to.
//!
//! They always hold. Only with the feature `switchable-guards`, which is for tests of this crate, one of them can be
//! left out, to show that something breaks without it.

/// A rule that a decision keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is done on a minority's view.
    Majority,
    /// A peer that holds bricks is not detached.
    Bricks,
    /// State that is the only copy of something is not taken away.
    OnlyCopy,
    /// One repair at a time.
    OneRepair,
    /// A peer that is merely disconnected is waited for.
    Patience,
    /// A healthy peer is not restarted.
    Healthy,
    /// A peer is detached, or told to forget its pool, only after nothing has changed for a while: no report is older than
    /// the last change.
    Settled,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 7] =
        [Rule::Majority, Rule::Bricks, Rule::OnlyCopy, Rule::OneRepair, Rule::Patience, Rule::Healthy, Rule::Settled];
}

/// The rules that hold: all of them, except in a test that leaves one out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    #[cfg(feature = "switchable-guards")]
    without: Option<Rule>,
}

impl Rules {
    /// All rules but one.
    #[cfg(feature = "switchable-guards")]
    pub fn without(rule: Rule) -> Rules {
        Rules { without: Some(rule) }
    }

    /// Whether this rule holds.
    #[cfg(feature = "switchable-guards")]
    pub fn hold(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether this rule holds: it does.
    #[cfg(not(feature = "switchable-guards"))]
    pub(crate) const fn hold(self, _: Rule) -> bool {
        true
    }
}
