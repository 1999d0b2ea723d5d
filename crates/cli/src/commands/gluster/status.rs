//! `stead gluster status`: how a pool stands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde_json::Value;
use stead_manifests::gluster::AGENT_PORT_NAME;
use stead_pool::config_map::RecordError;
use stead_pool::status::{Answer, NoAnswer, Pod, PoolPage, Said, Seen, render, status};
use stead_pool::{Record, Report, Wanted, config_map};
use tokio::task::JoinSet;

use crate::args::{GlusterStatusArgs, StatusFormat};
use crate::connect::connect;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};

/// The labels of a pool's StatefulSet.
const POOLS: &str = "app.kubernetes.io%2Fname%3Dgluster%2Capp.kubernetes.io%2Fpart-of%3Dstead";

/// Who makes the events that are shown, and how many of them are.
const COMPONENT: &str = "stead-gluster-agent";
const EVENTS: usize = 10;

/// The port of an agent that does not say it.
const AGENT_PORT: u64 = 24080;

/// How long an agent may take to answer. The API server itself would wait for half a minute.
const PATIENCE: Duration = Duration::from_secs(8);

/// How much the clocks of two machines may differ.
const SKEW: i64 = 60;

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

async fn look(args: &GlusterStatusArgs) -> anyhow::Result<Seen> {
    let connection = connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
    let server = Arc::new(Server::new(connection));
    let set = find(&server, &namespace, args.name.as_deref()).await?;
    let wanted = wanted(&set, &namespace)?;
    let name = config_map::name(wanted.name());
    let record = server.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?;
    let lease = server.get(&format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")).await?;
    let pods = pods(&server, &namespace, &set, &wanted).await?;
    let answers = ask(&server, &namespace, &pods).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Seen {
        record: record.map(|object| kept(&object)).transpose(),
        decider: lease.and_then(|lease| holder(&lease, now)),
        pods: pods.iter().map(|(ordinal, object)| (*ordinal, pod(object))).collect(),
        events: events(&server, &namespace, &wanted).await,
        namespace,
        wanted,
        answers,
        now,
    })
}

/// The pool's StatefulSet: the one that is named, or the only one there is.
async fn find(server: &Server, namespace: &str, name: Option<&str>) -> anyhow::Result<Value> {
    let all = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets");
    if let Some(name) = name {
        let missing = || anyhow!("namespace {namespace} has no StatefulSet {name}");
        return server.get(&format!("{all}/{name}")).await?.ok_or_else(missing);
    }
    let mut pools = server.list(&format!("{all}?labelSelector={POOLS}")).await?;
    match (pools.pop(), pools.as_slice()) {
        (Some(one), []) => Ok(one),
        (None, _) => Err(Hinted {
            message: format!("namespace {namespace} has no Gluster pool"),
            hint: "name the namespace with -n; `stead gluster manifests` prints a pool".to_owned(),
        }
        .into()),
        (Some(last), others) => {
            let names = others.iter().chain([&last]).filter_map(|p| p["metadata"]["name"].as_str());
            let message = format!("namespace {namespace} has more than one Gluster pool");
            Err(Hinted { message, hint: format!("name one of: {}", names.collect::<Vec<_>>().join(", ")) }.into())
        }
    }
}

fn wanted(set: &Value, namespace: &str) -> anyhow::Result<Wanted> {
    let spec = &set["spec"];
    let number = |value: &Value, default: u64| u32::try_from(value.as_u64().unwrap_or(default)).unwrap_or(u32::MAX);
    let containers = spec["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let mut arguments = containers.flat_map(|c| c["args"].as_array().into_iter().flatten()).filter_map(Value::as_str);
    let domain = arguments.find_map(|a| a.strip_prefix("--cluster-domain=")).unwrap_or("cluster.local");
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let domain = format!("{}.{namespace}.svc.{domain}", spec["serviceName"].as_str().unwrap_or_default());
    let wanted = Wanted::new(name, &domain, number(&spec["replicas"], 1), number(&spec["ordinals"]["start"], 0));
    wanted.with_context(|| format!("the names of the pods of StatefulSet {name}"))
}

fn kept(object: &Value) -> Result<Record, RecordError> {
    let data = object["data"].as_object().into_iter().flatten();
    let data = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    config_map::record(&data)
}

/// The pod that holds the Lease, unless it has been silent for longer than it may.
fn holder(lease: &Value, now: u64) -> Option<String> {
    let spec = &lease["spec"];
    let identity = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|time| time.parse().ok());
    let until = renewed?.as_second() + spec["leaseDurationSeconds"].as_i64().unwrap_or(0) + SKEW;
    let valid = i64::try_from(now).is_ok_and(|now| now <= until);
    // What follows an underscore tells two processes of one pod apart.
    valid.then(|| identity.split('_').next().unwrap_or(identity).to_owned())
}

async fn pods(server: &Server, namespace: &str, set: &Value, wanted: &Wanted) -> anyhow::Result<BTreeMap<u32, Value>> {
    let labels = set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let pairs = labels.filter_map(|(key, value)| Some(format!("{}%3D{}", key.replace('/', "%2F"), value.as_str()?)));
    let selector = pairs.collect::<Vec<_>>().join("%2C");
    let all = server.list(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")).await?;
    let numbered = |pod: Value| Some((wanted.ordinal(pod["metadata"]["name"].as_str()?)?, pod));
    Ok(all.into_iter().filter_map(numbered).collect())
}

fn pod(object: &Value) -> Pod {
    let phase = object["status"]["phase"].as_str().unwrap_or("Pending");
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let state = match phase {
        _ if !object["metadata"]["deletionTimestamp"].is_null() => "ending",
        "Running" if ready => "ready",
        "Running" => "not ready",
        other => other,
    };
    Pod { node: object["spec"]["nodeName"].as_str().map(str::to_owned), state: state.to_owned() }
}

/// Asks all agents at once, through the API server.
async fn ask(
    server: &Arc<Server>,
    namespace: &str,
    pods: &BTreeMap<u32, Value>,
) -> BTreeMap<u32, Result<Answer, NoAnswer>> {
    let mut answers = JoinSet::new();
    for (ordinal, pod) in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let base = format!("/api/v1/namespaces/{namespace}/pods/{name}:{}/proxy", port(pod));
        let (ordinal, server) = (*ordinal, Arc::clone(server));
        let placed = pod["status"]["podIP"].is_string();
        answers.spawn(async move {
            if !placed {
                return (ordinal, Err(NoAnswer::NoAddress));
            }
            let answer = tokio::time::timeout(PATIENCE, one(&server, &base)).await;
            (ordinal, answer.unwrap_or(Err(NoAnswer::Late(PATIENCE))))
        });
    }
    answers.join_all().await.into_iter().collect()
}

async fn one(server: &Server, base: &str) -> Result<Answer, NoAnswer> {
    let page = async |name: &'static str| match server.get(&format!("{base}/{name}")).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(NoAnswer::NoPage(name)),
        Err(error) => Err(NoAnswer::Refused(error.root_cause().to_string())),
    };
    let report = Report::from_json(page("state").await?.to_string().as_bytes())?;
    // An agent that is older or newer may have no such page: its report is worth more than this.
    let PoolPage { unready, notes, .. } = match page("pool").await {
        Ok(page) => serde_json::from_value(page).unwrap_or_default(),
        Err(_) => PoolPage::default(),
    };
    Ok(Answer { report, unready, notes })
}

fn port(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
    let agents = ports.find(|p| p["name"] == AGENT_PORT_NAME);
    agents.and_then(|p| p["containerPort"].as_u64()).unwrap_or(AGENT_PORT)
}

/// The last events of the pool's agents. Who may not read them gets the rest of the answer.
async fn events(server: &Server, namespace: &str, wanted: &Wanted) -> Vec<Said> {
    let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=source%3D{COMPONENT}");
    let all = match server.list(&path).await {
        Ok(all) => all,
        Err(error) => {
            output::complain("warning", &format!("events cannot be read: {}", error.root_cause()));
            return Vec::new();
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = |event: &Value| Said {
        time: text(&event["lastTimestamp"]),
        pod: text(&event["involvedObject"]["name"]),
        reason: text(&event["reason"]),
        text: text(&event["message"]),
        severity: text(&event["type"]),
    };
    let mut events: Vec<Said> = all.iter().map(said).filter(|e| wanted.ordinal(&e.pod).is_some()).collect();
    events.sort_by(|a, b| (&a.time, &a.pod).cmp(&(&b.time, &b.pod)));
    events.split_off(events.len().saturating_sub(EVENTS))
}
