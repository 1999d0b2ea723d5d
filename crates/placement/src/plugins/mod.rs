//! kube-scheduler's default plugins. Differences between Kubernetes versions are rules of `version_rules.rs`.

pub(crate) mod fit;
pub(crate) mod images;
pub(crate) mod in_tree_limits;
pub(crate) mod interpod;
pub(crate) mod node;
pub(crate) mod spread;
pub(crate) mod volume_binding;
pub(crate) mod volume_limits;
pub(crate) mod volume_restrictions;
pub(crate) mod volume_zone;

/// The maximum score of a plugin, before its weight.
pub(crate) const MAX_SCORE: i64 = 100;

/// Scales scores to the highest of them (`DefaultNormalizeScore`); reversed if lower is better.
pub(crate) fn normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        let share = if max == 0 { 0 } else { MAX_SCORE * *score / max };
        *score = if reverse { MAX_SCORE - share } else { share };
    }
}
