//! What a candidate does with the Lease.
//!
//! The clocks of two machines are never compared. A candidate takes the Lease over if it has seen no change of it for the
//! duration of the Lease, by its own clock. A leader stops writing before that time has passed since it started its last
//! renewal.

use std::time::Duration;

use crate::leadership::Term;

/// The intervals of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long a Lease is valid after a renewal.
    pub duration: Duration,
    /// How long after a renewal a leader starts writes; the rest is for writes in progress.
    pub work: Duration,
    /// How often a leader renews.
    pub renew: Duration,
    /// How often a candidate reads the Lease, and how soon a leader retries a failed renewal.
    pub retry: Duration,
}

impl LeaseTiming {
    /// A Lease of 15 seconds, read every second.
    pub const DEFAULT: LeaseTiming = LeaseTiming {
        duration: Duration::from_secs(15),
        work: Duration::from_secs(10),
        renew: Duration::from_secs(5),
        retry: Duration::from_secs(1),
    };
}

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseState {
    /// The holder; none if it was released.
    pub holder: Option<String>,
    /// How long it is valid after a renewal.
    pub duration: Duration,
    /// Its resourceVersion.
    pub revision: String,
}

/// What to do with the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Create it: there is none.
    Create,
    /// Take it over: it has no holder, or its holder has not renewed it in time.
    Acquire,
    /// Renew it: this process is the holder.
    Renew,
    /// Read it again later.
    Wait,
}

/// A process that takes part in an election.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    timing: LeaseTiming,
    /// The last revision that was seen, and when it was first seen.
    observed: Option<(String, Duration)>,
    /// When the last successful renewal was started.
    renewed: Option<Duration>,
}

impl Candidate {
    /// A candidate with an identity that no other process has.
    pub fn new(identity: String, timing: LeaseTiming) -> Candidate {
        Candidate { identity, timing, observed: None, renewed: None }
    }

    /// The candidate's identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Its intervals.
    pub fn timing(&self) -> LeaseTiming {
        self.timing
    }

    /// What to do with the Lease as it was just read.
    pub fn decide(&mut self, now: Duration, lease: Option<&LeaseState>) -> LeaseAction {
        let Some(lease) = lease else {
            self.renewed = None;
            return LeaseAction::Create;
        };
        if lease.holder.as_ref() == Some(&self.identity) {
            return LeaseAction::Renew;
        }
        self.renewed = None;
        let since = match &self.observed {
            Some((revision, since)) if *revision == lease.revision => *since,
            _ => {
                self.observed = Some((lease.revision.clone(), now));
                now
            }
        };
        let expired = now.saturating_sub(since) >= lease.duration;
        if lease.holder.is_none() || expired { LeaseAction::Acquire } else { LeaseAction::Wait }
    }

    /// The Lease was created, acquired or renewed with a request that was started at this time.
    pub fn holds(&mut self, started: Duration) {
        self.renewed = Some(started);
    }

    /// The Lease was released.
    pub fn released(&mut self) {
        self.renewed = None;
    }

    /// How long this candidate is the leader; none if it is not.
    pub fn term(&self, now: Duration) -> Option<Term> {
        let renewed = self.renewed?;
        let begin_until = renewed + self.timing.work;
        (now < begin_until).then(|| Term::Lease { begin_until, end: renewed + self.timing.duration })
    }

    /// The time until the next action.
    pub fn pause(&self, now: Duration) -> Duration {
        match self.renewed {
            Some(renewed) if now < renewed + self.timing.renew => renewed + self.timing.renew - now,
            _ => self.timing.retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(identity: &str) -> Candidate {
        Candidate::new(identity.into(), LeaseTiming::DEFAULT)
    }

    fn held(holder: &str, revision: u64) -> LeaseState {
        let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        LeaseState { holder, duration: LeaseTiming::DEFAULT.duration, revision: revision.to_string() }
    }

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn an_expired_lease_is_acquired() {
        let mut b = candidate("b");
        for (now, lease, action) in [
            (0, None, LeaseAction::Create),
            (1, Some(held("a", 1)), LeaseAction::Wait),
            (14, Some(held("a", 1)), LeaseAction::Wait),
            (15, Some(held("a", 2)), LeaseAction::Wait),
            (29, Some(held("a", 2)), LeaseAction::Wait),
            (30, Some(held("a", 2)), LeaseAction::Acquire),
            (31, Some(held("", 3)), LeaseAction::Acquire),
            (32, Some(held("b", 4)), LeaseAction::Renew),
        ] {
            assert_eq!(b.decide(s(now), lease.as_ref()), action, "at {now}");
        }
    }

    #[test]
    fn a_leader_that_cannot_renew_stops_before_another_may_start() {
        let mut a = candidate("a");
        assert_eq!((a.term(s(0)), a.pause(s(0))), (None, s(1)));
        a.holds(s(100));
        assert_eq!(a.term(s(100)), Some(Term::Lease { begin_until: s(110), end: s(115) }));
        assert_eq!((a.pause(s(100)), a.pause(s(104)), a.pause(s(106))), (s(5), s(1), s(1)));
        assert_eq!(a.term(s(110)), None);
        // The other candidate saw the renewal after it was started: its wait ends after ours.
        let mut b = candidate("b");
        assert_eq!(b.decide(s(100), Some(&held("a", 1))), LeaseAction::Wait);
        assert_eq!(b.decide(s(114), Some(&held("a", 1))), LeaseAction::Wait);
        assert_eq!(b.decide(s(115), Some(&held("a", 1))), LeaseAction::Acquire);
    }

    #[test]
    fn a_leader_that_lost_the_lease_notices() {
        let mut a = candidate("a");
        a.holds(s(0));
        assert_eq!(a.decide(s(1), Some(&held("b", 9))), LeaseAction::Wait);
        assert_eq!(a.term(s(1)), None);
        a.holds(s(2));
        assert_eq!(a.decide(s(3), None), LeaseAction::Create);
        assert_eq!(a.term(s(3)), None);
    }
}
