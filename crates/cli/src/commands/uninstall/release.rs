//! Removing Stead's finalizers: before CRDs are deleted, and before Helm deletes the operator.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stead_manifests::removal::{FINALIZED_KINDS, FinalizedKind};
use stead_manifests::{DEPLOYMENT, is_ours};

use super::{POLL_INTERVAL, named};
use crate::args::UninstallArgs;
use crate::connect::connect;
use crate::consent;
use crate::live_object::LiveObject;
use crate::output::{self, Outcome};
use crate::server::Server;

/// Removes our finalizers from an object. If it has changed meanwhile, the next attempt does it.
pub(super) async fn release(server: &Server, held: &FinalizedKind, object: &Value) -> anyhow::Result<()> {
    let Some(patch) = held.release(object) else { return Ok(()) };
    if server.patch(&held.path(object), &patch).await? {
        output::complain("note", &format!("removed the finalizers of {}", named(held, object)?));
    }
    Ok(())
}

/// Removes our finalizers from all objects of these kinds. Returns those that still have some after the time.
pub(super) async fn release_all(
    server: &Server,
    kinds: &[&'static FinalizedKind],
    namespaces: &[String],
    timeout: Duration,
) -> anyhow::Result<Vec<String>> {
    let until = Instant::now() + timeout;
    loop {
        let mut left = Vec::new();
        for kind in kinds {
            for object in objects(server, kind, namespaces).await?.iter().filter(|o| kind.release(o).is_some()) {
                release(server, kind, object).await?;
                left.push(named(kind, object)?);
            }
        }
        if left.is_empty() || Instant::now() >= until {
            return Ok(left);
        }
    }
}

/// The objects of a kind in these namespaces; without any, in all.
async fn objects(server: &Server, kind: &FinalizedKind, namespaces: &[String]) -> anyhow::Result<Vec<Value>> {
    if namespaces.is_empty() {
        return server.list(&kind.collection()).await;
    }
    let mut objects = Vec::new();
    for namespace in namespaces {
        objects.extend(server.list(&kind.collection_in(namespace)).await?);
    }
    Ok(objects)
}

/// Waits until the operator has no pods, or the time has passed.
pub(super) async fn wait_until_stopped(server: &Server, namespace: &str, timeout: Duration) -> anyhow::Result<()> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3D{DEPLOYMENT}");
    let until = Instant::now() + timeout;
    while Instant::now() < until && !server.list(&pods).await?.is_empty() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// `stead uninstall --release-finalizers`: stops the operator, removes its finalizers, and deletes nothing. It reads and
/// writes no more than that, because a hook of the Helm chart runs it with permissions of its own.
pub(super) async fn run(args: &UninstallArgs) -> anyhow::Result<Outcome> {
    let server = Server::new(connect(&args.connect).await?);
    let kinds = our_kinds(&server).await?;
    let mut held = Vec::new();
    for kind in &kinds {
        for object in objects(&server, kind, &args.namespaces).await?.iter().filter(|o| kind.release(o).is_some()) {
            held.push(named(kind, object)?);
        }
    }
    output::text(&render(&held, server.address()))?;
    if args.consent.dry_run {
        return Ok(Outcome::Yes);
    }
    if !consent::given(&args.consent, "Stop the operator and remove its finalizers?")? {
        output::complain("note", "nothing was changed");
        return Ok(Outcome::No);
    }
    let timeout = args.consent.timeout;
    stop(&server, &args.namespace, timeout).await?;
    let left = release_all(&server, &kinds, &args.namespaces, timeout).await?;
    anyhow::ensure!(left.is_empty(), "these objects still have finalizers: {}", left.join(", "));
    Ok(Outcome::Yes)
}

/// The kinds whose CRD is Stead's.
async fn our_kinds(server: &Server) -> anyhow::Result<Vec<&'static FinalizedKind>> {
    let mut ours = Vec::new();
    for kind in &FINALIZED_KINDS {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", kind.definition);
        if server.get(&path).await?.is_some_and(|live| is_ours(&live)) {
            ours.push(kind);
        }
    }
    Ok(ours)
}

/// Scales the operator to zero, so that it adds no new finalizers.
async fn stop(server: &Server, namespace: &str, timeout: Duration) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{DEPLOYMENT}");
    if let Some(live) = server.get(&path).await? {
        let uid = LiveObject::read(&path, &live)?.metadata.uid;
        let patch = json!({"metadata": {"uid": uid}, "spec": {"replicas": 0}});
        if server.patch(&path, &patch).await? {
            output::complain("note", &format!("scaled deployment/{DEPLOYMENT} to 0"));
        }
    }
    wait_until_stopped(server, namespace, timeout).await
}

fn render(held: &[String], address: &str) -> String {
    let mut text = format!("Stop the operator in {address} and remove its finalizers from {} objects.\n", held.len());
    for object in held {
        text.push_str(&format!("  patch   {object}\n"));
    }
    text
}
