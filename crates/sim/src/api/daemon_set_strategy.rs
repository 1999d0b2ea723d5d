//! The generation of a DaemonSet's template (`pkg/registry/apps/daemonset`).

use k8s_openapi::api::apps::v1::DaemonSet;

/// The annotation with the number of templates that a DaemonSet has had; daemon pods have it as a label.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The generation of the template, as the annotation says.
pub(crate) fn template_generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION)?.parse().ok()
}
