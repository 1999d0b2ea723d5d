//! The namespace controller (`pkg/controller/namespace`): deletes everything in a namespace that is being deleted.
//!
//! Kubernetes deletes, lists what is left and reports that in one pass. Here a pass has up to three steps of the same
//! time, because a step does not see its own writes: the pods are deleted, everything else is deleted, what is left is
//! reported.

mod conditions;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use stead_model::{KINDS, Kind};

use self::conditions::Remaining;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods;
use crate::step::{Context, Controller, DeleteOptions, DeletePropagation, Item, Step, Wakes, Write};
use crate::store::{Change, Store};

/// The finalizer in the spec of a namespace that this controller removes.
const FINALIZER: &str = "kubernetes";
/// How long finalizers of content are taken to need, in seconds.
const FINALIZERS_NEED: i64 = 15;
/// The first delay after an error, doubled with each further one.
const RETRY: SignedDuration = SignedDuration::from_millis(5);
/// The longest delay after an error.
const RETRY_MAX: SignedDuration = SignedDuration::from_secs(60);

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    /// Passes that have begun, by namespace.
    passes: BTreeMap<SimKey, Pass>,
    /// How many passes in a row ended with an error, by namespace.
    failures: BTreeMap<SimKey, u32>,
    /// Namespaces in which a pass changed nothing. Until something else does, the passes are not made but counted.
    waiting: BTreeMap<Arc<str>, Waiting>,
}

/// When passes are made: each period after the last one.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    last: Timestamp,
    period: SignedDuration,
}

/// A pass over a namespace.
#[derive(Debug, Clone, Copy)]
struct Pass {
    stage: Stage,
    /// How long the pods that were there at its beginning need, in seconds.
    pods_need: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    PodsDeleted,
    AllDeleted,
}

impl Controller for Namespaces {
    const COMPONENT: &'static str = "namespace-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        if change.key.kind != ObjectKind::Namespace {
            if let Some(waiting) = self.waiting.remove(&change.key.namespace) {
                let namespace = SimKey::new(ObjectKind::Namespace, "", &change.key.namespace);
                wakes.after(namespace, waiting.until_next(cx.now));
            }
            return;
        }
        match &change.after {
            Some(after) if after.is_terminating() => {
                wakes.after(change.key.clone(), cx.settings.timers.namespace_deletion_delay);
            }
            Some(_) => {}
            None => {
                self.passes.remove(&change.key);
                self.failures.remove(&change.key);
                self.waiting.remove(&change.key.name);
            }
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(namespace) = cx.store.at::<Namespace>(key) else { return Step::none() };
        let Some(deleted_at) = &namespace.metadata.deletion_timestamp else { return Step::none() };
        if namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_none_or(Vec::is_empty) {
            return Step::none();
        }
        let (store, name) = (cx.store, &*key.name);
        let is_pod = |kind: &Kind| kind.kind == "Pod";
        // Since 1.33 nothing else is deleted while there are pods.
        let pods_first = cx.settings.since(33);
        let mut pass = self.passes.remove(key).unwrap_or_else(|| Pass {
            stage: Stage::Begun,
            pods_need: pods_need(store, name, cx.now.duration_since(deleted_at.0)),
        });
        loop {
            let (writes, next) = match pass.stage {
                Stage::Begun if pods_first => (deletions(store, name, is_pod), Stage::PodsDeleted),
                Stage::PodsDeleted if store.all_in::<Pod>(name).next().is_some() => break,
                Stage::Begun | Stage::PodsDeleted => (deletions(store, name, |_| true), Stage::AllDeleted),
                Stage::AllDeleted => break,
            };
            pass.stage = next;
            if !writes.is_empty() {
                self.passes.insert(key.clone(), pass);
                return Step { writes, again: Some(SignedDuration::ZERO) };
            }
        }
        self.report(cx, key, namespace, pass)
    }
}

impl Namespaces {
    /// Ends a pass: reports what is left, and looks again when that could be gone; or releases the namespace.
    fn report(&mut self, cx: &Context<'_>, key: &SimKey, namespace: &Namespace, pass: Pass) -> Step {
        // While only pods were deleted, only they count.
        let all = pass.stage == Stage::AllDeleted;
        let mut remaining = remaining(cx.store, &key.name);
        remaining.retain(|left| all || left.kind.kind == "Pod");
        let (mut needed, mut errors) = (0, Vec::new());
        for left in &remaining {
            let need = if left.kind.kind == "Pod" { pass.pods_need } else { 0 };
            needed = needed.max(match need {
                0 if left.finalizers.is_empty() => {
                    errors.push(unexpected(&key.name, left.kind));
                    0
                }
                0 => FINALIZERS_NEED,
                need => need,
            });
        }
        // Then what is left is not reported.
        let reported = if all { &remaining[..] } else { &[] };
        let mut status = namespace.status.clone().unwrap_or_default();
        status.phase = Some("Terminating".into());
        conditions::update(&mut status, reported, &errors, cx.now);
        let mut writes = Vec::new();
        if namespace.status.as_ref() != Some(&status) {
            let mut reported = namespace.clone();
            reported.status = Some(status);
            reported.metadata.resource_version = None;
            writes.push(Write::Status(SimObject::from(reported)));
        }
        if let Some(delay) = self.delay(key, needed, !errors.is_empty()) {
            // A grace period that ends, or a delay that grows, is a change of its own.
            let steady = if errors.is_empty() { pass.pods_need == 0 } else { delay == RETRY_MAX };
            if writes.is_empty() && steady {
                self.waiting.insert(key.name.clone(), Waiting { last: cx.now, period: delay });
                return Step::none();
            }
            return Step { writes, again: Some(delay) };
        }
        self.failures.remove(key);
        writes.push(released(namespace));
        Step::writes(writes)
    }

    /// When to look at a namespace again: after an error later and later, else after half of the time that is needed.
    fn delay(&mut self, key: &SimKey, needed: i64, failed: bool) -> Option<SignedDuration> {
        if failed {
            let failures = self.failures.entry(key.clone()).or_default();
            let delay = RETRY.checked_mul(1_i32.checked_shl(*failures).unwrap_or(i32::MAX)).unwrap_or(RETRY_MAX);
            *failures = (*failures + 1).min(30);
            return Some(delay.min(RETRY_MAX));
        }
        (needed > 0).then(|| SignedDuration::from_secs(needed / 2 + 1))
    }
}

impl Waiting {
    fn until_next(self, now: Timestamp) -> SignedDuration {
        let (passed, period) = (now.duration_since(self.last).as_nanos(), self.period.as_nanos().max(1));
        let left = period - passed.rem_euclid(period);
        SignedDuration::from_nanos(i64::try_from(left).unwrap_or_default())
    }
}

/// The namespaced kinds that the namespace controller knows.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| kind.namespaced)
}

/// The longest grace period of a pod that has not ended, in seconds; zero when that has passed since the deletion of the
/// namespace (`estimateGracefulTermination`).
fn pods_need(store: &Store, namespace: &str, passed: SignedDuration) -> i64 {
    let running = store.all_in::<Pod>(namespace).filter(|pod| !pods::has_ended(pod));
    let graces = running.filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
    let longest = graces.max().unwrap_or(0).max(0);
    if passed >= SignedDuration::from_secs(longest) { 0 } else { longest }
}

/// The deletions of all objects of some kinds.
fn deletions(store: &Store, namespace: &str, of: impl Fn(&Kind) -> bool) -> Vec<Write> {
    let objects = kinds().filter(|kind| of(kind)).flat_map(|kind| store.of_kind_in(ObjectKind::of(kind), namespace));
    let options = DeleteOptions { propagation: DeletePropagation::Background, ..DeleteOptions::default() };
    objects.map(|(key, _)| Write::Delete(key.clone(), options.clone())).collect()
}

fn remaining(store: &Store, namespace: &str) -> Vec<Remaining> {
    let of_kind = |kind: &'static Kind| {
        let mut left = Remaining { kind, count: 0, finalizers: BTreeMap::new() };
        for (_, object) in store.of_kind_in(ObjectKind::of(kind), namespace) {
            left.count += 1;
            for finalizer in object.metadata().finalizers.iter().flatten() {
                *left.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        left
    };
    kinds().map(of_kind).filter(|left| left.count > 0).collect()
}

fn unexpected(namespace: &str, kind: &Kind) -> String {
    let version = kind.api_version.rsplit('/').next().unwrap_or_default();
    let gvr = format!("{}/{version}, Resource={}", kind.group(), kind.plural);
    format!("unexpected items still remain in namespace: {namespace} for gvr: {gvr}")
}

/// The namespace without the finalizer of this controller.
fn released(namespace: &Namespace) -> Write {
    let mut namespace = namespace.clone();
    let finalizers = namespace.spec.get_or_insert_default().finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    finalizers.sort();
    namespace.metadata.resource_version = None;
    Write::Replace(SimObject::from(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::bench::Bench;
    use crate::settings::Settings;
    use serde_json::{Value, json};
    use stead_model::KubernetesVersion;

    fn object(api: &str, kind: &str, finalizers: &[&str], spec: Value) -> SimObject {
        SimObject::from_json(&json!({ "apiVersion": api, "kind": kind,
            "metadata": { "name": kind.to_lowercase(), "namespace": "n", "finalizers": finalizers }, "spec": spec }))
        .expect("an object")
    }

    fn bound_pod(grace: i64) -> SimObject {
        object("v1", "Pod", &[], json!({ "nodeName": "a", "containers": [], "terminationGracePeriodSeconds": grace }))
    }

    fn config_map(finalizers: &[&str]) -> SimObject {
        object("v1", "ConfigMap", finalizers, Value::Null)
    }

    /// A namespace with this content, deleted at 0 s.
    fn deleted(objects: Vec<SimObject>, version: u16) -> Bench<Namespaces> {
        let namespace = SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "n" }, "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } }))
        .expect("a namespace");
        let key = namespace.key();
        let objects = objects.into_iter().chain([namespace]);
        let mut bench = Bench::new(Settings::of(KubernetesVersion::minor(version)), objects);
        bench.request(Write::Delete(key, DeleteOptions::default())).expect("deleted");
        bench
    }

    /// The second at which each object was first marked as being deleted, or removed.
    fn history(bench: &mut Bench<Namespaces>) -> Vec<String> {
        let mut lines = Vec::new();
        let changes = bench.take_changes();
        let start = changes[0].0;
        for (at, change) in changes {
            let was_marked = change.before.as_ref().is_some_and(SimObject::is_terminating);
            let what = match &change.after {
                None => "gone",
                Some(after) if after.is_terminating() && !was_marked => "marked",
                Some(_) => continue,
            };
            lines.push(format!("{} {} {what}", at.duration_since(start).as_secs(), change.key.kind));
        }
        lines
    }

    fn conditions(bench: &Bench<Namespaces>) -> Vec<String> {
        let namespace = bench.store().get::<Namespace>("", "n").expect("it is there");
        let conditions = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let wrong = conditions.into_iter().filter(|condition| condition.status == "True");
        wrong.map(|found| format!("{} {}", found.type_, found.message.unwrap_or_default())).collect()
    }

    #[test]
    fn everything_goes_after_five_seconds() {
        let unbound = object("v1", "Pod", &[], json!({ "containers": [] }));
        let mut bench = deleted(vec![unbound, config_map(&[])], 36);
        bench.run(60);
        let expected = ["0 Namespace marked", "5 Pod marked", "5 Pod gone", "5 ConfigMap gone", "5 Namespace gone"];
        assert_eq!(history(&mut bench), expected);
        assert!(bench.store().is_empty() && bench.is_at_rest());
    }

    #[test]
    fn pods_go_first_since_1_33() {
        for (version, expected) in [
            (36, vec!["0 Namespace marked", "5 Pod marked"]),
            (32, vec!["0 Namespace marked", "5 Pod marked", "5 ConfigMap gone"]),
        ] {
            let mut bench = deleted(vec![bound_pod(30), config_map(&[])], version);
            bench.run(20);
            assert_eq!(history(&mut bench), expected);
            let reported = conditions(&bench);
            if version == 36 {
                // Nothing is reported while pods remain within their grace period.
                assert!(reported.is_empty(), "{reported:?}");
            } else {
                let expected = "NamespaceContentRemaining Some resources are remaining: pods. has 1 resource instances";
                assert_eq!(reported, [expected]);
            }
        }
    }

    #[test]
    fn a_pod_that_stays_longer_than_its_grace_period_is_an_error() {
        let mut bench = deleted(vec![bound_pod(30), config_map(&[])], 36);
        bench.run(60);
        assert_eq!(
            conditions(&bench),
            ["NamespaceDeletionContentFailure Failed to delete all resource types, 1 remaining: unexpected items still \
              remain in namespace: n for gvr: /v1, Resource=pods"]
        );
        bench.run(300);
        assert!(bench.is_at_rest());
        // When the pod goes, the next try finds the namespace empty: at most a minute later.
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        bench.request(Write::Delete(SimKey::pod("n", "pod"), options)).expect("deleted");
        bench.run(61);
        assert!(bench.store().is_empty());
    }

    #[test]
    fn finalizers_of_content_are_waited_for() {
        let mut bench = deleted(vec![config_map(&["x/y"])], 36);
        bench.run(6);
        assert_eq!(
            conditions(&bench),
            [
                "NamespaceContentRemaining Some resources are remaining: configmaps. has 1 resource instances",
                "NamespaceFinalizersRemaining Some content in the namespace has finalizers remaining: x/y in 1 resource \
                 instances"
            ]
        );
        bench.run(24);
        assert!(bench.is_at_rest());
        let mut free = bench.store().object(&config_map(&[]).key()).expect("it is held").clone();
        free.metadata_mut().finalizers = None;
        bench.request(Write::Replace(free)).expect("replaced");
        bench.run(9);
        assert!(bench.store().is_empty());
    }

    #[test]
    fn nothing_can_be_created_meanwhile() {
        let mut bench = deleted(vec![bound_pod(30)], 36);
        let error = bench.request(Write::Create(config_map(&[]))).expect_err("forbidden");
        assert_eq!(
            error.to_string(),
            "configmaps \"configmap\" is forbidden: unable to create new content in namespace n because it is being \
             terminated"
        );
    }
}
