//! How many pods a Deployment wants, and how many more or fewer it may have during a rollout.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::int_or_percent::scaled;

/// The default of maxSurge and maxUnavailable.
const DEFAULT_SHARE: &str = "25%";

/// How many pods it wants.
pub(super) fn desired(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether its strategy is RollingUpdate.
pub(super) fn is_rolling_update(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref()?.type_.as_deref());
    strategy.unwrap_or("RollingUpdate") == "RollingUpdate"
}

/// How many more pods than desired there may be (`MaxSurge`).
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling_update(deployment) { fenceposts(deployment).0 } else { 0 }
}

/// How many fewer available pods than desired there may be (`MaxUnavailable`).
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let desired = desired(deployment);
    if !is_rolling_update(deployment) || desired == 0 { 0 } else { fenceposts(deployment).1.min(desired) }
}

/// maxSurge is rounded up and maxUnavailable down; they are not both zero (`ResolveFenceposts`).
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let rolling = |spec: &DeploymentSpec| spec.strategy.as_ref()?.rolling_update.clone();
    let rolling = deployment.spec.as_ref().and_then(rolling).unwrap_or_default();
    let share = || IntOrString::String(DEFAULT_SHARE.into());
    let surge = scaled(&rolling.max_surge.unwrap_or_else(share), desired(deployment), true);
    let unavailable = scaled(&rolling.max_unavailable.unwrap_or_else(share), desired(deployment), false);
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resolve_fenceposts() {
        for (surge, unavailable, desired, expected) in [
            (json!("0%"), json!("0%"), 0, (0, 0)),
            (json!("0%"), json!("0%"), 10, (0, 1)),
            (json!("10%"), json!("0%"), 10, (1, 0)),
            (json!("20%"), json!("20%"), 5, (1, 1)),
            (json!("25%"), json!("25%"), 1, (1, 0)),
            (json!("25%"), json!("25%"), 10, (3, 2)),
            (json!("0%"), json!("1%"), 2, (0, 1)),
            (json!(0), json!(20), 10, (0, 10)),
            (json!("200%"), json!("100%"), 3, (6, 3)),
            (json!(null), json!(null), 4, (1, 1)),
        ] {
            let deployment = json!({ "metadata": {}, "spec": { "replicas": desired, "selector": {}, "template": {},
                "strategy": { "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } });
            let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
            let found = (max_surge(&deployment), max_unavailable(&deployment));
            assert_eq!(found, expected, "{surge} {unavailable} of {desired}");
        }
    }
}
