//! Which requests fail, and how, drawn from a seed.

use std::time::Duration;

/// The probability of each kind of fault, and its parameters.
///
/// A request has at most one fault. Faults that do not apply to it are skipped: a conflict for a read, a stall for a
/// request that is not a watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// A write is refused with 409 Conflict, and not applied.
    pub conflict: f64,
    /// A request is refused with 429 Too Many Requests, with a retry delay of one second.
    pub too_many: f64,
    /// A request is refused with 500 Internal Server Error.
    pub internal: f64,
    /// A write is applied, but the connection is closed before the response.
    pub lost_answer: f64,
    /// A request is delayed.
    pub delay: f64,
    /// The maximum delay.
    pub delay_up_to: Duration,
    /// A watch stops sending events while its connection stays open.
    pub stall: f64,
    /// The maximum time before a stall.
    pub stall_within: Duration,
    /// The time after which the connection of a stalled watch is closed.
    pub stall_for: Duration,
    /// A read gets an earlier response to the same read. (Requests that are proxied to a kubelet are never cached.)
    pub stale: f64,
    /// The maximum age of a stale response.
    pub stale_by: Duration,
}

impl Default for Faults {
    /// No faults.
    fn default() -> Faults {
        Faults {
            conflict: 0.0,
            too_many: 0.0,
            internal: 0.0,
            lost_answer: 0.0,
            delay: 0.0,
            delay_up_to: Duration::from_millis(500),
            stall: 0.0,
            stall_within: Duration::from_secs(5),
            stall_for: Duration::from_secs(3600),
            stale: 0.0,
            stale_by: Duration::from_secs(5),
        }
    }
}

impl Faults {
    /// The same probability for each kind, except stale reads: an API server returns stale data only if the client
    /// allows it.
    pub fn all(share: f64) -> Faults {
        Faults {
            conflict: share,
            too_many: share,
            internal: share,
            lost_answer: share,
            delay: share,
            stall: share,
            ..Faults::default()
        }
    }

    /// Draws the fault of a request.
    pub(super) fn draw(&self, kind: Kind, random: &mut Random) -> Option<Fault> {
        let (write, watch) = (kind == Kind::Write, kind == Kind::Watch);
        let rows = [
            (self.conflict, write, Fault::Conflict),
            (self.too_many, true, Fault::TooMany),
            (self.internal, true, Fault::Internal),
            (self.lost_answer, write, Fault::LostAnswer),
            (self.delay, true, Fault::Delay(random.up_to(self.delay_up_to))),
            (self.stall, watch, Fault::Stall(random.up_to(self.stall_within))),
            (self.stale, kind == Kind::Read, Fault::Stale),
        ];
        let mut drawn = random.share();
        for (share, applies, fault) in rows {
            if applies {
                if drawn < share {
                    return Some(fault);
                }
                drawn -= share;
            }
        }
        None
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Watch,
}

impl Kind {
    pub(super) fn of(method: &http::Method, uri: &http::Uri) -> Kind {
        let asks_to_watch = |query: &str| query.split('&').any(|part| matches!(part, "watch=1" | "watch=true"));
        match *method {
            http::Method::GET if uri.query().is_some_and(asks_to_watch) => Kind::Watch,
            http::Method::GET | http::Method::HEAD | http::Method::OPTIONS => Kind::Read,
            _ => Kind::Write,
        }
    }
}

/// The fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Conflict,
    TooMany,
    Internal,
    LostAnswer,
    Delay(Duration),
    Stall(Duration),
    Stale,
}

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to just below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/pods?limit=5", Kind::Read),
            ("GET", "/api/v1/pods?&watch=true&timeoutSeconds=290", Kind::Watch),
            ("POST", "/api/v1/namespaces", Kind::Write),
            ("PATCH", "/api/v1/nodes/a?watch=true", Kind::Write),
        ] {
            assert_eq!(Kind::of(&method.parse().unwrap(), &uri.parse().unwrap()), expected, "{method} {uri}");
        }
    }

    #[test]
    fn faults_are_reproducible_and_match_their_shares() {
        let faults = Faults::all(0.1);
        let draw = |seed, kind| {
            let mut random = Random(seed);
            (0..10_000).map(|_| faults.draw(kind, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, Kind::Write), draw(7, Kind::Write));
        assert_ne!(draw(7, Kind::Write), draw(8, Kind::Write));
        let count = |kind, wanted: fn(&Fault) -> bool| draw(1, kind).iter().flatten().filter(|f| wanted(f)).count();
        assert!((900..1100).contains(&count(Kind::Write, |f| *f == Fault::LostAnswer)));
        assert!((900..1100).contains(&count(Kind::Watch, |f| matches!(f, Fault::Stall(_)))));
        assert_eq!(count(Kind::Read, |f| matches!(f, Fault::Conflict | Fault::LostAnswer | Fault::Stall(_))), 0);
        assert!(Faults::default().draw(Kind::Watch, &mut Random(1)).is_none());
    }
}
