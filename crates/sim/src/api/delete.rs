//! Deletion (`rest.BeforeDelete` and `Store.Delete` of the generic registry, `CheckGracefulDelete` of pods,
//! `REST.Delete` of namespaces).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ApiServer, Request, drop_empty, strategy, whole_seconds};
use crate::error::{ApiError, qualified_kind};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods;
use crate::step::{DeleteOptions, DeletePropagation};
use crate::store::Change;

/// The finalizer of an object whose dependents are deleted first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents lose it as an owner first.
pub(crate) const ORPHAN: &str = "orphan";
/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// What a deletion does with the grace period of a pod.
#[derive(Debug, PartialEq, Eq)]
enum Grace {
    /// The object has none: it goes at once, or with its last finalizer.
    None,
    /// The pod has one that ends sooner than the requested one: nothing changes.
    Pending,
    /// The pod gets a new one. At zero seconds it is removed after that.
    Set {
        /// When the pod is to be removed.
        due: Timestamp,
        /// What is written to the pod, in seconds.
        period: i64,
        /// What was asked for, in seconds.
        requested: i64,
    },
}

impl ApiServer {
    /// Deletes an object. A pod that goes at once is marked first: two changes.
    pub(super) fn delete(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        options: &DeleteOptions,
    ) -> Result<Vec<Change>, ApiError> {
        let Some(before) = self.store.object(key) else { return Err(ApiError::NotFound(key.clone())) };
        if let SimObject::Namespace(namespace) = before {
            check_namespace(namespace, key, options)?;
            if namespace.metadata.deletion_timestamp.is_none() {
                let marked = marked_namespace(namespace, options, request.now);
                return Ok(vec![self.commit(&mut SimObject::from(marked))]);
            }
            if strategy::has_content(before) {
                return Ok(Vec::new());
            }
        }
        check(before.metadata(), key, options)?;
        let grace = match before {
            SimObject::Pod(pod) => grace(pod, options, request.now),
            _ => Grace::None,
        };
        if grace == Grace::Pending {
            return Ok(Vec::new());
        }
        let mut object = before.clone();
        let finalizers = finalizers(before.metadata(), key.kind, options.propagation);
        let held = finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if before.metadata().finalizers != finalizers {
            object.metadata_mut().finalizers = finalizers;
        }
        match grace {
            Grace::Set { due, period, .. } => mark(object.metadata_mut(), due, period),
            _ if held => {
                let now = whole_seconds(request.now).0;
                let due = before.metadata().deletion_timestamp.as_ref().map_or(now, |due| due.0.min(request.now));
                mark(object.metadata_mut(), due, 0);
            }
            _ => return Ok(Vec::from_iter(self.remove(key))),
        }
        let mut changes = Vec::new();
        if object != *before {
            changes.push(self.commit(&mut object));
        }
        if !held && matches!(grace, Grace::Set { requested: 0, .. }) {
            changes.extend(self.remove(key));
        }
        Ok(changes)
    }
}

/// Refuses to delete another object of the same name, or another version.
fn check(metadata: &ObjectMeta, key: &SimKey, options: &DeleteOptions) -> Result<(), ApiError> {
    let conflict =
        |message: String| Err(ApiError::ConflictOn { key: key.clone(), subject: qualified_kind(key), message });
    if let Some(uid) = options.uid.as_ref().filter(|uid| metadata.uid.as_ref() != Some(uid)) {
        let found = metadata.uid.as_deref().unwrap_or_default();
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been \
             deleted and then recreated"
        ));
    }
    let version =
        options.resource_version.as_ref().filter(|version| metadata.resource_version.as_ref() != Some(version));
    if let Some(version) = version {
        let found = metadata.resource_version.as_deref().unwrap_or_default();
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). \
             The object might have been modified"
        ));
    }
    Ok(())
}

fn check_namespace(namespace: &Namespace, key: &SimKey, options: &DeleteOptions) -> Result<(), ApiError> {
    if IMMORTAL.contains(&&*key.name) {
        return Err(ApiError::Forbidden { key: key.clone(), message: "this namespace may not be deleted".into() });
    }
    let found = &namespace.metadata;
    for (what, wanted, found) in
        [("UID", &options.uid, &found.uid), ("ResourceVersion", &options.resource_version, &found.resource_version)]
    {
        if let Some(wanted) = wanted.as_ref().filter(|wanted| found.as_ref() != Some(wanted)) {
            let found = found.as_deref().unwrap_or_default();
            let message =
                format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(ApiError::Conflict { key: key.clone(), message });
        }
    }
    Ok(())
}

/// A namespace stays until its controller has deleted everything in it.
fn marked_namespace(namespace: &Arc<Namespace>, options: &DeleteOptions, now: Timestamp) -> Namespace {
    let mut namespace = Namespace::clone(namespace);
    namespace.metadata.deletion_timestamp = Some(whole_seconds(now));
    namespace.status.get_or_insert_default().phase = Some("Terminating".into());
    namespace.metadata.finalizers = finalizers(&namespace.metadata, ObjectKind::Namespace, options.propagation);
    drop_empty(&mut namespace.metadata);
    namespace
}

/// Marks an object as being deleted. The first time that is a new generation.
fn mark(metadata: &mut ObjectMeta, due: Timestamp, period: i64) {
    if metadata.deletion_timestamp.is_none() {
        metadata.generation = metadata.generation.map(|generation| generation + 1);
    }
    metadata.deletion_timestamp = Some(whole_seconds(due));
    metadata.deletion_grace_period_seconds = Some(period);
}

/// The finalizers of an object that is deleted. The policy of the request counts; without one a finalizer of the object,
/// then the default of its kind.
fn finalizers(metadata: &ObjectMeta, kind: ObjectKind, policy: DeletePropagation) -> Option<Vec<String>> {
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    let given = |finalizer: &&String| *finalizer == FOREGROUND || *finalizer == ORPHAN;
    let wanted = match policy {
        DeletePropagation::Background => None,
        DeletePropagation::Foreground => Some(FOREGROUND),
        DeletePropagation::Orphan => Some(ORPHAN),
        DeletePropagation::Unspecified => {
            let default = strategy::orphans_by_default(kind).then_some(ORPHAN);
            all.iter().find(given).map(String::as_str).or(default)
        }
    };
    // The order stays if the set does.
    let present: Vec<&str> = all.iter().filter(given).map(String::as_str).collect();
    if present == Vec::from_iter(wanted) {
        return metadata.finalizers.clone();
    }
    let kept = all.iter().filter(|finalizer| !given(finalizer)).map(String::as_str);
    let finalizers: Vec<String> = kept.chain(wanted).map(str::to_owned).collect();
    (!finalizers.is_empty()).then_some(finalizers)
}

/// The grace period of a pod that is deleted. A second deletion can only shorten it, counted from the first request.
fn grace(pod: &Pod, options: &DeleteOptions, now: Timestamp) -> Grace {
    let seconds = SignedDuration::from_secs;
    let given = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    if let Some(due) = &pod.metadata.deletion_timestamp {
        return match (pod.metadata.deletion_grace_period_seconds.unwrap_or(0), given) {
            (0, _) => Grace::None,
            (_, None) => Grace::Pending,
            (before, Some(period)) if period >= before => Grace::Pending,
            (before, Some(period)) => {
                let shortened = due.0 - seconds(before) + seconds(period);
                // A grace period that is over already ends now, but the pod stays until somebody removes it.
                let late = shortened < now;
                let written = if late && period != 0 { 1 } else { period };
                Grace::Set { due: if late { now } else { shortened }, period: written, requested: period }
            }
        };
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
    let period = match given.unwrap_or(own) {
        _ if pods::node_of(pod).is_none() || pods::has_ended(pod) => 0,
        period if period < 0 => 1,
        period => period,
    };
    Grace::Set { due: now + seconds(period), period, requested: period }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Choices;
    use crate::settings::Settings;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    fn request<'a>(second: i64, settings: &'a Settings, choices: &'a mut Choices) -> Request<'a> {
        Request { now: at(second), settings, choices }
    }

    /// Deletes an object some times, at these seconds, and gives what is left: the generation, the seconds of its
    /// deletionTimestamp, the grace period and the finalizers; and how many changes there were.
    fn deleted(object: &Value, deletions: &[(i64, DeleteOptions)]) -> (Option<Value>, usize) {
        let object = SimObject::from_json(object).expect("an object");
        let key = object.key();
        let mut server = ApiServer::with_objects(&Settings::default(), [object]);
        let (settings, mut choices) = (Settings::default(), Choices::seeded(1));
        let mut changes = 0;
        for (second, options) in deletions {
            let request = request(*second, &settings, &mut choices);
            changes += server.delete(&request, &key, options).expect("deleted").len();
        }
        let left = server.store().object(&key).map(|object| {
            let metadata = object.metadata();
            let due = metadata.deletion_timestamp.as_ref().map(|due| due.0.duration_since(at(0)).as_secs());
            json!([metadata.generation, due, metadata.deletion_grace_period_seconds, metadata.finalizers])
        });
        (left, changes)
    }

    fn pod(node: &str, phase: &str, finalizers: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "generation": 1, "finalizers": finalizers },
            "spec": { "nodeName": node, "terminationGracePeriodSeconds": 30, "containers": [] },
            "status": { "phase": phase } })
    }

    fn grace_of(grace: i64) -> DeleteOptions {
        DeleteOptions { grace: Some(grace), ..DeleteOptions::default() }
    }

    fn plain() -> DeleteOptions {
        DeleteOptions::default()
    }

    #[test]
    fn graceful_deletion_of_pods() {
        let running = pod("a", "Running", json!([]));
        let held = pod("a", "Running", json!(["x/y"]));
        for (what, pod, deletions, expected) in [
            ("its own grace", &running, vec![(0, plain())], (Some(json!([2, 30, 30, []])), 1)),
            ("a given grace", &running, vec![(0, grace_of(5))], (Some(json!([2, 5, 5, []])), 1)),
            ("a negative grace", &running, vec![(0, grace_of(-1))], (Some(json!([2, 1, 1, []])), 1)),
            ("no grace", &running, vec![(0, grace_of(0))], (None, 2)),
            ("unscheduled", &pod("", "Pending", json!([])), vec![(0, plain())], (None, 2)),
            ("finished", &pod("a", "Succeeded", json!([])), vec![(0, plain())], (None, 2)),
            (
                "bound, not started",
                &pod("a", "Pending", json!([])),
                vec![(0, plain())],
                (Some(json!([2, 30, 30, []])), 1),
            ),
            ("again", &running, vec![(0, plain()), (10, plain())], (Some(json!([2, 30, 30, []])), 1)),
            ("again, longer", &running, vec![(0, plain()), (10, grace_of(60))], (Some(json!([2, 30, 30, []])), 1)),
            ("again, shorter", &running, vec![(0, plain()), (10, grace_of(20))], (Some(json!([2, 20, 20, []])), 2)),
            ("again, over already", &running, vec![(0, plain()), (10, grace_of(5))], (Some(json!([2, 10, 1, []])), 2)),
            ("again, forced", &running, vec![(0, plain()), (10, grace_of(0))], (None, 3)),
            ("held", &held, vec![(0, plain())], (Some(json!([2, 30, 30, ["x/y"]])), 1)),
            ("held, forced", &held, vec![(0, grace_of(0))], (Some(json!([2, 0, 0, ["x/y"]])), 1)),
            ("held, forced later", &held, vec![(0, plain()), (10, grace_of(0))], (Some(json!([2, 10, 0, ["x/y"]])), 2)),
            (
                "held, forced twice",
                &held,
                vec![(0, grace_of(0)), (9, grace_of(0))],
                (Some(json!([2, 0, 0, ["x/y"]])), 1),
            ),
        ] {
            assert_eq!(deleted(pod, &deletions), expected, "{what}");
        }
    }

    fn workload(api: &str, kind: &str, finalizers: Value) -> Value {
        json!({ "apiVersion": api, "kind": kind,
            "metadata": { "name": "w", "namespace": "n", "generation": 4, "finalizers": finalizers } })
    }

    #[test]
    fn finalizers_of_the_garbage_collector() {
        use DeletePropagation::{Background, Foreground, Orphan, Unspecified};
        let by = |propagation| DeleteOptions { propagation, ..DeleteOptions::default() };
        let marked = |finalizers: Value| (Some(json!([5, 0, 0, finalizers])), 1);
        let gone = (None, 1);
        for (what, kind, finalizers, policies, expected) in [
            ("default", ("apps/v1", "ReplicaSet"), json!([]), vec![Unspecified], gone.clone()),
            ("default of a Job", ("batch/v1", "Job"), json!([]), vec![Unspecified], marked(json!([ORPHAN]))),
            ("a Job in background", ("batch/v1", "Job"), json!([]), vec![Background], gone.clone()),
            ("foreground", ("apps/v1", "ReplicaSet"), json!([]), vec![Foreground], marked(json!([FOREGROUND]))),
            ("orphan", ("apps/v1", "ReplicaSet"), json!([]), vec![Orphan], marked(json!([ORPHAN]))),
            (
                "its own finalizer",
                ("apps/v1", "ReplicaSet"),
                json!([ORPHAN]),
                vec![Unspecified],
                marked(json!([ORPHAN])),
            ),
            ("against its finalizer", ("apps/v1", "ReplicaSet"), json!([ORPHAN]), vec![Background], gone.clone()),
            (
                "others stay",
                ("apps/v1", "ReplicaSet"),
                json!(["x/y"]),
                vec![Foreground],
                marked(json!(["x/y", FOREGROUND])),
            ),
            ("again", ("apps/v1", "ReplicaSet"), json!([]), vec![Foreground, Unspecified], marked(json!([FOREGROUND]))),
            (
                "foreground, then background",
                ("apps/v1", "ReplicaSet"),
                json!([]),
                vec![Foreground, Background],
                (None, 2),
            ),
            (
                "foreground, then orphan",
                ("apps/v1", "ReplicaSet"),
                json!([]),
                vec![Foreground, Orphan],
                (Some(json!([5, 0, 0, [ORPHAN]])), 2),
            ),
        ] {
            let deletions: Vec<_> =
                policies.into_iter().zip([0, 10]).map(|(policy, second)| (second, by(policy))).collect();
            assert_eq!(deleted(&workload(kind.0, kind.1, finalizers), &deletions), expected, "{what}");
        }
    }

    #[test]
    fn preconditions() {
        let mut object = workload("apps/v1", "ReplicaSet", json!([]));
        object["metadata"]["uid"] = json!("u1");
        object["metadata"]["resourceVersion"] = json!("7");
        let object = SimObject::from_json(&object).expect("an object");
        let (settings, mut choices) = (Settings::default(), Choices::seeded(1));
        let request = request(0, &settings, &mut choices);
        let refused = |uid: Option<&str>, version: Option<&str>| {
            let mut server = ApiServer::with_objects(&Settings::default(), [object.clone()]);
            let options = DeleteOptions {
                uid: uid.map(str::to_owned),
                resource_version: version.map(str::to_owned),
                ..DeleteOptions::default()
            };
            server.delete(&request, &object.key(), &options).err().map(|error| error.to_string())
        };
        assert_eq!(refused(Some("u1"), Some("7")), None);
        assert_eq!(
            refused(Some("u2"), None).as_deref(),
            Some(
                "Operation cannot be fulfilled on ReplicaSet.apps \"w\": the UID in the precondition (u2) does not match \
                 the UID in record (u1). The object might have been deleted and then recreated"
            )
        );
        assert_eq!(
            refused(None, Some("6")).as_deref(),
            Some(
                "Operation cannot be fulfilled on ReplicaSet.apps \"w\": the ResourceVersion in the precondition (6) does \
                 not match the ResourceVersion in record (7). The object might have been modified"
            )
        );
    }

    #[test]
    fn a_namespace_stays_until_it_is_empty() {
        let namespace = |finalizers: Value| {
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" },
                "spec": { "finalizers": finalizers }, "status": { "phase": "Active" } })
        };
        let marked = |changes| (Some(json!([null, 0, null, null])), changes);
        assert_eq!(deleted(&namespace(json!(["kubernetes"])), &[(0, plain()), (10, plain())]), marked(1));
        assert_eq!(deleted(&namespace(json!([])), &[(0, plain())]), marked(1));
        assert_eq!(deleted(&namespace(json!([])), &[(0, plain()), (10, plain())]), (None, 2));
    }
}
