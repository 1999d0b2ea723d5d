//! Numbers and annotations of the ReplicaSets of a Deployment.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use stead_model::times::created;

use super::limits::{desired, max_surge};

/// The annotation that numbers the templates of a Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The annotation with which old clients ask for a rollback.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// The label with the hash of the template.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotations that a Deployment and its ReplicaSets do not share.
const OWN_ANNOTATIONS: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];

/// The longest history of revisions in an annotation.
const MAX_REVISION_HISTORY: usize = 2000;

/// The annotations of an object.
pub(super) type Annotations = BTreeMap<String, String>;

/// A ReplicaSet, as the lists of a Deployment have it.
pub(super) type Set = Arc<ReplicaSet>;

/// Its name.
pub(super) fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// How many pods it shall have.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many of its pods are available.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// The sum of a number over sets.
pub(super) fn total<'a>(sets: impl IntoIterator<Item = &'a Set>, number: impl Fn(&ReplicaSet) -> i32) -> i32 {
    sets.into_iter().fold(0, |sum, set| sum.saturating_add(number(set)))
}

/// Those that shall have pods (`FilterActiveReplicaSets`).
pub(super) fn active<'a>(sets: impl IntoIterator<Item = &'a Set>) -> Vec<Set> {
    sets.into_iter().filter(|set| size(set) > 0).cloned().collect()
}

/// Older ones first (`ReplicaSetsByCreationTimestamp`).
pub(super) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    created(&a.metadata).cmp(&created(&b.metadata)).then_with(|| name(a).cmp(name(b)))
}

/// Whether two templates are the same but for the label with their hash (`EqualIgnoreHash`).
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    fn labels(template: &PodTemplateSpec) -> impl Iterator<Item = (&String, &String)> {
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        labels.into_iter().flatten().filter(|(key, _)| *key != TEMPLATE_HASH)
    }
    let others = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        metadata.labels = None;
        metadata
    };
    a.spec == b.spec && labels(a).eq(labels(b)) && others(a) == others(b)
}

/// The revision of a set; none if it is not a number (`Revision`).
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    annotation(set, REVISION).map_or(Some(0), |text| text.parse().ok())
}

fn annotation<'a>(set: &'a ReplicaSet, name: &str) -> Option<&'a String> {
    set.metadata.annotations.as_ref()?.get(name)
}

/// The number of desired pods of the Deployment when the set was last scaled.
pub(super) fn desired_replicas(set: &ReplicaSet) -> Option<i32> {
    count(set, DESIRED_REPLICAS)
}

/// The largest number of pods of the Deployment when the set was last scaled.
pub(super) fn max_replicas(set: &ReplicaSet) -> Option<i32> {
    count(set, MAX_REPLICAS)
}

fn count(set: &ReplicaSet, name: &str) -> Option<i32> {
    annotation(set, name)?.parse().ok().filter(|count| *count >= 0)
}

/// Notes how many pods the Deployment wants. Gives whether that is new (`SetReplicasAnnotations`).
pub(super) fn note_replicas(set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let desired = desired(deployment);
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut note = |name: &str, count: i32| {
        let text = count.to_string();
        annotations.get(name) != Some(&text) && {
            annotations.insert(name.to_owned(), text);
            true
        }
    };
    let changed = note(DESIRED_REPLICAS, desired);
    note(MAX_REPLICAS, desired.saturating_add(max_surge(deployment))) || changed
}

/// Whether [`note_replicas`] would change anything.
pub(super) fn replicas_are_noted(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let desired = desired(deployment);
    let noted = |name: &str, count: i32| annotation(set, name).is_some_and(|text| *text == count.to_string());
    noted(DESIRED_REPLICAS, desired) && noted(MAX_REPLICAS, desired.saturating_add(max_surge(deployment)))
}

/// Copies the annotations of the Deployment and sets the revision. A revision that the set had before is kept as
/// history. Gives whether anything is new (`SetNewReplicaSetAnnotations`).
pub(super) fn set_revision(annotations: &mut Annotations, deployment: &Deployment, revision: i64) -> bool {
    let mut changed = false;
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN_ANNOTATIONS.contains(&name.as_str()) && annotations.get(name) != Some(value) {
            annotations.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    let old = annotations.get(REVISION).cloned();
    let Some(before) = old.as_deref().filter(|old| !old.is_empty()).map_or(Some(0), |old| old.parse::<i64>().ok())
    else {
        return false;
    };
    if before >= revision {
        return changed;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if let Some(old) = old {
        let history = annotations.get(REVISION_HISTORY).filter(|history| !history.is_empty());
        if let Some(history) = history.map_or(Some(old.clone()), |history| longer_history(history, &old)) {
            annotations.insert(REVISION_HISTORY.to_owned(), history);
        }
    }
    true
}

/// The history with one more revision, without the first ones if it becomes too long.
fn longer_history(history: &str, revision: &str) -> Option<String> {
    let mut kept: Vec<&str> = history.split(',').chain([revision]).collect();
    let length = |kept: &[&str]| kept.iter().map(|revision| revision.len() + 1).sum::<usize>() - 1;
    while length(&kept) > MAX_REVISION_HISTORY && kept.len() > 1 {
        kept.remove(0);
    }
    (length(&kept) <= MAX_REVISION_HISTORY).then(|| kept.join(","))
}

/// Gives the Deployment the annotations of a set that it is rolled back to (`SetDeploymentAnnotationsTo`).
pub(super) fn restore_annotations(deployment: &mut Deployment, set: &ReplicaSet) {
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| OWN_ANNOTATIONS.contains(&name.as_str()));
    for (name, value) in set.metadata.annotations.iter().flatten() {
        if !OWN_ANNOTATIONS.contains(&name.as_str()) {
            annotations.insert(name.clone(), value.clone());
        }
    }
}

/// The set with the Deployment's template: the oldest one if there are several (`FindNewReplicaSet`). `sets` is sorted
/// by age.
pub(super) fn with_template_of<'a>(deployment: &Deployment, sets: &'a [Set]) -> Option<&'a Set> {
    let template = &deployment.spec.as_ref()?.template;
    let same = |set: &&Set| {
        let other = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        other.is_some_and(|other| same_template(other, template))
    };
    sets.iter().find(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn set_new_replica_set_annotations() {
        let deployment: Deployment = serde_json::from_value(json!({ "metadata": { "name": "web", "annotations":
            { "note": "x", REVISION: "7", "kubectl.kubernetes.io/last-applied-configuration": "{}" } } }))
        .expect("a Deployment");
        for (before, revision, changed, after) in [
            (json!({}), 2, true, json!({ "note": "x", REVISION: "2" })),
            (json!({ "note": "x", REVISION: "2" }), 2, false, json!({ "note": "x", REVISION: "2" })),
            (json!({ "note": "x", REVISION: "3" }), 2, false, json!({ "note": "x", REVISION: "3" })),
            (
                json!({ "note": "x", REVISION: "1" }),
                4,
                true,
                json!({ "note": "x", REVISION: "4", REVISION_HISTORY: "1" }),
            ),
            (
                json!({ "note": "y", REVISION: "4", REVISION_HISTORY: "1" }),
                6,
                true,
                json!({ "note": "x", REVISION: "6", REVISION_HISTORY: "1,4" }),
            ),
        ] {
            let mut annotations: Annotations = serde_json::from_value(before.clone()).expect("annotations");
            assert_eq!(set_revision(&mut annotations, &deployment, revision), changed, "{before}");
            assert_eq!(serde_json::to_value(annotations).expect("JSON"), after, "{before}");
        }
    }

    #[test]
    fn a_history_of_revisions_has_a_limit() {
        let long = vec!["123"; 500].join(",");
        let longer = longer_history(&long, "1234").expect("it fits");
        assert_eq!(longer, format!("{},1234", vec!["123"; 499].join(",")));
    }

    #[test]
    fn equal_ignore_hash() {
        let template = |labels: Value, image: &str| -> PodTemplateSpec {
            let container = json!({ "name": "c", "image": image });
            serde_json::from_value(json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } }))
                .expect("a template")
        };
        let plain = template(json!({ "app": "a" }), "1");
        for (other, same) in [
            (template(json!({ "app": "a", TEMPLATE_HASH: "5" }), "1"), true),
            (template(json!({ "app": "a", TEMPLATE_HASH: "5" }), "2"), false),
            (template(json!({ "app": "b" }), "1"), false),
            (template(json!({ "app": "a", "more": "x" }), "1"), false),
        ] {
            assert_eq!(same_template(&plain, &other), same, "{other:?}");
        }
    }
}
