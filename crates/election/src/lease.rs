//! Who leads: what a candidate does about a Lease, told the time.
//!
//! Clocks of two machines are never compared. A candidate takes a Lease over when it has seen no change of it for as
//! long as the Lease says, by its own clock; a leader stops before that much time has passed since it last began to
//! renew.

use std::time::Duration;

use crate::standing::Term;

/// How fast an election goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long a Lease lasts after it was renewed.
    pub duration: Duration,
    /// How long after a renewal a leader begins writes; the rest is for those under way to end.
    pub work: Duration,
    /// How often a leader renews.
    pub renew: Duration,
    /// How often a candidate looks, and how soon a leader tries again that could not renew.
    pub look: Duration,
}

impl Pace {
    /// A Lease of 15 seconds, looked at every second.
    pub const USUAL: Pace = Pace {
        duration: Duration::from_secs(15),
        work: Duration::from_secs(10),
        renew: Duration::from_secs(5),
        look: Duration::from_secs(1),
    };
}

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// How long it lasts.
    pub duration: Duration,
    /// Its revision.
    pub revision: String,
}

/// What to do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Make it: there is none.
    Create,
    /// Take it: nobody holds it, or its holder was silent for too long.
    Take,
    /// Say that we still hold it.
    Renew,
    /// Look again later.
    Wait,
}

/// One who wants to lead.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    pace: Pace,
    /// The last revision that was seen, and when it was first seen.
    observed: Option<(String, Duration)>,
    /// When the last renewal that succeeded was begun.
    renewed: Option<Duration>,
}

impl Candidate {
    /// A candidate of a name that nobody else has.
    pub fn new(identity: String, pace: Pace) -> Candidate {
        Candidate { identity, pace, observed: None, renewed: None }
    }

    /// The candidate's name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// How fast it goes.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// What to do about the Lease as it was just seen.
    pub fn decide(&mut self, now: Duration, lease: Option<&Seen>) -> Deed {
        let Some(lease) = lease else {
            self.renewed = None;
            return Deed::Create;
        };
        if lease.holder == self.identity {
            return Deed::Renew;
        }
        self.renewed = None;
        let since = match &self.observed {
            Some((revision, since)) if *revision == lease.revision => *since,
            _ => {
                self.observed = Some((lease.revision.clone(), now));
                now
            }
        };
        if lease.holder.is_empty() || now.saturating_sub(since) >= lease.duration { Deed::Take } else { Deed::Wait }
    }

    /// A Lease was made, taken or renewed by a request that was begun at this time.
    pub fn holds(&mut self, began: Duration) {
        self.renewed = Some(began);
    }

    /// The Lease was given back.
    pub fn gave_back(&mut self) {
        self.renewed = None;
    }

    /// How long this candidate leads; none if it does not.
    pub fn term(&self, now: Duration) -> Option<Term> {
        let renewed = self.renewed?;
        let begin_until = renewed + self.pace.work;
        (now < begin_until).then(|| Term::Lease { begin_until, end: renewed + self.pace.duration })
    }

    /// How long until the next look at the Lease.
    pub fn pause(&self, now: Duration) -> Duration {
        match self.renewed {
            Some(renewed) if now < renewed + self.pace.renew => renewed + self.pace.renew - now,
            _ => self.pace.look,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, revision: u64) -> Seen {
        Seen { holder: holder.into(), duration: Pace::USUAL.duration, revision: revision.to_string() }
    }

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_silent_holder_is_followed_after_the_leases_time() {
        let mut b = Candidate::new("b".into(), Pace::USUAL);
        for (now, lease, deed) in [
            (0, None, Deed::Create),
            (1, Some(seen("a", 1)), Deed::Wait),
            (14, Some(seen("a", 1)), Deed::Wait),
            (15, Some(seen("a", 2)), Deed::Wait),
            (29, Some(seen("a", 2)), Deed::Wait),
            (30, Some(seen("a", 2)), Deed::Take),
            (31, Some(seen("", 3)), Deed::Take),
            (32, Some(seen("b", 4)), Deed::Renew),
        ] {
            assert_eq!(b.decide(s(now), lease.as_ref()), deed, "at {now}");
        }
    }

    #[test]
    fn a_leader_that_cannot_renew_stops_before_others_may_begin() {
        let mut a = Candidate::new("a".into(), Pace::USUAL);
        assert_eq!((a.term(s(0)), a.pause(s(0))), (None, s(1)));
        a.holds(s(100));
        assert_eq!(a.term(s(100)), Some(Term::Lease { begin_until: s(110), end: s(115) }));
        assert_eq!((a.pause(s(100)), a.pause(s(104)), a.pause(s(106))), (s(5), s(1), s(1)));
        assert_eq!(a.term(s(110)), None);
        // The other one saw the renewal after it was begun: its wait ends after ours.
        let mut b = Candidate::new("b".into(), Pace::USUAL);
        assert_eq!(b.decide(s(100), Some(&seen("a", 1))), Deed::Wait);
        assert_eq!(b.decide(s(114), Some(&seen("a", 1))), Deed::Wait);
        assert_eq!(b.decide(s(115), Some(&seen("a", 1))), Deed::Take);
    }

    #[test]
    fn a_leader_that_was_followed_knows_it() {
        let mut a = Candidate::new("a".into(), Pace::USUAL);
        a.holds(s(0));
        assert_eq!(a.decide(s(1), Some(&seen("b", 9))), Deed::Wait);
        assert_eq!(a.term(s(1)), None);
        a.holds(s(2));
        assert_eq!(a.decide(s(3), None), Deed::Create);
        assert_eq!(a.term(s(3)), None);
    }
}
