//! Where two sequences of observations differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::observation::Observation;

/// How much later or earlier something may happen.
#[derive(Debug, Clone, Copy)]
pub struct Tolerances {
    /// The difference between the two times of a state, in seconds.
    pub time: f64,
    /// The same for events about claims, which the volume binder repeats in each pass over all claims.
    pub claims: f64,
    /// A state that lasted less than this many seconds may be missing on one side.
    pub transient: f64,
}

/// A difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The time of the first sign of it, in seconds.
    pub at: f64,
    /// The object.
    pub subject: String,
    /// What differs.
    pub what: String,
}

impl Difference {
    /// The kind of the object, for statistics.
    pub fn kind(&self) -> &str {
        self.subject.split(' ').next().unwrap_or_default()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} s: {}: {}", self.at, self.subject, self.what)
    }
}

/// The differences between the real run and the simulated one, the earliest first; at most one for each object.
pub fn compare(real: &[Observation], simulated: &[Observation], tolerances: Tolerances) -> Vec<Difference> {
    let (real, simulated) = (by_subject(real), by_subject(simulated));
    let subjects: std::collections::BTreeSet<&str> = real.keys().chain(simulated.keys()).copied().collect();
    let none = Vec::new();
    let mut differences: Vec<Difference> = subjects
        .into_iter()
        .filter_map(|subject| {
            let real = real.get(subject).unwrap_or(&none);
            let simulated = simulated.get(subject).unwrap_or(&none);
            let is_repeated = subject.starts_with("event persistentvolumeclaim ");
            let time = if is_repeated { tolerances.claims } else { tolerances.time };
            let (at, what) = first_difference(real, simulated, Tolerances { time, ..tolerances })?;
            Some(Difference { at, subject: subject.to_owned(), what })
        })
        .collect();
    differences.sort_by(|a, b| a.at.total_cmp(&b.at));
    differences
}

fn by_subject(observations: &[Observation]) -> BTreeMap<&str, Vec<(f64, &Value)>> {
    let mut out: BTreeMap<&str, Vec<(f64, &Value)>> = BTreeMap::new();
    for observation in observations {
        out.entry(&observation.subject).or_default().push((observation.at, &observation.state));
    }
    out
}

/// Walks along both sequences. A state that one side does not have is skipped if it was short.
fn first_difference(
    real: &[(f64, &Value)],
    simulated: &[(f64, &Value)],
    tolerances: Tolerances,
) -> Option<(f64, String)> {
    let is_short = |states: &[(f64, &Value)], i: usize| {
        states.get(i + 1).is_some_and(|next| next.0 - states[i].0 <= tolerances.transient)
    };
    let (mut r, mut s) = (0, 0);
    // The last state that both have: it is what is left of a short state between two equal ones.
    let mut last: Option<&Value> = None;
    let skip = |states: &[(f64, &Value)], i: usize, last: Option<&Value>| {
        i + 1 + usize::from(states.get(i + 1).is_some_and(|next| Some(next.1) == last))
    };
    loop {
        match (real.get(r), simulated.get(s)) {
            (None, None) => return None,
            (Some((real_at, real_state)), Some((at, state))) if real_state == state => {
                if (real_at - at).abs() <= tolerances.time {
                    last = Some(*state);
                    (r, s) = (r + 1, s + 1);
                } else if real_at < at && is_short(real, r) {
                    // A short state that the other side does not have, before a longer one that is equal.
                    r = skip(real, r, last);
                } else if at < real_at && is_short(simulated, s) {
                    s = skip(simulated, s, last);
                } else {
                    return Some((real_at.min(*at), format!("{state} at {real_at:.1} s, simulated at {at:.1} s")));
                }
            }
            (Some(_), _) if is_short(real, r) => r = skip(real, r, last),
            (_, Some(_)) if is_short(simulated, s) => s = skip(simulated, s, last),
            (Some((at, state)), None) => return Some((*at, format!("{state}, simulated not at all"))),
            (None, Some((at, state))) => return Some((*at, format!("not at all, simulated {state}"))),
            (Some((real_at, real_state)), Some((at, state))) => {
                let what = format!("{real_state} at {real_at:.1} s, simulated {state} at {at:.1} s");
                return Some((real_at.min(*at), what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn states(list: &[(f64, &str)]) -> Vec<Observation> {
        list.iter().map(|(at, state)| Observation { at: *at, subject: "pod n/p".into(), state: json!(state) }).collect()
    }

    #[test]
    fn sequences_agree_up_to_time_and_short_states() {
        let tolerances = Tolerances { time: 2.0, claims: 2.0, transient: 0.5 };
        for (real, simulated, expected) in [
            (&[(0.0, "a"), (5.0, "b")][..], &[(0.5, "a"), (6.0, "b")][..], None),
            (&[(0.0, "a"), (0.1, "x"), (0.2, "b")], &[(0.0, "a"), (0.2, "b")], None),
            (&[(0.0, "a"), (0.2, "b")], &[(0.0, "x"), (0.1, "a"), (0.2, "b")], None),
            (&[(0.0, "a"), (1.0, "b"), (1.1, "a"), (9.0, "b")], &[(0.0, "a"), (9.0, "b")], None),
            (&[(0.0, "a"), (9.0, "b")], &[(0.0, "a"), (1.0, "b"), (1.1, "a"), (9.0, "b")], None),
            (&[(0.0, "a"), (4.0, "b"), (4.1, "a"), (7.0, "b"), (7.1, "a")], &[(0.0, "a")], None),
            (
                &[(0.0, "a"), (4.0, "b"), (6.1, "a")],
                &[(0.0, "a")],
                Some(r#"4.0 s: pod n/p: "b", simulated not at all"#),
            ),
            (
                &[(0.0, "a"), (5.0, "b")],
                &[(0.0, "a"), (8.0, "b")],
                Some(r#"5.0 s: pod n/p: "b" at 5.0 s, simulated at 8.0 s"#),
            ),
            (&[(0.0, "a")], &[(0.0, "a"), (9.0, "b")], Some(r#"9.0 s: pod n/p: not at all, simulated "b""#)),
            (
                &[(0.0, "a"), (3.0, "b")],
                &[(0.0, "a"), (3.0, "c")],
                Some(r#"3.0 s: pod n/p: "b" at 3.0 s, simulated "c" at 3.0 s"#),
            ),
        ] {
            let found = compare(&states(real), &states(simulated), tolerances);
            assert_eq!(found.first().map(ToString::to_string).as_deref(), expected);
        }
    }
}
