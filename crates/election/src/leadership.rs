//! Whether this process may write: only the leader may.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

/// The longest that a write may take.
const MAX_WRITE: Duration = Duration::from_secs(30);

/// What this process is in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionRole {
    /// Another process is the leader, or there is none yet.
    Standby,
    /// This process is the leader.
    Leader(Term),
}

/// How long leadership lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// There is no election.
    Endless,
    /// Until another process may take the Lease over, unless it is renewed.
    Lease {
        /// No write is started after this.
        begin_until: Duration,
        /// No write is in progress after this.
        end: Duration,
    },
}

/// The role of this process, shared by everything that writes or waits for leadership.
#[derive(Debug)]
pub struct Leadership {
    role: Mutex<ElectionRole>,
    changes: watch::Sender<bool>,
}

impl Default for Leadership {
    fn default() -> Leadership {
        Leadership::new()
    }
}

impl Leadership {
    /// Every process starts on standby.
    pub fn new() -> Leadership {
        Leadership { role: Mutex::new(ElectionRole::Standby), changes: watch::Sender::new(false) }
    }

    /// Sets the role.
    pub fn set(&self, role: ElectionRole) {
        if let Ok(mut mine) = self.role.lock() {
            *mine = role;
        }
        let leads = role != ElectionRole::Standby;
        self.changes.send_if_modified(|before| std::mem::replace(before, leads) != leads);
    }

    /// How long a write that starts now may take; none if no write may start.
    pub fn allows(&self, now: Duration) -> Option<Duration> {
        match *self.role.lock().ok()? {
            ElectionRole::Standby => None,
            ElectionRole::Leader(Term::Endless) => Some(MAX_WRITE),
            ElectionRole::Leader(Term::Lease { begin_until, end }) => {
                (now < begin_until).then(|| end.saturating_sub(now).min(MAX_WRITE))
            }
        }
    }

    /// Reports when this process becomes the leader, and when it stops being the leader.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.changes.subscribe()
    }

    /// Whether this process is the leader.
    pub fn leads(&self) -> bool {
        *self.changes.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_end_before_the_lease_expires() {
        let s = Duration::from_secs;
        let leadership = Leadership::new();
        assert_eq!(leadership.allows(s(0)), None);
        leadership.set(ElectionRole::Leader(Term::Lease { begin_until: s(10), end: s(15) }));
        for (now, allowed) in [(0, Some(15)), (9, Some(6)), (10, None), (16, None)] {
            assert_eq!(leadership.allows(s(now)), allowed.map(s), "at {now}");
        }
        leadership.set(ElectionRole::Leader(Term::Endless));
        assert_eq!(leadership.allows(s(100)), Some(MAX_WRITE));
        assert!(leadership.leads());
    }
}
