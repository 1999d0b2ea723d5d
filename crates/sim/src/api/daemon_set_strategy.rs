//! Creation and update of DaemonSets: defaults (`pkg/apis/apps/v1/defaults.go`) and the generation of the template
//! (`pkg/registry/apps/daemonset`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::object::SimObject;

/// The annotation with the generation of the template, which daemon pods have as a label.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Completes a DaemonSet that is created.
pub(super) fn prepare_create(object: &mut SimObject) {
    let SimObject::DaemonSet(set) = object else { return };
    let set = Arc::make_mut(set);
    let spec = set.spec.get_or_insert_default();
    spec.revision_history_limit.get_or_insert(10);
    let strategy = spec.update_strategy.get_or_insert_default();
    if strategy.type_.get_or_insert_with(|| "RollingUpdate".into()) == "RollingUpdate" {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
        rolling.max_surge.get_or_insert(IntOrString::Int(0));
    }
    set.status = Some(DaemonSetStatus::default());
    let generation = template_generation(set).unwrap_or(1).max(1);
    set_template_generation(set, generation);
}

/// Counts a new template. Nobody else can change the annotation.
pub(super) fn prepare_update(before: &SimObject, object: &mut SimObject) {
    let (SimObject::DaemonSet(before), SimObject::DaemonSet(after)) = (before, object) else { return };
    let Some(generation) = template_generation(before) else { return };
    let is_new = before.spec.as_ref().map(|spec| &spec.template) != after.spec.as_ref().map(|spec| &spec.template);
    let counted = generation + i64::from(is_new);
    if template_generation(after) != Some(counted) {
        set_template_generation(Arc::make_mut(after), counted);
    }
}

/// The generation of the template, as the annotation says.
pub(crate) fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION)?.parse().ok()
}

fn set_template_generation(set: &mut DaemonSet, generation: i64) {
    set.metadata.annotations.get_or_insert_default().insert(TEMPLATE_GENERATION.into(), generation.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_template_has_the_next_generation() {
        let object = |image: &str, limit: i32| {
            let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
            SimObject::from_json(&json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": { "name": "d" }, "spec": { "selector": {}, "minReadySeconds": limit, "template": template } }))
            .expect("a DaemonSet")
        };
        let generation = |object: &SimObject| object.to_json()["metadata"]["annotations"][TEMPLATE_GENERATION].clone();
        let mut first = object("a", 0);
        prepare_create(&mut first);
        assert_eq!(generation(&first), "1");
        assert_eq!(
            first.to_json()["spec"]["updateStrategy"],
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } })
        );
        for (mut changed, expected) in [(object("a", 5), "1"), (object("b", 0), "2")] {
            prepare_update(&first, &mut changed);
            assert_eq!(generation(&changed), expected);
        }
    }
}
