//! `stead uninstall`: shows what would be deleted, asks, removes finalizers, deletes, and lists the claims that are kept.

mod release;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use stead_manifests::plan::foreign;
use stead_manifests::removal::{FINALIZED_KINDS, FinalizedKind, claim_commands};
use stead_manifests::{Manifest, Part, all_manifests, helm_release, is_ours, recover_manifests, recovery};
use stead_model::{ObjectKey, Typed};
use stead_recovery::{ANNOTATION, RecoveryPhase};

use crate::args::UninstallArgs;
use crate::commands::recover::RECORDS;
use crate::connect::connect;
use crate::consent;
use crate::live_object::LiveObject;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};
use release::{release, release_all, wait_until_stopped};

/// How often the cluster is asked while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The claims of Glance's pods, which are kept.
const CLAIMS: &str = "/api/v1/persistentvolumeclaims?labelSelector=service%3Dglance";

pub(crate) fn run(args: &UninstallArgs) -> anyhow::Result<Outcome> {
    if args.release_finalizers { server::run(release::run(args)) } else { server::run(uninstall(args)) }
}

/// What the cluster has of Stead.
struct Installation {
    /// The objects of the installation, in the order in which they are deleted.
    installed: Vec<(Manifest, Value)>,
    /// The kinds with Stead's finalizers that the cluster knows, with their objects.
    held: Vec<(&'static FinalizedKind, Vec<Value>)>,
    /// Objects that have one of our names and belong to another installation.
    foreign: Vec<String>,
    /// The claims that are kept.
    claims: Vec<Value>,
    /// Whether the CRD of NodeRecoveries is deleted, and with it the records.
    records: bool,
    /// Those records.
    recoveries: Vec<Value>,
    /// Whether an operator runs that can remove its own finalizers.
    operator: bool,
}

/// What is read of a NodeRecovery. The phase is not parsed with the rest: an unknown one must not hide the record.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecoveryRecord {
    metadata: ObjectMeta,
    spec: RecoverySpec,
    status: RecoveryStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecoverySpec {
    node: RecoveredNode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecoveredNode {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecoveryStatus {
    phase: Option<String>,
}

impl RecoveryRecord {
    fn read(record: &Value) -> anyhow::Result<RecoveryRecord> {
        Ok(stead_model::parse("noderecovery", record)?)
    }

    /// Whether the recovery is over; not so where its phase is unknown.
    fn is_over(&self) -> bool {
        let phase = self.status.phase.clone().map(|phase| serde_json::from_value::<RecoveryPhase>(phase.into()));
        phase.is_some_and(|phase| phase.is_ok_and(RecoveryPhase::is_over))
    }
}

async fn uninstall(args: &UninstallArgs) -> anyhow::Result<Outcome> {
    let server = Server::new(connect(&args.connect).await?);
    let found = look(&server, args).await?;
    if found.installed.is_empty() {
        output::text(&format!("Stead is not installed in {}; nothing to remove.\n", server.address()))?;
        return Ok(Outcome::Yes);
    }
    check_not_helm(&found)?;
    output::text(&render(&found, args, server.address())?)?;
    check_recoveries(&server, &found, "nothing was changed").await?;
    if args.consent.dry_run {
        return Ok(Outcome::Yes);
    }
    if !consent::given(&args.consent, "Remove?")? {
        output::complain("note", "nothing was changed");
        return Ok(Outcome::No);
    }
    if !args.keep_crds {
        for (held, _) in found.held.iter().filter(|(held, _)| held.deleted_on_uninstall) {
            delete_all(&server, held, found.operator, args.consent.timeout).await?;
        }
    }
    // A recovery may have started in the meantime.
    check_recoveries(&server, &found, "the rest of Stead is still installed").await?;
    delete_installation(&server, &found, args).await?;
    if !found.claims.is_empty() {
        output::text(&kept(&found.claims))?;
    }
    Ok(Outcome::Yes)
}

/// An error if Helm installed the operator: its release would refer to objects that are gone.
fn check_not_helm(found: &Installation) -> anyhow::Result<()> {
    let deployment = found.installed.iter().find(|(manifest, _)| manifest.kind() == "Deployment");
    let Some(release) = deployment.and_then(|(_, live)| helm_release(live)) else { return Ok(()) };
    Err(Hinted {
        message: format!("the operator belongs to the Helm release {}", release.name),
        hint: format!("helm uninstall {} -n {}", release.name, release.namespace),
    }
    .into())
}

/// An error that names unfinished recoveries: without its record, nobody would remove a node's taint.
async fn check_recoveries(server: &Server, found: &Installation, done: &str) -> anyhow::Result<()> {
    if !found.records {
        return Ok(());
    }
    // A finished recovery whose process was killed may have left its annotation.
    let mut left: BTreeMap<String, String> = BTreeMap::new();
    for node in server.list("/api/v1/nodes").await? {
        let node = LiveObject::read("node", &node)?;
        if node.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(ANNOTATION)) {
            left.insert(node.name().to_owned(), "marked".to_owned());
        }
    }
    for record in server.list(RECORDS).await? {
        let record = RecoveryRecord::read(&record)?;
        if !record.is_over() {
            left.insert(record.spec.node.name, record.status.phase.unwrap_or_else(|| "not started".to_owned()));
        }
    }
    let Some(first) = left.keys().next() else { return Ok(()) };
    let named: Vec<String> = left.iter().map(|(node, phase)| format!("node {node} ({phase})")).collect();
    Err(Hinted {
        message: format!(
            "unfinished recoveries: {}; without their records nobody would remove the taint; {done}",
            named.join(", ")
        ),
        hint: format!(
            "finish with `stead recover node/{first}`, undo with --abort, or keep the records with --keep-crds"
        ),
    }
    .into())
}

async fn look(server: &Server, args: &UninstallArgs) -> anyhow::Result<Installation> {
    let scoped = server.scoped_namespaces(&args.namespace).await?;
    let (mut installed, mut others, mut definitions) = (Vec::new(), Vec::new(), Vec::new());
    for manifest in
        all_manifests(&args.namespace, scoped).into_iter().rev().chain(recover_manifests().into_iter().rev())
    {
        let Some(live) = server.get(&manifest.path()).await? else { continue };
        if manifest.is_definition() {
            definitions.push(live.clone());
        }
        if !is_ours(&live) {
            others.push(manifest.to_string());
        } else if !args.keep_crds || manifest.part == Part::Operator {
            installed.push((manifest, live));
        }
    }
    let foreign = foreign(&definitions);
    let names = |live: &Value| LiveObject::read("customresourcedefinition", live).map(|live| live.name().to_owned());
    let definitions: Vec<String> = definitions.iter().map(names).collect::<Result<_, _>>()?;
    let known = |held: &&FinalizedKind| {
        definitions.iter().any(|name| name == held.definition) && !foreign.contains(held.definition)
    };
    let mut held = Vec::new();
    for kind in FINALIZED_KINDS.iter().filter(known) {
        held.push((kind, server.list(&kind.collection()).await?));
    }
    // The claims of a Glance that another operator manages are not listed.
    let glance = held.iter().any(|(kind, _)| kind.kind == "Glance");
    let claims = if glance && !args.keep_crds { server.list(CLAIMS).await? } else { Vec::new() };
    let deployment = installed.iter().find(|(manifest, _)| manifest.kind() == "Deployment");
    let operator = deployment.is_some_and(|(manifest, live)| runs(manifest, live));
    let records = installed.iter().any(|(manifest, _)| manifest.name() == recovery().name());
    let recoveries = if records { server.list(RECORDS).await? } else { Vec::new() };
    Ok(Installation { installed, held, foreign: others, claims, records, recoveries, operator })
}

/// Whether the operator's Deployment has an available pod.
fn runs(manifest: &Manifest, live: &Value) -> bool {
    let key = ObjectKey::new(manifest.kind(), manifest.namespace().unwrap_or_default(), manifest.name());
    let deployment = Deployment::from_raw(&key, live).ok();
    deployment.and_then(|deployment| deployment.status?.available_replicas).is_some_and(|available| available > 0)
}

/// What would be deleted and kept, as text.
fn render(found: &Installation, args: &UninstallArgs, address: &str) -> anyhow::Result<String> {
    let (mut deleted, mut patched, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (held, objects) in &found.held {
        for object in objects {
            if !args.keep_crds {
                deleted.push(named(held, object)?);
            } else if held.release(object).is_some() {
                patched.push(format!("{}: remove Stead's finalizers", named(held, object)?));
            }
        }
    }
    for record in &found.recoveries {
        let name = RecoveryRecord::read(record)?.metadata.name.unwrap_or_default();
        deleted.push(format!("noderecovery/{name}"));
    }
    for (manifest, _) in &found.installed {
        let place = manifest.namespace().map_or(String::new(), |n| format!(" in {n}"));
        deleted.push(format!("{manifest}{place}"));
    }
    kept.extend(found.foreign.iter().map(|name| format!("{name}: it belongs to another installation")));
    for claim in &found.claims {
        let claim = LiveObject::read("persistentvolumeclaim", claim)?;
        kept.push(format!("persistentvolumeclaim/{} in {}", claim.name(), claim.namespace()));
    }
    let mut text = format!("Remove Stead from {address}: {} to delete", deleted.len());
    if !patched.is_empty() {
        text.push_str(&format!(", {} to patch", patched.len()));
    }
    if !kept.is_empty() {
        text.push_str(&format!(", {} to keep", kept.len()));
    }
    text.push_str(".\n");
    for (verb, lines) in [("delete", &deleted), ("patch", &patched), ("keep", &kept)] {
        for line in lines {
            text.push_str(&format!("  {verb:6}  {line}\n"));
        }
    }
    if !found.operator && !args.keep_crds && found.held.iter().any(|(_, objects)| !objects.is_empty()) {
        text.push_str("No operator is running: this command removes its finalizers.\n");
    }
    Ok(text)
}

fn named(held: &FinalizedKind, object: &Value) -> anyhow::Result<String> {
    let kind = held.kind.to_lowercase();
    let object = LiveObject::read(&kind, object)?;
    Ok(format!("{kind}/{} in {}", object.name(), object.namespace()))
}

/// Deletes all objects of a kind and waits until they are gone. The operator removes its finalizers, or this command
/// does if none is running.
async fn delete_all(server: &Server, held: &FinalizedKind, operator: bool, timeout: Duration) -> anyhow::Result<()> {
    let release_from = Instant::now() + if operator { timeout } else { Duration::ZERO };
    let until = release_from + timeout;
    loop {
        let objects = server.list(&held.collection()).await?;
        if objects.is_empty() {
            return Ok(());
        }
        let mut left = Vec::new();
        for object in &objects {
            let metadata = LiveObject::read(held.kind, object)?.metadata;
            let is_deleted = metadata.deletion_timestamp.is_some();
            if !is_deleted && server.delete(&held.path(object), object).await? {
                output::complain("note", &format!("deleted {}", named(held, object)?));
            } else if Instant::now() >= release_from {
                release(server, held, object).await?;
            }
            left.push(format!("{} ({})", named(held, object)?, metadata.finalizers.unwrap_or_default().join(", ")));
        }
        if Instant::now() >= until {
            let seconds = timeout.as_secs();
            anyhow::bail!("not deleted after {seconds}s because of other finalizers: {}", left.join("; "));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Deletes the installation: the operator first, so that it adds no new finalizers, then the rest.
async fn delete_installation(server: &Server, found: &Installation, args: &UninstallArgs) -> anyhow::Result<()> {
    let timeout = args.consent.timeout;
    let (operator, rest): (Vec<_>, Vec<_>) =
        found.installed.iter().partition(|(manifest, _)| manifest.kind() == "Deployment");
    for (manifest, live) in operator {
        delete(server, manifest, live).await?;
        wait_until_stopped(server, &args.namespace, timeout).await?;
    }
    let kinds: Vec<&'static FinalizedKind> = found.held.iter().map(|(kind, _)| *kind).collect();
    release_all(server, &kinds, &[], timeout).await?;
    for (manifest, live) in rest {
        delete(server, manifest, live).await?;
        if manifest.is_definition() || manifest.kind() == "Namespace" {
            wait_until_gone(server, manifest, live, timeout).await?;
        }
    }
    Ok(())
}

async fn delete(server: &Server, manifest: &Manifest, live: &Value) -> anyhow::Result<()> {
    if server.delete(&manifest.path(), live).await? {
        output::complain("note", &format!("deleted {manifest}"));
    }
    Ok(())
}

async fn wait_until_gone(server: &Server, manifest: &Manifest, was: &Value, timeout: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + timeout;
    let uid = LiveObject::read(manifest, was)?.metadata.uid;
    while let Some(live) = server.get(&manifest.path()).await? {
        let live = LiveObject::read(manifest, &live)?;
        if live.metadata.uid != uid {
            break;
        }
        if Instant::now() >= until {
            let why: Vec<&str> = live.conditions("True").filter_map(|condition| condition.message.as_deref()).collect();
            let why = if why.is_empty() { "its status gives no reason".to_owned() } else { why.join("; ") };
            anyhow::bail!("{manifest} is not deleted after {}s: {why}", timeout.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn kept(claims: &[Value]) -> String {
    let (count, noun) = (claims.len(), if claims.len() == 1 { "claim was" } else { "claims were" });
    let mut text = format!("{count} {noun} kept, with the data. To delete:\n");
    for command in claim_commands(claims) {
        text.push_str(&format!("  {command}\n"));
    }
    text
}
