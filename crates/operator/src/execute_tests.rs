//! A loop of the test against a fake server that fails on demand.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Map;
use stead_client::Verb;
use stead_election::{ElectionRole, Term};
use stead_loops::{Failure, Store};
use stead_model::ObjectRef;

use super::*;
use crate::loop_set::LoopSet;

/// A server that keeps objects by their path, and rejects requests on demand.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    revision: u64,
    /// The next rejections: verb, part of the path, status code.
    faults: VecDeque<(Verb, &'static str, u16)>,
    log: Vec<String>,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn fail(&self, verb: Verb, path: &'static str, codes: &[u16]) {
        self.state().faults.extend(codes.iter().map(|code| (verb, path, *code)));
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    /// Changes an object, as another client would.
    fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision.to_string();
        let object = state.objects.get_mut(path).unwrap();
        change(object);
        object["metadata"]["resourceVersion"] = revision.into();
        object.clone()
    }
}

fn fault(code: u16) -> Fault {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        404 => "NotFound",
        _ => "Other",
    };
    let retry_after = (code == 429).then(|| Duration::from_secs(7));
    Fault { failure: Failure { code, reason: reason.into(), message: format!("no: {code}") }, retry_after }
}

/// The `fieldsV1` of an applied object; lists are atomic.
fn fields(value: &Value) -> Value {
    let Some(map) = value.as_object() else { return json!({}) };
    map.iter().map(|(k, v)| (format!("f:{k}"), fields(v))).collect::<Map<_, _>>().into()
}

impl Api for Server {
    async fn send(&self, request: ApiRequest) -> Result<Value, Fault> {
        let mut state = self.state();
        let path = request.path.clone();
        let short: String =
            path.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/");
        state.log.push(format!("{} {short}", request.verb.name()));
        if let Some(at) = state.faults.iter().position(|(verb, part, _)| *verb == request.verb && path.contains(part)) {
            let (_, _, code) = state.faults.remove(at).unwrap();
            return Err(fault(code));
        }
        state.revision += 1;
        let revision = state.revision.to_string();
        let body = request.body.unwrap_or_default();
        match request.verb {
            Verb::Get => state.objects.get(&path).cloned().ok_or_else(|| fault(404)),
            Verb::List => Ok(json!({"items": []})),
            Verb::Create | Verb::Update => Ok(body),
            Verb::Delete => match state.objects.get(&path).map(|o| o["metadata"]["uid"].clone()) {
                None => Err(fault(404)),
                Some(uid) if uid != body["preconditions"]["uid"] => Err(fault(409)),
                Some(_) => {
                    state.objects.remove(&path);
                    Ok(json!({"kind": "Status", "status": "Success"}))
                }
            },
            Verb::Patch => {
                let object = state.objects.get_mut(&path).ok_or_else(|| fault(404))?;
                if object["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return Err(fault(409));
                }
                let mut patch = body;
                patch["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                merge(object, &patch);
                object["metadata"]["resourceVersion"] = revision.into();
                Ok(object.clone())
            }
            Verb::Apply => {
                if let Some(main) = path.strip_suffix("/status") {
                    let object = state.objects.get_mut(main).ok_or_else(|| fault(404))?;
                    object["status"] = body["status"].clone();
                    object["metadata"]["resourceVersion"] = revision.into();
                    return Ok(object.clone());
                }
                let mut object =
                    state.objects.get(&path).cloned().unwrap_or_else(|| json!({"metadata": {"uid": revision}}));
                merge(&mut object, &body);
                let mut ours = body.clone();
                for key in ["apiVersion", "kind"] {
                    ours.as_object_mut().unwrap().remove(key);
                }
                ours.as_object_mut().unwrap().remove("metadata");
                let mut managed = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
                managed.retain(|m| m["manager"] != "stead");
                managed.push(json!({"manager": "stead", "operation": "Apply", "fieldsV1": fields(&ours)}));
                object["metadata"]["managedFields"] = managed.into();
                object["metadata"]["resourceVersion"] = revision.into();
                state.objects.insert(path, object.clone());
                Ok(object)
            }
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

/// A Topology gets a Service of its name, and a ServiceAccount if its spec says so; its status reports the result.
fn step(world: &World<'_>, key: &ObjectKey) -> LoopStep {
    let Some(topology) = world.store.raw(key) else { return LoopStep::default() };
    assert!(topology["spec"]["panic"].is_null(), "a panic");
    let service = ObjectKey::new("Service", &key.namespace, &key.name);
    let mut writes = Vec::new();
    if let Some(uid) = topology["spec"]["remove"].as_str() {
        let uid = uid.to_owned();
        writes.push(Write::Delete { key: service.clone(), uid, propagation: Propagation::Background });
    } else {
        writes.push(Write::Apply {
            object: json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {"value": topology["spec"]["value"]}}),
            exclusive: vec!["/spec"],
        });
    }
    if topology["spec"]["account"] == true {
        let metadata = json!({"name": key.name, "namespace": key.namespace, "labels": {"service": "glance"}});
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        writes.push(Write::Apply { object, exclusive: Vec::new() });
    }
    let secret = topology["spec"]["secret"]
        .as_str()
        .and_then(|name| world.store.raw(&ObjectKey::namespaced("Secret", "n", name)));
    let fine = secret.map_or("fine", |s| s["data"]["value"].as_str().unwrap_or("fine"));
    let said = world.failures.values().next().map_or(fine, |f| f.message.as_str());
    writes.push(Write::Status {
        object: json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
            "metadata": {"name": key.name, "namespace": key.namespace}, "status": {"said": said}}),
    });
    writes.push(Write::Event(LoopEvent { about: key.clone(), warning: false, reason: "Looked", message: said.into() }));
    LoopStep { writes, again: Some(Duration::from_secs(60)), wants_cluster: false }
}

fn affected(_: &Store, _: Option<ObjectRef<'_>>, _: Option<ObjectRef<'_>>) -> Vec<ObjectKey> {
    Vec::new()
}

const LOOPS: LoopSet = LoopSet {
    watched: stead_loops::WATCHED,
    read_by_name: stead_loops::READ_BY_NAME,
    references,
    reconciled: &["Topology"],
    step,
    affected,
};

/// A Topology may refer to one Secret.
fn references(topology: ObjectRef<'_>) -> Vec<ObjectKey> {
    let name = topology.raw()["spec"]["secret"].as_str();
    name.map(|name| ObjectKey::new("Secret", "n", name)).into_iter().collect()
}

const SECRET: &str = "/api/v1/namespaces/n/secrets/s";
const SERVICE: &str = "/api/v1/namespaces/n/services/a";
/// Watched only where it has the label `service=glance`.
const ACCOUNT: &str = "/api/v1/namespaces/n/serviceaccounts/a";
const TOPOLOGY: &str = "/apis/topology.openstack.org/v1beta1/namespaces/n/topologies/a";
const WELL: Ended = Ended::Well { again: Some(Duration::from_secs(60)) };

fn key() -> ObjectKey {
    ObjectKey::new("Topology", "n", "a")
}

/// A server with one Topology, and an executor that has it in its index.
fn scene() -> (Server, Executor<Server>) {
    let server = Server::default();
    let topology = json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
        "metadata": {"name": "a", "namespace": "n", "uid": "t", "resourceVersion": "0"}, "spec": {"value": 1}});
    server.state().objects.insert(TOPOLOGY.into(), topology.clone());
    let shared = Arc::new(Shared::new(LOOPS, Vec::new()));
    shared.leadership.set(ElectionRole::Leader(Term::Endless));
    shared.define("Topology", "topologies.topology.openstack.org", Some(false));
    shared.learn(|index| index.put(topology));
    let settings = LoopSettings {
        replace_default_anti_affinity: false,
        glance_image: String::new(),
        cluster_domain: "cluster.local".into(),
    };
    (server.clone(), Executor::new(server, shared, settings, "me".into()))
}

fn see(executor: &Executor<Server>, object: Value) {
    executor.shared.learn(|index| index.put(object));
}

#[tokio::test]
async fn a_loop_that_panics_is_retried() {
    let (server, executor) = scene();
    let mut broken = server.state().objects[TOPOLOGY].clone();
    broken["spec"]["panic"] = true.into();
    broken["metadata"]["resourceVersion"] = "1".into();
    see(&executor, broken.clone());
    assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None });
    assert_eq!(server.asked(), [""; 0]);
    broken["spec"]["panic"] = Value::Null;
    broken["metadata"]["resourceVersion"] = "2".into();
    see(&executor, broken);
    assert_eq!(executor.look(&key()).await, WELL);
}

#[tokio::test]
async fn nothing_is_written_without_a_difference() {
    let (server, executor) = scene();
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked(), ["apply services/a", "apply a/status", "create n/events"]);
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked(), [""; 0], "not even the event is repeated");
}

#[tokio::test]
async fn changes_by_others_are_reverted() {
    let (server, executor) = scene();
    executor.look(&key()).await;
    server.asked();
    see(&executor, server.edit(SERVICE, |s| s["spec"]["value"] = 2.into()));
    executor.look(&key()).await;
    assert_eq!(server.asked(), ["apply services/a"]);
    see(
        &executor,
        server.edit(SERVICE, |s| {
            s["spec"]["more"] = true.into();
            let other =
                json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:more": {}}}});
            s["metadata"]["managedFields"].as_array_mut().unwrap().push(other);
        }),
    );
    executor.look(&key()).await;
    assert_eq!(server.asked(), ["patch services/a"]);
    assert_eq!(server.state().objects[SERVICE]["spec"], json!({"value": 1}));
}

#[tokio::test]
async fn a_rejection_is_reported_until_it_is_over() {
    let (server, executor) = scene();
    server.fail(Verb::Apply, "/services/", &[422, 422]);
    for round in 0..2 {
        assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None }, "round {round}");
        assert_eq!(server.state().objects[TOPOLOGY]["status"]["said"], "no: 422");
    }
    assert_eq!(executor.failures(&key()), [("service n/a".into(), fault(422).failure)]);
    assert_eq!(executor.look(&key()).await, Ended::Outdated, "all writes succeeded: the status is out of date");
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.state().objects[TOPOLOGY]["status"]["said"], "fine");
    assert_eq!(executor.failures(&key()), []);
}

#[tokio::test]
async fn a_transient_failure_is_reported_the_third_time() {
    let (server, executor) = scene();
    server.fail(Verb::Apply, "/services/", &[500, 503, 0, 500]);
    for told in [false, false, true, true] {
        assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None });
        assert_eq!(!executor.failures(&key()).is_empty(), told);
    }
    assert_eq!(executor.look(&key()).await, Ended::Outdated);
    assert_eq!(executor.look(&key()).await, WELL);
    server.fail(Verb::Apply, "/services/", &[429]);
    see(&executor, server.edit(SERVICE, |s| s["spec"]["value"] = 2.into()));
    assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: Some(Duration::from_secs(7)) });
}

#[tokio::test]
async fn a_conflict_is_retried_at_once() {
    let (server, executor) = scene();
    server.fail(Verb::Apply, "/services/", &[409, 409, 409]);
    for ended in [Ended::Outdated, Ended::Outdated, Ended::Badly { at_least: None }, Ended::Outdated, WELL] {
        assert_eq!(executor.look(&key()).await, ended);
    }
    let asked = server.asked();
    assert_eq!(asked[..2], ["apply services/a", "get services/a"], "{asked:?}");
}

#[tokio::test]
async fn a_failed_status_is_retried() {
    let (server, executor) = scene();
    server.fail(Verb::Apply, "/status", &[500]);
    assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None });
    server.asked();
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked(), ["apply a/status", "create n/events"]);
}

#[tokio::test]
async fn a_failed_event_does_not_fail_the_reconcile() {
    let (server, executor) = scene();
    server.fail(Verb::Create, "/events", &[403]);
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked().last().unwrap(), "create n/events", "it is created later");
}

#[tokio::test]
async fn a_deletion_is_bound_to_the_uid() {
    let (server, executor) = scene();
    executor.look(&key()).await;
    let uid = server.state().objects[SERVICE]["metadata"]["uid"].clone();
    let remove = |uid: Value| see(&executor, server.edit(TOPOLOGY, |t| t["spec"]["remove"] = uid));
    remove("another".into());
    assert_eq!(executor.look(&key()).await, Ended::Outdated);
    assert!(server.state().objects.contains_key(SERVICE));
    remove(uid);
    assert_eq!(executor.look(&key()).await, WELL);
    assert!(!server.state().objects.contains_key(SERVICE));
    assert!(executor.live(&ObjectKey::new("Service", "n", "a")).is_none(), "the next reconcile sees it");
    server.asked();
    assert_eq!(executor.look(&key()).await, WELL, "it is gone already");
    assert_eq!(server.asked(), ["delete services/a"]);
}

#[tokio::test]
async fn objects_of_foreign_crds_are_not_written() {
    let (server, executor) = scene();
    executor.shared.define("Service", "services", Some(true));
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked(), ["apply a/status", "create n/events"], "not to it");
    executor.shared.define("Topology", "topologies.topology.openstack.org", Some(true));
    see(&executor, server.edit(TOPOLOGY, |t| t["spec"]["value"] = 2.into()));
    assert_eq!(executor.look(&key()).await, Ended::Well { again: None });
    assert_eq!(server.asked(), [""; 0], "nor because of it");
}

#[tokio::test]
async fn a_secret_is_read_by_name_and_again_later() {
    let (server, executor) = scene();
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"value": "b25l"},
        "metadata": {"name": "s", "namespace": "n", "uid": "s", "resourceVersion": "1"}});
    let said = || server.state().objects[TOPOLOGY]["status"]["said"].clone();
    see(&executor, server.edit(TOPOLOGY, |t| t["spec"]["secret"] = "s".into()));
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.asked()[0], "get secrets/s");
    assert_eq!(said(), "fine", "it does not exist");

    // It is looked for again, and found; then read again after a while, and its change is seen.
    let mut digests = Vec::new();
    for value in ["b25l", "dHdv"] {
        secret["data"]["value"] = value.into();
        server.state().objects.insert(SECRET.into(), secret.clone());
        executor.look(&key()).await;
        assert!(!server.asked().contains(&"get secrets/s".to_owned()), "it was read a moment ago");
        executor.shared.expire_reads();
        assert_eq!(executor.look(&key()).await, WELL);
        assert_eq!(server.asked()[0], "get secrets/s");
        digests.push(said());
        secret["metadata"]["resourceVersion"] = "2".into();
    }
    assert_ne!(digests[0], digests[1]);
    assert!(digests.iter().all(|d| d != "b25l" && d != "dHdv"), "no value is kept: {digests:?}");

    // One that is deleted is noticed, too.
    server.state().objects.remove(SECRET);
    executor.shared.expire_reads();
    executor.look(&key()).await;
    assert_eq!(said(), "fine");
}

#[tokio::test]
async fn a_secret_that_may_not_be_read_is_reported() {
    let (server, executor) = scene();
    see(&executor, server.edit(TOPOLOGY, |t| t["spec"]["secret"] = "s".into()));
    server.fail(Verb::Get, "/secrets/", &[403]);
    assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None });
    assert_eq!(server.state().objects[TOPOLOGY]["status"]["said"], "no: 403");
    assert_eq!(executor.look(&key()).await, Ended::Outdated);
    assert_eq!(executor.look(&key()).await, WELL);
    assert_eq!(server.state().objects[TOPOLOGY]["status"]["said"], "fine");
}

#[tokio::test]
async fn an_object_that_no_watch_shows_is_not_adopted() {
    let (server, executor) = scene();
    let metadata = json!({"name": "a", "namespace": "n", "uid": "users", "resourceVersion": "1"});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    server.state().objects.insert(ACCOUNT.into(), account.clone());
    see(&executor, server.edit(TOPOLOGY, |t| t["spec"]["account"] = true.into()));
    for _ in 0..2 {
        assert_eq!(executor.look(&key()).await, Ended::Badly { at_least: None });
        assert_eq!(server.state().objects[ACCOUNT], account);
        let told = server.state().objects[TOPOLOGY]["status"]["said"].clone();
        assert!(told.as_str().unwrap().contains("ServiceAccount n/a already exists"), "{told}");
    }
    server.asked();
    server.state().objects.remove(ACCOUNT);
    assert_eq!(executor.look(&key()).await, Ended::Outdated);
    assert_eq!(server.asked()[..2], ["get serviceaccounts/a", "apply serviceaccounts/a"]);
}

#[test]
fn an_unknown_crd_is_not_ours() {
    let shared = Shared::new(LOOPS, Vec::new());
    assert!(!shared.is_ours("Topology") && shared.is_ours("Service"));
    shared.define("Topology", "topologies.topology.openstack.org", Some(false));
    assert!(shared.is_ours("Topology"));
}
