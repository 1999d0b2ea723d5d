//! Many APIs at once, and an operator that starts in a cluster where everything is done.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use stead_testbed::AuditEvent;

use crate::audited::{self, Counts};
use crate::disturb::USER;
use crate::{Operator, Stage, walk};

/// What an operator took for a piece of work.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Its requests, by verb; `lease` is the election.
    pub requests: Counts,
    /// The writes beside the election, a line each.
    pub writes: Vec<String>,
    /// Until it was ready to work.
    pub ready: Duration,
    /// Until the work was done and its queue empty.
    pub done: Duration,
    /// The most memory that it had, in bytes.
    pub memory: u64,
}

/// So long may it take.
const PATIENCE: Duration = Duration::from_secs(1200);

/// So long nothing may be due before the queue counts as empty.
const QUIET: Duration = Duration::from_secs(10);

fn namespace(index: usize) -> String {
    format!("scale-{index}")
}

/// Makes `apis` GlanceAPIs in so many namespaces, with a Glance each, waits until all are ready; then starts another
/// operator in place of the first. Gives the effort of the first and of the second.
pub async fn play(stage: &Stage, kubeconfig: &Path, apis: usize, namespaces: usize) -> Result<(Effort, Effort)> {
    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let operator = stage.operate(kubeconfig, &[]).await?;
    let ready = began.elapsed();
    let each = apis.div_ceil(namespaces);
    let began = Instant::now();
    for index in 0..namespaces {
        glance(stage, &namespace(index), each.min(apis - each * index)).await?;
    }
    let wait = "that all GlanceAPIs are ready";
    stage.until(wait, PATIENCE, async || Ok(ready_apis(stage, namespaces).await? == apis)).await?;
    quiet(&operator).await?;
    let first = effort(stage, &operator, before, ready, began.elapsed())?;
    operator.end().await?;

    let before = stage.plane.audit_events()?.len();
    let began = Instant::now();
    let operator = stage.operate(kubeconfig, &[]).await?;
    let ready = began.elapsed();
    quiet(&operator).await?;
    let second = effort(stage, &operator, before, ready, began.elapsed())?;
    operator.end().await?;
    Ok((first, second))
}

fn effort(stage: &Stage, operator: &Operator, before: usize, ready: Duration, done: Duration) -> Result<Effort> {
    let events: Vec<AuditEvent> = stage.plane.audit_events()?.split_off(before);
    Ok(Effort {
        requests: audited::by_verb(&events, USER),
        writes: audited::writes(&events, USER),
        ready,
        done: done.saturating_sub(QUIET),
        memory: operator.peak_memory()?,
    })
}

/// A Glance with so many APIs, and what it leans on.
async fn glance(stage: &Stage, namespace: &str, apis: usize) -> Result<()> {
    walk::begin(stage, namespace).await?;
    let objects = stage.objects(namespace);
    let meta = |name: &str| json!({"name": name});
    let passwords = json!({"GlancePassword": "12345678", "GlanceDatabasePassword": "12345678"});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    // An edge API does not stand in Keystone's catalogue; one of the APIs has to.
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

/// Waits until the operator has had nothing to do for a while, and has looked at something.
async fn quiet(operator: &Operator) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut last = (String::new(), Instant::now());
    loop {
        let page = operator.page("/metrics").await?;
        let line = |name: &str| page.lines().filter(|l| l.starts_with(name)).collect::<Vec<_>>().join("\n");
        let (due, looks) = (line("stead_queue_length "), line("stead_reconciles_total"));
        let due: u64 = due.rsplit(' ').next().and_then(|n| n.parse().ok()).context("stead_queue_length")?;
        if due > 0 || looks.is_empty() || looks != last.0 {
            last = (looks, Instant::now());
        } else if last.1.elapsed() > QUIET {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the operator's queue does not become empty: {due} objects are due");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
