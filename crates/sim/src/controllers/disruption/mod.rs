//! The disruption controller (`pkg/controller/disruption`): how many pods of each budget can be disrupted now.
//!
//! A pod that two budgets cover wakes both; Kubernetes takes one of them, whichever comes first.

mod expected;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use stead_semantics::Selector;

use self::expected::{Counts, count};
use crate::budgets;
use crate::choices::Question;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pod_groups::PodGroups;
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disruption {
    /// The pods of each budget.
    budgets: PodGroups,
    /// Pods that changed while two budgets cover them, and the budget that is looked at.
    ambiguous: BTreeMap<SimKey, Arc<str>>,
}

impl Controller for Disruption {
    const COMPONENT: &'static str = "controllermanager";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::PodDisruptionBudget => {
                let (_, budget) = change.of::<PodDisruptionBudget>();
                let selector = budget.map(|budget| selector_of(budget).unwrap_or_else(|_| Selector::nothing()));
                self.budgets.set_selector(&change.key, selector, cx.store);
                if budget.is_some() {
                    wakes.now(change.key.clone());
                }
            }
            ObjectKind::Pod => {
                let (before, after) = self.budgets.pod_changed(change);
                // A pod that lost its labels is a change of the budgets of its new labels only.
                let concerned = if change.after.is_some() { after } else { before };
                // Of several budgets an arbitrary one is looked at (`getPdbForPod`).
                let names: Vec<&str> = concerned.iter().map(|budget| &*budget.name).collect();
                let pod = format!("{}/{}", change.key.namespace, change.key.name);
                let chosen = if names.len() > 1 { cx.choices.pick(Question::Budget { pod }, &names) } else { 0 };
                concerned.get(chosen).into_iter().for_each(|budget| wakes.now(budget.clone()));
                // An eviction marks the pod and deletes it: two changes, of which the second is made.
                let Some(pod) = cx.store.at::<Pod>(&change.key) else { return };
                if concerned.len() > 1 {
                    self.ambiguous.insert(change.key.clone(), Arc::clone(&concerned[chosen].name));
                    wakes.now(change.key.clone());
                }
                if let Some(left) = stale_in(pod, cx.now, cx.settings.timers.disruption_timeout) {
                    wakes.after(change.key.clone(), left);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        if let Some(pod) = cx.store.at::<Pod>(key) {
            return self.look_at_pod(cx, key, pod);
        }
        match cx.store.at::<PodDisruptionBudget>(key) {
            Some(budget) => self.sync(cx, key, budget),
            None => Step::none(),
        }
    }
}

impl Disruption {
    /// Reports a pod that two budgets cover, and takes back a disruption that did not happen
    /// (`syncStalePodDisruption`).
    fn look_at_pod(&mut self, cx: &Context<'_>, key: &SimKey, pod: &Pod) -> Step {
        let mut writes = Vec::new();
        if let Some(chosen) = self.ambiguous.remove(key) {
            let message = format!(
                "Pod {:?}/{:?} matches multiple PodDisruptionBudgets.  Chose {chosen:?} arbitrarily.",
                key.namespace, key.name
            );
            writes.push(Write::Event(EventNote::warning(key, "MultiplePodDisruptionBudgets", message)));
        }
        let Some(left) = stale_in(pod, cx.now, cx.settings.timers.disruption_timeout) else {
            return Step::writes(writes);
        };
        if left > SignedDuration::ZERO {
            return Step { writes, again: Some(left) };
        }
        let mut pod = pod.clone();
        let observed = if cx.settings.since(34) { pod.metadata.generation } else { None };
        let over = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "False".into(),
            observed_generation: observed,
            ..PodCondition::default()
        };
        pods::set_condition(&mut pod, over, cx.now);
        writes.push(Write::Status(SimObject::from(pod)));
        Step::writes(writes)
    }

    /// Computes the status of a budget (`trySync`).
    fn sync(&self, cx: &Context<'_>, key: &SimKey, budget: &PodDisruptionBudget) -> Step {
        let covered: Vec<&Arc<Pod>> = self.budgets.keys(key).filter_map(|pod| cx.store.at::<Pod>(pod)).collect();
        let mut writes = Vec::new();
        if let Err(error) = selector_of(budget) {
            writes.push(warning(key, "NoPods", format!("Failed to get pods: {error}")));
            writes.extend(fail_safe(budget, &error, cx.now));
            return Step::writes(writes);
        }
        if covered.is_empty() {
            writes.push(Write::Event(EventNote::normal(key, "NoPods", "No matching pods found")));
        }
        let counts = match count(cx.store, budget, &covered) {
            Ok(counts) => counts,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                writes.push(warning(key, "CalculateExpectedPodCountFailed", message));
                writes.extend(fail_safe(budget, &error, cx.now));
                return Step::writes(writes);
            }
        };
        if counts.unmanaged {
            writes.push(warning(key, "UnmanagedPods", unmanaged_message(budget)));
        }
        let timeout = cx.settings.timers.disruption_timeout;
        let (disrupted, recheck) = disrupted_pods(budget, &covered, cx.now, timeout, &mut writes);
        let is_healthy = |pod: &&&Arc<Pod>| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            !pods::is_terminating(pod) && !disrupted.contains_key(name) && pods::is_ready(pod)
        };
        let healthy = i32::try_from(covered.iter().filter(is_healthy).count()).unwrap_or(i32::MAX);
        writes.extend(updated(budget, &counts, healthy, disrupted, cx.now));
        Step { writes, again: recheck.map(|at| at.duration_since(cx.now) + cx.settings.timers.retry) }
    }
}

fn warning(key: &SimKey, reason: &'static str, message: String) -> Write {
    Write::Event(EventNote::warning(key, reason, message))
}

fn selector_of(budget: &PodDisruptionBudget) -> Result<Selector, String> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Selector::from_label_selector(selector).map_err(|error| error.kubernetes_message())
}

/// How long it takes until a pod that was to be disrupted counts as not disrupted. None if it is being deleted, has ended,
/// or is ended by its kubelet, which may take any time.
fn stale_in(pod: &Pod, now: Timestamp, timeout: SignedDuration) -> Option<SignedDuration> {
    let target = pods::condition(pod, "DisruptionTarget").filter(|condition| condition.status == "True")?;
    if pods::is_terminating(pod) || pods::has_ended(pod) || target.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    let since = target.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some((timeout - now.duration_since(since)).max(SignedDuration::ZERO))
}

/// The evictions that were allowed and have not happened yet, and when the first of them is given up
/// (`buildDisruptedPodMap`).
fn disrupted_pods(
    budget: &PodDisruptionBudget,
    covered: &[&Arc<Pod>],
    now: Timestamp,
    timeout: SignedDuration,
    writes: &mut Vec<Write>,
) -> (BTreeMap<String, Time>, Option<Timestamp>) {
    let (mut kept, mut recheck) = (BTreeMap::new(), None);
    let Some(before) = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref()) else {
        return (kept, recheck);
    };
    for pod in covered.iter().filter(|pod| !pods::is_terminating(pod)) {
        let Some((name, since)) = pod.metadata.name.as_ref().and_then(|name| before.get_key_value(name)) else {
            continue;
        };
        let due = since.0 + timeout;
        if due < now {
            // The message has the namespace twice, and not the name of the budget.
            let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            writes.push(warning(&SimKey::of(ObjectKind::Pod, &pod.metadata), "NotDeleted", message));
        } else {
            recheck = Some(recheck.map_or(due, |at: Timestamp| at.min(due)));
            kept.insert(name.clone(), since.clone());
        }
    }
    (kept, recheck)
}

/// The status of a budget, if it differs (`updatePdbStatus`).
fn updated(
    budget: &PodDisruptionBudget,
    counts: &Counts,
    healthy: i32,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> Option<Write> {
    let allowed = if counts.expected <= 0 { 0 } else { (healthy - counts.desired).max(0) };
    let generation = budget.metadata.generation;
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(counts.desired),
        expected_pods: Some(counts.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: generation,
        conditions: budget.status.as_ref().and_then(|status| status.conditions.clone()),
    };
    if budget.status.as_ref() == Some(&status) && budgets::is_condition_current(budget) {
        return None;
    }
    budgets::update_condition(&mut status, now);
    Some(Write::Status(SimObject::from(PodDisruptionBudget { status: Some(status), ..budget.clone() })))
}

/// What is not known is not allowed (`failSafe`).
fn fail_safe(budget: &PodDisruptionBudget, error: &str, now: Timestamp) -> Option<Write> {
    let mut failed = budget.clone();
    let status = failed.status.get_or_insert_default();
    status.disruptions_allowed = Some(0);
    budgets::set_condition(status, "False", budgets::SYNC_FAILED, error, now);
    (failed != *budget).then(|| Write::Status(SimObject::from(failed)))
}

fn unmanaged_message(budget: &PodDisruptionBudget) -> String {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector.map_or_else(|| "nil".to_owned(), printed)
    )
}

/// A selector as Go prints it.
fn printed(selector: &LabelSelector) -> String {
    let labels: String = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement\
         {{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::bench::Bench;
    use crate::settings::Settings;
    use crate::step::DeleteOptions;
    use serde_json::{Value, json};

    fn object(value: Value) -> SimObject {
        SimObject::from_json(&value).expect("an object")
    }

    fn owner(api: &str, kind: &str, name: &str) -> Value {
        json!({ "apiVersion": api, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true })
    }

    fn workload(kind: &str, name: &str, replicas: i32, owner: Value) -> SimObject {
        let owners = if owner.is_null() { json!([]) } else { json!([owner]) };
        object(json!({ "apiVersion": "apps/v1", "kind": kind,
            "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "ownerReferences": owners },
            "spec": { "replicas": replicas, "selector": {}, "serviceName": "",
                "template": { "spec": { "containers": [] } } } }))
    }

    fn pod(name: &str, owner: Value, ready: bool) -> SimObject {
        let owners = if owner.is_null() { json!([]) } else { json!([owner]) };
        object(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "labels": { "app": "x" }, "ownerReferences": owners },
            "spec": { "nodeName": "a", "containers": [], "terminationGracePeriodSeconds": 30 },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } }))
    }

    fn budget(name: &str, spec: Value) -> SimObject {
        let mut spec = spec;
        spec["selector"] = json!({ "matchLabels": { "app": "x" } });
        object(json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": name, "namespace": "n", "generation": 1 }, "spec": spec }))
    }

    fn bench(objects: Vec<SimObject>) -> Bench<Disruption> {
        Bench::new(Settings::default(), objects)
    }

    /// The status of the budget `b`: healthy, desired, expected and allowed; and the reason of its condition.
    fn status(bench: &Bench<Disruption>) -> (Vec<i64>, String) {
        let budget = bench.store().get::<PodDisruptionBudget>("n", "b").expect("the budget");
        let status = serde_json::to_value(&budget.status).expect("JSON");
        let fields = ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"];
        let numbers = fields.iter().map(|field| status[field].as_i64().unwrap_or(-1)).collect();
        (numbers, status["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn counts() {
        let set = || owner("apps/v1", "ReplicaSet", "r");
        let ready = |count: usize, owner: fn() -> Value| -> Vec<SimObject> {
            (0..count).map(|i| pod(&format!("p{i}"), owner(), true)).collect()
        };
        let of_set: fn() -> Value = || owner("apps/v1", "ReplicaSet", "r");
        let of_stateful_set: fn() -> Value = || owner("apps/v1", "StatefulSet", "s");
        let of_daemon_set: fn() -> Value = || owner("apps/v1", "DaemonSet", "d");
        let alone: fn() -> Value = || Value::Null;
        let replica_set = |replicas, owner| workload("ReplicaSet", "r", replicas, owner);
        let ok = |numbers: [i64; 4]| (numbers.to_vec(), if numbers[3] > 0 { "SufficientPods" } else { "InsufficientPods" });
        let failed = (vec![0, 0, 0, 0], "SyncFailed");
        for (what, spec, objects, expected) in [
            ("no pods", json!({ "minAvailable": 1 }), vec![], ok([0, 1, 0, 0])),
            ("minAvailable", json!({ "minAvailable": 3 }), ready(4, alone), ok([4, 3, 4, 1])),
            ("minAvailable 0", json!({ "minAvailable": 0 }), ready(1, alone), ok([1, 0, 1, 1])),
            ("not all ready", json!({ "minAvailable": 1 }), vec![pod("a", set(), true), pod("b", set(), false)], ok([1, 1, 2, 0])),
            (
                "a percentage rounds up",
                json!({ "minAvailable": "28%" }),
                [ready(10, of_set), vec![replica_set(10, Value::Null)]].concat(),
                ok([10, 3, 10, 7]),
            ),
            (
                "maxUnavailable",
                json!({ "maxUnavailable": 1 }),
                [ready(3, of_stateful_set), vec![workload("StatefulSet", "s", 3, Value::Null)]].concat(),
                ok([3, 2, 3, 1]),
            ),
            (
                "maxUnavailable of the scale, not of the pods",
                json!({ "maxUnavailable": "34%" }),
                [ready(2, of_set), vec![replica_set(3, Value::Null)]].concat(),
                ok([2, 1, 3, 1]),
            ),
            (
                "the scale of a Deployment",
                json!({ "maxUnavailable": 1 }),
                [
                    ready(5, of_set),
                    vec![replica_set(2, owner("apps/v1", "Deployment", "d")), workload("Deployment", "d", 5, Value::Null)],
                ]
                .concat(),
                ok([5, 4, 5, 1]),
            ),
            ("pods without a controller", json!({ "maxUnavailable": 1 }), ready(2, alone), ok([2, 0, 0, 0])),
            ("a controller that is gone", json!({ "maxUnavailable": 1 }), ready(2, of_set), failed.clone()),
            ("a DaemonSet", json!({ "maxUnavailable": 1 }), ready(2, of_daemon_set), failed.clone()),
        ] {
            let mut objects = objects;
            let mut budget = budget("b", spec);
            let empty = json!({ "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0 });
            if let SimObject::PodDisruptionBudget(budget) = &mut budget {
                Arc::make_mut(budget).status = serde_json::from_value(empty).expect("a status");
            }
            objects.push(budget);
            let mut bench = bench(objects);
            bench.run(10);
            let (numbers, reason) = status(&bench);
            assert_eq!((numbers, reason.as_str()), expected, "{what}");
            assert!(bench.is_at_rest(), "{what}");
        }
    }

    #[test]
    fn events() {
        let expected = |objects: Vec<SimObject>, spec: Value| {
            let mut bench = bench(objects.into_iter().chain([budget("b", spec)]).collect());
            bench.run(10);
            bench.events()
        };
        let about = "poddisruptionbudget n/b";
        assert_eq!(expected(vec![], json!({ "minAvailable": 1 })), [format!("{about} NoPods: No matching pods found")]);
        let daemon = pod("p", owner("apps/v1", "DaemonSet", "d"), true);
        assert_eq!(
            expected(vec![daemon], json!({ "maxUnavailable": 1 })),
            [format!(
                "{about} CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: daemonsets.apps \
                 does not implement the scale subresource"
            )]
        );
        assert_eq!(
            expected(vec![pod("p", Value::Null, true)], json!({ "minAvailable": "50%" })),
            [format!(
                "{about} UnmanagedPods: Pods selected by this PodDisruptionBudget (selector: \
                 &LabelSelector{{MatchLabels:map[string]string{{app: x,}},MatchExpressions:[]LabelSelectorRequirement{{}},}}) \
                 were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may \
                 result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB \
                 to an integer value."
            )]
        );
        let two = vec![pod("p", Value::Null, true), budget("a", json!({ "minAvailable": 1 }))];
        let mut bench = bench(two.into_iter().chain([budget("b", json!({ "minAvailable": 1 }))]).collect());
        bench.run(10);
        let mut touched = bench.store().object(&SimKey::pod("n", "p")).expect("the pod").clone();
        touched.metadata_mut().annotations.get_or_insert_default().insert("x".into(), "y".into());
        bench.request(Write::Replace(touched)).expect("replaced");
        bench.run(10);
        assert_eq!(
            bench.events(),
            ["pod n/p MultiplePodDisruptionBudgets: Pod \"n\"/\"p\" matches multiple PodDisruptionBudgets.  Chose \"a\" \
              arbitrarily."]
        );
    }

    #[test]
    fn an_eviction_closes_the_budget_until_the_pod_is_replaced() {
        let pods = ["p0", "p1", "p2"].map(|name| pod(name, Value::Null, true));
        let mut bench = bench(pods.into_iter().chain([budget("b", json!({ "minAvailable": 2 }))]).collect());
        bench.run(1);
        assert_eq!(status(&bench).0, [3, 2, 3, 1]);
        bench.request(Write::Evict(SimKey::pod("n", "p0"), DeleteOptions::default())).expect("allowed");
        bench.run(1);
        let error = bench.request(Write::Evict(SimKey::pod("n", "p1"), DeleteOptions::default())).expect_err("refused");
        assert_eq!(error.code(), 429);
        assert_eq!(status(&bench), (vec![2, 2, 3, 0], "InsufficientPods".into()));
        let budget = bench.store().get::<PodDisruptionBudget>("n", "b").expect("the budget");
        // The pod is marked as being deleted: its entry is not needed any more.
        assert_eq!(budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()), None);
        assert!(bench.is_at_rest());
    }

    #[test]
    fn a_disruption_that_does_not_happen_is_forgotten_after_two_minutes() {
        let mut disrupted = budget("b", json!({ "minAvailable": 1 }));
        if let SimObject::PodDisruptionBudget(budget) = &mut disrupted {
            let status = json!({ "disruptedPods": { "p": "2027-01-15T07:59:00Z" }, "currentHealthy": 0,
                "desiredHealthy": 1, "expectedPods": 1, "disruptionsAllowed": 0 });
            Arc::make_mut(budget).status = serde_json::from_value(status).expect("a status");
        }
        let mut target = pod("p", Value::Null, true);
        if let SimObject::Pod(pod) = &mut target {
            let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": "2027-01-15T07:59:30Z" });
            let conditions = pods::status_mut(Arc::make_mut(pod)).conditions.get_or_insert_default();
            conditions.push(serde_json::from_value(condition).expect("a condition"));
        }
        let mut bench = bench(vec![target, disrupted]);
        let target = |bench: &Bench<Disruption>| {
            let pod = bench.store().get::<Pod>("n", "p").expect("the pod");
            pods::condition(pod, "DisruptionTarget").map(|found| found.status.clone()).unwrap_or_default()
        };
        for (seconds, healthy, disrupted) in [(59, 0, "True"), (2, 1, "True"), (28, 1, "True"), (2, 1, "False")] {
            bench.run(seconds);
            assert_eq!((status(&bench).0[0], target(&bench).as_str()), (healthy, disrupted), "{}", bench.now);
        }
        assert_eq!(bench.events(), ["pod n/p NotDeleted: Pod was expected by PDB n/n to be deleted but it wasn't"]);
        assert!(bench.is_at_rest());
    }
}
