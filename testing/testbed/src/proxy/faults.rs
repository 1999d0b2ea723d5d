//! Which requests fail, and how: drawn from a seed.

use std::time::Duration;

/// How often each kind of fault befalls a request, as shares of 1, and how it shows.
///
/// A request meets one fault at most. Shares of faults that cannot befall it (a conflict for a read, a stall for what is
/// no watch) are passed over.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// A write is refused with 409 Conflict, and not made.
    pub conflict: f64,
    /// A request is refused with 429 Too Many Requests, to be made again after a second.
    pub too_many: f64,
    /// A request is refused with 500 Internal Server Error.
    pub internal: f64,
    /// A write is made, but the connection ends before the answer.
    pub lost_answer: f64,
    /// A request is held back for a while.
    pub delay: f64,
    /// At most so long.
    pub delay_up_to: Duration,
    /// A watch falls silent while its connection stays.
    pub stall: f64,
    /// It does so after at most so long.
    pub stall_within: Duration,
    /// The connection of a silent watch ends after so long.
    pub stall_for: Duration,
    /// A read is answered with what the same read was answered before. (What a kubelet is asked is never kept.)
    pub stale: f64,
    /// That was at most so long ago.
    pub stale_by: Duration,
}

impl Default for Faults {
    /// None of them.
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
    /// Each kind befalls this share of the requests that it can befall; but no read is stale, which an API server allows
    /// itself only where it is asked for.
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

    /// What befalls a request.
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

/// What a request is.
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

/// What befalls a request.
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

/// Numbers from a seed (SplitMix64).
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
    fn requests_are_told_apart() {
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
    fn one_seed_is_one_row_of_faults_and_the_shares_hold() {
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
