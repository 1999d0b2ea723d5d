//! `stead gluster status`: the state of a pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod as KubernetesPod};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stead_manifests::gluster::AGENT_PORT_NAME;
use stead_model::{parse, stateful_set};
use stead_pool::config_map::RecordError;
use stead_pool::status::{AgentAnswer, NoAgentAnswer, PodSummary, PoolEvent, PoolPage, StatusInput, render, status};
use stead_pool::{PoolSpec, Record, Report, config_map};
use tokio::task::JoinSet;

use crate::args::{GlusterStatusArgs, StatusFormat};
use crate::connect::connect;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};

/// The labels of a pool's StatefulSet.
const POOLS: &str = "app.kubernetes.io%2Fname%3Dgluster%2Capp.kubernetes.io%2Fpart-of%3Dstead";

/// The component whose events are shown, and how many.
const COMPONENT: &str = "stead-gluster-agent";
const EVENTS: usize = 10;

/// The port of an agent whose pod does not name it.
const AGENT_PORT: i32 = 24080;

/// How long an agent may take to answer. The API server itself would wait for 30 seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// How much the clocks of two machines may differ.
const MAX_CLOCK_SKEW: i64 = 60;

pub(crate) fn run(args: &GlusterStatusArgs) -> anyhow::Result<Outcome> {
    let seen = server::run(look(args))?;
    let status = status(&seen);
    match args.output {
        StatusFormat::Table => output::text(&render(&status))?,
        StatusFormat::Json => output::json(&status)?,
        StatusFormat::Yaml => output::yaml(&status)?,
    }
    Ok(if status.whole { Outcome::Yes } else { Outcome::No })
}

async fn look(args: &GlusterStatusArgs) -> anyhow::Result<StatusInput> {
    let connection = connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
    let server = Arc::new(Server::new(connection));
    let set = find(&server, &namespace, args.name.as_deref()).await?;
    let wanted = wanted(&set, &namespace)?;
    let name = config_map::name(wanted.name());
    let record: Option<ConfigMap> = get(&server, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?;
    let lease: Option<Lease> =
        get(&server, &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")).await?;
    let pods = pods(&server, &namespace, &set, &wanted).await?;
    let answers = ask(&server, &namespace, &pods).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(StatusInput {
        record: record.map(stored).transpose(),
        decider: lease.and_then(|lease| holder(&lease, now)),
        pods: pods.iter().map(|(ordinal, pod)| (*ordinal, pod_state(pod))).collect(),
        events: events(&server, &namespace, &wanted).await,
        namespace,
        wanted,
        answers,
        now,
    })
}

/// An object as its Kubernetes type; none where it does not exist.
async fn get<T: DeserializeOwned>(server: &Server, path: &str) -> anyhow::Result<Option<T>> {
    Ok(server.get(path).await?.map(|object| parse(path, &object)).transpose()?)
}

/// The objects of a list as their Kubernetes type.
async fn list<T: DeserializeOwned>(server: &Server, path: &str) -> anyhow::Result<Vec<T>> {
    let objects = server.list(path).await?;
    Ok(objects.iter().map(|object| parse(path, object)).collect::<Result<_, _>>()?)
}

/// The pool's StatefulSet: the named one, or the only one.
async fn find(server: &Server, namespace: &str, name: Option<&str>) -> anyhow::Result<StatefulSet> {
    let all = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets");
    if let Some(name) = name {
        let missing = || anyhow!("namespace {namespace} has no StatefulSet {name}");
        return get(server, &format!("{all}/{name}")).await?.ok_or_else(missing);
    }
    let mut pools: Vec<StatefulSet> = list(server, &format!("{all}?labelSelector={POOLS}")).await?;
    match (pools.pop(), pools.as_slice()) {
        (Some(one), []) => Ok(one),
        (None, _) => Err(Hinted {
            message: format!("namespace {namespace} has no Gluster pool"),
            hint: "choose another namespace with -n, or create a pool with `stead gluster manifests`".to_owned(),
        }
        .into()),
        (Some(last), others) => {
            let names = others.iter().chain([&last]).filter_map(|pool| pool.metadata.name.as_deref());
            let message = format!("namespace {namespace} has more than one Gluster pool");
            Err(Hinted { message, hint: format!("give one of these names: {}", names.collect::<Vec<_>>().join(", ")) }
                .into())
        }
    }
}

fn wanted(set: &StatefulSet, namespace: &str) -> anyhow::Result<PoolSpec> {
    let spec = set.spec.as_ref();
    let containers = spec.and_then(|spec| spec.template.spec.as_ref()).into_iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    let domain = arguments.find_map(|a| a.strip_prefix("--cluster-domain=")).unwrap_or("cluster.local");
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let service = spec.and_then(|spec| spec.service_name.as_deref()).unwrap_or_default();
    let domain = format!("{service}.{namespace}.svc.{domain}");
    let wanted = PoolSpec::new(name, &domain, stateful_set::replicas(set), stateful_set::start_ordinal(set));
    wanted.with_context(|| format!("the names of the pods of StatefulSet {name}"))
}

fn stored(object: ConfigMap) -> Result<Record, RecordError> {
    config_map::record(&object.data.unwrap_or_default())
}

/// The pod that holds the Lease, unless the Lease has expired.
fn holder(lease: &Lease, now: u64) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let identity = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let renewed = spec.renew_time.as_ref()?.0.as_second();
    let until = renewed + i64::from(spec.lease_duration_seconds.unwrap_or(0)) + MAX_CLOCK_SKEW;
    let valid = i64::try_from(now).is_ok_and(|now| now <= until);
    // A suffix after an underscore distinguishes two processes of one pod.
    valid.then(|| identity.split('_').next().unwrap_or(identity).to_owned())
}

async fn pods(
    server: &Server,
    namespace: &str,
    set: &StatefulSet,
    wanted: &PoolSpec,
) -> anyhow::Result<BTreeMap<u32, KubernetesPod>> {
    let labels = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref()).into_iter().flatten();
    let pairs = labels.map(|(key, value)| format!("{}%3D{value}", key.replace('/', "%2F")));
    let selector = pairs.collect::<Vec<_>>().join("%2C");
    let all: Vec<KubernetesPod> =
        list(server, &format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")).await?;
    let numbered = |pod: KubernetesPod| Some((wanted.ordinal(pod.metadata.name.as_deref()?)?, pod));
    Ok(all.into_iter().filter_map(numbered).collect())
}

fn pod_state(pod: &KubernetesPod) -> PodSummary {
    let status = pod.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let state = match status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending") {
        _ if pod.metadata.deletion_timestamp.is_some() => "ending",
        "Running" if ready => "ready",
        "Running" => "not ready",
        other => other,
    };
    PodSummary { node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()), state: state.to_owned() }
}

/// Asks all agents at once, through the API server.
async fn ask(
    server: &Arc<Server>,
    namespace: &str,
    pods: &BTreeMap<u32, KubernetesPod>,
) -> BTreeMap<u32, Result<AgentAnswer, NoAgentAnswer>> {
    let mut answers = JoinSet::new();
    for (ordinal, pod) in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let base = format!("/api/v1/namespaces/{namespace}/pods/{name}:{}/proxy", port(pod));
        let (ordinal, server) = (*ordinal, Arc::clone(server));
        let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        answers.spawn(async move {
            if !has_address {
                return (ordinal, Err(NoAgentAnswer::NoAddress));
            }
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, one(&server, &base)).await;
            (ordinal, answer.unwrap_or(Err(NoAgentAnswer::Late(ANSWER_TIMEOUT))))
        });
    }
    answers.join_all().await.into_iter().collect()
}

async fn one(server: &Server, base: &str) -> Result<AgentAnswer, NoAgentAnswer> {
    let page = async |name: &'static str| match server.get(&format!("{base}/{name}")).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(NoAgentAnswer::NoPage(name)),
        Err(error) => Err(NoAgentAnswer::Refused(error.root_cause().to_string())),
    };
    let report = Report::from_json(page("state").await?.to_string().as_bytes())?;
    // An older or newer agent may not have this page; its report is used all the same.
    let PoolPage { unready, notes, .. } = match page("pool").await {
        Ok(page) => serde_json::from_value(page).unwrap_or_default(),
        Err(_) => PoolPage::default(),
    };
    Ok(AgentAnswer { report, unready, notes })
}

fn port(pod: &KubernetesPod) -> i32 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let agents = ports.find(|port| port.name.as_deref() == Some(AGENT_PORT_NAME));
    agents.map_or(AGENT_PORT, |port| port.container_port)
}

/// The last events of the pool's agents. Without permission to read them, only a warning is printed.
async fn events(server: &Server, namespace: &str, wanted: &PoolSpec) -> Vec<PoolEvent> {
    let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=source%3D{COMPONENT}");
    let all: Vec<Value> = match server.list(&path).await {
        Ok(all) => all,
        Err(error) => {
            output::complain("warning", &format!("events cannot be read: {}", error.root_cause()));
            return Vec::new();
        }
    };
    let said = |event: Event| PoolEvent {
        time: event.last_timestamp.map(|time| time.0.to_string()).unwrap_or_default(),
        pod: event.involved_object.name.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        text: event.message.unwrap_or_default(),
        severity: event.type_.unwrap_or_default(),
    };
    let events = all.iter().filter_map(|event| parse("event", event).ok());
    let mut events: Vec<PoolEvent> = events.map(said).filter(|e| wanted.ordinal(&e.pod).is_some()).collect();
    events.sort_by(|a, b| (&a.time, &a.pod).cmp(&(&b.time, &b.pod)));
    events.split_off(events.len().saturating_sub(EVENTS))
}
