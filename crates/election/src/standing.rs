//! Whether this process may write: it leads, or it stands by.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

/// The longest that a request may take.
const LONGEST_REQUEST: Duration = Duration::from_secs(30);

/// What an election has decided so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else leads, or nobody does yet.
    Standby,
    /// This process leads.
    Leads(Term),
}

/// How long leadership lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// There is no election.
    Endless,
    /// Until others may take over, unless it is renewed.
    Lease {
        /// No write is begun after this.
        begin_until: Duration,
        /// No write is under way after this.
        end: Duration,
    },
}

/// The standing of this process, shared by all who write and all who wait for it.
#[derive(Debug)]
pub struct Leadership {
    standing: Mutex<Standing>,
    changes: watch::Sender<bool>,
}

impl Default for Leadership {
    fn default() -> Leadership {
        Leadership::new()
    }
}

impl Leadership {
    /// Everybody begins by standing by.
    pub fn new() -> Leadership {
        Leadership { standing: Mutex::new(Standing::Standby), changes: watch::Sender::new(false) }
    }

    /// The election has decided.
    pub fn set(&self, standing: Standing) {
        if let Ok(mut mine) = self.standing.lock() {
            *mine = standing;
        }
        let leads = standing != Standing::Standby;
        self.changes.send_if_modified(|before| std::mem::replace(before, leads) != leads);
    }

    /// How long a write that begins now may take; none if none may begin.
    pub fn allows(&self, now: Duration) -> Option<Duration> {
        match *self.standing.lock().ok()? {
            Standing::Standby => None,
            Standing::Leads(Term::Endless) => Some(LONGEST_REQUEST),
            Standing::Leads(Term::Lease { begin_until, end }) => {
                (now < begin_until).then(|| end.saturating_sub(now).min(LONGEST_REQUEST))
            }
        }
    }

    /// Tells when this process begins or ceases to lead.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.changes.subscribe()
    }

    /// Whether this process leads.
    pub fn leads(&self) -> bool {
        *self.changes.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_end_before_the_lease_does() {
        let s = Duration::from_secs;
        let leadership = Leadership::new();
        assert_eq!(leadership.allows(s(0)), None);
        leadership.set(Standing::Leads(Term::Lease { begin_until: s(10), end: s(15) }));
        for (now, allowed) in [(0, Some(15)), (9, Some(6)), (10, None), (16, None)] {
            assert_eq!(leadership.allows(s(now)), allowed.map(s), "at {now}");
        }
        leadership.set(Standing::Leads(Term::Endless));
        assert_eq!(leadership.allows(s(100)), Some(LONGEST_REQUEST));
        assert!(leadership.leads());
    }
}
