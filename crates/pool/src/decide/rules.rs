//! The rules of decisions.
//!
//! All of them hold, except in tests of this crate: with the feature `switchable-guards` one of them can be disabled,
//! to show that an invariant breaks without it.

/// A rule of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is done without a majority.
    Majority,
    /// A peer that holds bricks is not detached.
    Bricks,
    /// State that is the only copy of something is not removed.
    OnlyCopy,
    /// One repair at a time.
    OneRepair,
    /// A peer that is only disconnected is waited for.
    Patience,
    /// A healthy peer is not restarted.
    Healthy,
    /// A peer is detached, or told to forget its pool, only after nothing has changed for a while: no report is older
    /// than the last change.
    Settled,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 7] =
        [Rule::Majority, Rule::Bricks, Rule::OnlyCopy, Rule::OneRepair, Rule::Patience, Rule::Healthy, Rule::Settled];
}

/// The active rules: all of them, except in a test that disables one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    #[cfg(feature = "switchable-guards")]
    without: Option<Rule>,
}

impl Rules {
    /// All rules except one.
    #[cfg(feature = "switchable-guards")]
    pub fn without(rule: Rule) -> Rules {
        Rules { without: Some(rule) }
    }

    /// Whether this rule is active.
    #[cfg(feature = "switchable-guards")]
    pub fn hold(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether this rule is active: always.
    #[cfg(not(feature = "switchable-guards"))]
    pub(crate) const fn hold(self, _: Rule) -> bool {
        true
    }
}
