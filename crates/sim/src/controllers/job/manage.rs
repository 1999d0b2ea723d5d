//! Creation and deletion of a Job's pods (`manageJob`).

use std::cmp::{Ordering, Reverse};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodTemplateSpec};

use super::super::pod_control::{self, MAX_PREFIX};
use super::back_off::{finished_at, left};
use super::indexes::{INDEX, Indexes, index_of, indexes_of};
use super::policies::replaces_only_failed;
use super::view::{TRACKING, View, all_failures_before, failure_annotations, is_tracked, untrack};
use crate::choices::{Choices, Question};
use crate::pods::{condition, from_template, has_ended, is_ready, is_terminating, node_of, phase};
use crate::step::Context;

/// The most pods that are created or deleted in one step (`MaxPodCreateDeletePerSync`).
const MOST_PODS: usize = 500;

/// How many pods the Job has after its pods were managed.
pub(super) struct Managed {
    pub(super) active: i32,
    /// Pods could not be created because the namespace is being deleted: the controller waits for them.
    pub(super) missing: bool,
}

/// Creates or deletes pods so that as many are active as should be.
pub(super) fn manage(cx: &mut Context<'_>, view: &mut View<'_>) -> Managed {
    let active = i32::try_from(view.active.len()).unwrap_or(i32::MAX);
    let wanted = if view.is_suspended() { 0 } else { wanted(view, active) };
    let surplus = usize::try_from(active.saturating_sub(wanted)).unwrap_or_default();
    let mut delete = victims(view, surplus, cx.choices);
    if !view.is_suspended() {
        delete.truncate(MOST_PODS);
    }
    if view.is_suspended() || !delete.is_empty() {
        let deleted = i32::try_from(delete.len()).unwrap_or(i32::MAX);
        for pod in delete {
            view.ready -= i32::from(is_ready(pod));
            view.writes.extend(is_tracked(pod).then(|| untrack(pod)));
            view.writes.extend(pod_control::delete(pod, view.key));
        }
        view.terminating += deleted;
        return Managed { active: active - deleted, missing: false };
    }
    let terminating = if replaces_only_failed(view.spec) { view.terminating } else { 0 };
    match usize::try_from(wanted.saturating_sub(terminating).saturating_sub(active)) {
        Ok(count) if count > 0 => create(cx, view, active, count),
        _ => Managed { active, missing: false },
    }
}

/// How many pods should be active.
fn wanted(view: &View<'_>, active: i32) -> i32 {
    let parallelism = view.spec.parallelism.unwrap_or(1);
    match view.spec.completions {
        // After the first success the others are left alone.
        None if view.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => completions.saturating_sub(view.succeeded).min(parallelism).max(0),
    }
}

fn create(cx: &mut Context<'_>, view: &mut View<'_>, active: i32, count: usize) -> Managed {
    let waits = Managed { active, missing: false };
    let timers = &cx.settings.timers;
    let left = if view.has_index_limit() { SignedDuration::ZERO } else { view.back_off.left(timers, view.now) };
    if left > SignedDuration::ZERO {
        view.delays.push(left.max(timers.job_sync_batch));
        return waits;
    }
    let mut indexes: Vec<Option<i32>> = vec![None; count.min(MOST_PODS)];
    if view.is_indexed() {
        match indexes_to_create(cx, view, count.min(MOST_PODS)) {
            Ok(ready) => indexes = ready.into_iter().map(Some).collect(),
            Err(left) => {
                view.delays.push(left.max(timers.job_sync_batch));
                return waits;
            }
        }
    }
    let created = i32::try_from(indexes.len()).unwrap_or(i32::MAX);
    let missing = created > 0 && pod_control::is_namespace_terminating(cx.store, &view.key.namespace);
    if !missing {
        for index in indexes {
            let pod = new_pod(view, index);
            view.writes.extend(pod_control::create(cx, pod, "", view.key));
        }
    }
    Managed { active: active + created, missing }
}

/// The lowest indexes that have no pod; or how long all of them have to wait after a failure.
fn indexes_to_create(cx: &Context<'_>, view: &View<'_>, count: usize) -> Result<Vec<i32>, SignedDuration> {
    let mut taken: Indexes = view.succeeded_indexes.with(&indexes_of(view.active.iter().copied()));
    if replaces_only_failed(view.spec) {
        let terminating = view.pods.iter().map(|pod| &***pod).filter(|pod| is_terminating(pod) && !has_ended(pod));
        taken = taken.with(&indexes_of(terminating));
    }
    if let Some(failed) = &view.failed_indexes {
        taken = taken.merge(failed);
    }
    let missing = taken.missing(view.completions(), count);
    let wait = |index: &i32| match view.replaced.get(index) {
        Some(pod) => left(&cx.settings.timers, all_failures_before(pod).saturating_add(1), finished_at(pod), view.now),
        None => SignedDuration::ZERO,
    };
    let ready: Vec<i32> = missing.iter().copied().filter(|index| wait(index).is_zero()).collect();
    match missing.iter().map(wait).min() {
        Some(least) if ready.is_empty() => Err(least),
        _ => Ok(ready),
    }
}

/// A pod of the Job, for an index if it has indexes.
fn new_pod(view: &View<'_>, index: Option<i32>) -> Pod {
    let mut template = view.spec.template.clone();
    let finalizers = template.metadata.get_or_insert_default().finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.into());
    }
    let Some(index) = index else { return from_template(&template, &view.object()) };
    set_index(&mut template, &view.key.name, index);
    if view.has_index_limit() {
        let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        annotations.extend(failure_annotations(view.spec, view.replaced.get(&index).copied()));
    }
    let mut pod = from_template(&template, &view.object());
    let end = format!("-{index}-");
    let kept = view.key.name.chars().take(MAX_PREFIX - end.len()).collect::<String>();
    pod.metadata.generate_name = Some(format!("{kept}{end}"));
    pod
}

fn set_index(template: &mut PodTemplateSpec, job: &str, index: i32) {
    let metadata = template.metadata.get_or_insert_default();
    metadata.annotations.get_or_insert_default().insert(INDEX.into(), index.to_string());
    metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
    let spec = template.spec.get_or_insert_default();
    spec.hostname = Some(format!("{job}-{index}"));
    spec.init_containers.iter_mut().flatten().for_each(set_index_variable);
    spec.containers.iter_mut().for_each(set_index_variable);
}

fn set_index_variable(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector {
        api_version: Some("v1".into()),
        field_path: format!("metadata.labels['{INDEX}']"),
    };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: NAME.into(), value_from: Some(source), ..EnvVar::default() });
}

/// The pods to delete (`activePodsForRemoval`): those whose index is wrong or taken, and so many others that there are
/// enough.
fn victims<'a>(view: &View<'a>, at_least: usize, choices: &mut Choices) -> Vec<&'a Pod> {
    let (mut victims, mut others) = (Vec::new(), view.active.clone());
    if view.is_indexed() {
        others.sort_by(|a, b| index_of(a).cmp(&index_of(b)).then_with(|| deletion_order(a, b)));
        // The last pod of each valid index stays.
        let mut kept: Vec<&Pod> = Vec::new();
        for pod in std::mem::take(&mut others) {
            if view.valid_index(pod).is_none() {
                victims.push(pod);
                continue;
            }
            match kept.last_mut() {
                Some(last) if index_of(last) == index_of(pod) => victims.push(std::mem::replace(last, pod)),
                _ => kept.push(pod),
            }
        }
        others = kept;
    }
    others.sort_by(|a, b| deletion_order(a, b));
    while victims.len() < at_least && !others.is_empty() {
        let equal = others.iter().take_while(|pod| deletion_order(pod, others[0]).is_eq()).count();
        let picked = if equal > at_least - victims.len() {
            let names: Vec<&str> =
                others[..equal].iter().map(|pod| pod.metadata.name.as_deref().unwrap_or_default()).collect();
            choices.pick(Question::Victim { workload: view.key.to_string() }, &names)
        } else {
            0
        };
        victims.push(others.remove(picked));
    }
    victims
}

/// Which of two pods is deleted first (`ActivePods.Less`).
fn deletion_order(a: &Pod, b: &Pod) -> Ordering {
    let stage = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let ready_since = |pod: &Pod| -> Option<Timestamp> {
        let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
        Some(ready.last_transition_time.as_ref()?.0)
    };
    let restarts = |pod: &Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| status.restart_count).max().unwrap_or_default()
    };
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // A pod without a time comes first, then the one with the latest.
    let latest = |time: Option<Timestamp>| (time.is_some(), Reverse(time));
    let key = |pod: &Pod| {
        (
            node_of(pod).is_some(),
            stage(pod),
            is_ready(pod),
            latest(ready_since(pod)),
            Reverse(restarts(pod)),
            latest(created(pod)),
        )
    };
    key(a).cmp(&key(b))
}
