//! How long a pod stays on a node with taints.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use stead_semantics::taints::tolerates;

use crate::times::CENTURY;

/// How long a pod stays on a node with NoExecute taints before it is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TolerationTime {
    /// It is evicted at once.
    None,
    /// It is evicted after this time.
    For(SignedDuration),
    /// It is never evicted.
    Forever,
}

/// How long a pod with these tolerations stays on a node with these taints (`getMinTolerationTime` in
/// `pkg/controller/tainteviction`). For each taint the first toleration that matches it counts
/// (`GetMatchingTolerations`), and of these the shortest.
pub fn min_toleration_time<'a>(
    tolerations: &[Toleration],
    taints: impl IntoIterator<Item = &'a Taint>,
) -> TolerationTime {
    let mut shortest = None;
    for taint in taints {
        let Some(by) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return TolerationTime::None;
        };
        shortest = [shortest, by.toleration_seconds].into_iter().flatten().min();
    }
    match shortest {
        None => TolerationTime::Forever,
        Some(seconds) if seconds <= 0 => TolerationTime::None,
        Some(seconds) if seconds > CENTURY.as_secs() => TolerationTime::Forever,
        Some(seconds) => TolerationTime::For(SignedDuration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn get_min_toleration_time() {
        let taint = |key: &str| Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() };
        let of = |key: &str, seconds: Value| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let time = |seconds| TolerationTime::For(SignedDuration::from_secs(seconds));
        for (tolerations, taints, expected) in [
            (json!([]), vec!["a"], TolerationTime::None),
            (json!([]), vec![], TolerationTime::Forever),
            (json!([of("a", json!(null))]), vec!["a"], TolerationTime::Forever),
            (json!([of("a", json!(300))]), vec!["a"], time(300)),
            (json!([of("a", json!(300)), of("b", json!(60))]), vec!["a", "b"], time(60)),
            (json!([of("a", json!(300)), of("b", json!(null))]), vec!["a", "b"], time(300)),
            (json!([of("a", json!(300))]), vec!["a", "b"], TolerationTime::None),
            // The first that matches counts, even where a later one is longer.
            (json!([of("a", json!(10)), of("a", json!(null))]), vec!["a"], time(10)),
            (json!([of("a", json!(0))]), vec!["a"], TolerationTime::None),
            (json!([of("a", json!(-1))]), vec!["a"], TolerationTime::None),
            (json!([of("a", json!(i64::MAX))]), vec!["a"], TolerationTime::Forever),
        ] {
            let read: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
            let taints: Vec<Taint> = taints.into_iter().map(taint).collect();
            assert_eq!(min_toleration_time(&read, &taints), expected, "{tolerations}");
        }
    }
}
