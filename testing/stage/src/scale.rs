//! Creates many APIs at once, and restarts the operator in a cluster with nothing left to do.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use stead_testbed::AuditEvent;

use crate::audit_log::{self, Counts};
use crate::disturb::USER;
use crate::{Operator, Stage, walk};

/// The cost of an operator's work.
#[derive(Debug, Clone)]
pub struct Effort {
    /// The requests by verb; `lease` is leader election.
    pub requests: Counts,
    /// The writes without leader election, one line each.
    pub writes: Vec<String>,
    /// The time until the operator was ready.
    pub ready: Duration,
    /// The time until the work was done and the queue was empty.
    pub done: Duration,
    /// The peak memory in bytes.
    pub memory: u64,
}

/// The timeout for all work.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// How long the queue must be empty before the work counts as done.
const IDLE_TIME: Duration = Duration::from_secs(10);

fn namespace(index: usize) -> String {
    format!("scale-{index}")
}

/// Creates `apis` GlanceAPIs in `namespaces` namespaces with a Glance each, waits until all are ready, and restarts the
/// operator. Returns the effort of the first and of the second operator.
pub async fn play(stage: &Stage, kubeconfig: &Path, apis: usize, namespaces: usize) -> Result<(Effort, Effort)> {
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let operator = stage.start_operator(kubeconfig, &[]).await?;
    let ready = began.elapsed();
    let each = apis.div_ceil(namespaces);
    let began = Instant::now();
    for index in 0..namespaces {
        create_glance(stage, &namespace(index), each.min(apis - each * index)).await?;
    }
    let wait = "all GlanceAPIs are ready";
    stage.wait_until(wait, TIMEOUT, async || Ok(ready_apis(stage, namespaces).await? == apis)).await?;
    wait_until_idle(&operator).await?;
    let first = effort(stage, &operator, before, ready, began.elapsed())?;
    operator.stop().await?;

    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let operator = stage.start_operator(kubeconfig, &[]).await?;
    let ready = began.elapsed();
    wait_until_idle(&operator).await?;
    let second = effort(stage, &operator, before, ready, began.elapsed())?;
    operator.stop().await?;
    Ok((first, second))
}

fn effort(stage: &Stage, operator: &Operator, before: usize, ready: Duration, done: Duration) -> Result<Effort> {
    let events: Vec<AuditEvent> = stage.plane.audit_events()?.split_off(before);
    Ok(Effort {
        requests: audit_log::requests_by_verb(&events, USER),
        writes: audit_log::writes(&events, USER),
        ready,
        done: done.saturating_sub(IDLE_TIME),
        memory: operator.peak_memory()?,
    })
}

/// Creates a Glance with `apis` APIs, and the objects that it depends on.
async fn create_glance(stage: &Stage, namespace: &str, apis: usize) -> Result<()> {
    walk::create_namespace(stage, namespace).await?;
    let objects = stage.objects(namespace);
    let meta = |name: &str| json!({"name": name});
    let passwords = json!({"GlancePassword": "12345678", "GlanceDatabasePassword": "12345678"});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    // One of the APIs has to be in Keystone's catalogue; an edge API is not.
    let layout = |index| if index == 0 { "single" } else { "edge" };
    let api = |index| (format!("api{index:03}"), json!({"type": layout(index), "replicas": 1}));
    let named: Map<String, Value> = (0..apis).map(api).collect();
    let spec = json!({
        "secret": "osp-secret",
        "databaseInstance": "openstack",
        "topologyRef": {"name": "spread"},
        "storage": {"storageClass": "local-storage", "storageRequest": "1G"},
        "glanceAPIs": named,
        "keystoneEndpoint": "api000",
    });
    for object in [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("osp-secret"), "stringData": passwords}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("openstack"),
               "spec": {"ports": [{"name": "mysql", "port": 3306, "protocol": "TCP"}]}}),
        json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": meta("spread"),
               "spec": {"topologySpreadConstraints": [constraint]}}),
        json!({"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": meta("glance"), "spec": spec}),
    ] {
        objects.apply(&object).await?;
    }
    Ok(())
}

async fn ready_apis(stage: &Stage, namespaces: usize) -> Result<usize> {
    let mut ready = 0;
    for index in 0..namespaces {
        let apis = stage.objects(&namespace(index)).list("GlanceAPI").await?;
        ready += apis.iter().filter(|api| is_ready(api)).count();
    }
    Ok(ready)
}

fn is_ready(api: &Value) -> bool {
    let conditions = api["status"]["conditions"].as_array().into_iter().flatten();
    api["status"]["observedGeneration"] == api["metadata"]["generation"]
        && conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Waits until the operator has reconciled something and then been idle for a while.
async fn wait_until_idle(operator: &Operator) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    let mut last = (String::new(), Instant::now());
    loop {
        let page = operator.page("/metrics").await?;
        let line = |name: &str| page.lines().filter(|l| l.starts_with(name)).collect::<Vec<_>>().join("\n");
        let (due, reconciles) = (line("stead_queue_length "), line("stead_reconciles_total"));
        let due: u64 = due.rsplit(' ').next().and_then(|n| n.parse().ok()).context("stead_queue_length")?;
        if due > 0 || reconciles.is_empty() || reconciles != last.0 {
            last = (reconciles, Instant::now());
        } else if last.1.elapsed() > IDLE_TIME {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the operator's queue does not become empty: {due} objects are queued");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
