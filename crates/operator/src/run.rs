//! Starts and stops the parts of the operator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::BoxFuture;
use stead_client::ClientConfig;
use stead_election::{Election, ElectionRole, LeaseName, Term};
use stead_loops::LoopSettings;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::client::{Cluster, MAX_READ};
use crate::execute::Executor;
use crate::loop_set::LoopSet;
use crate::shared::Shared;
use crate::{definitions, references, services, watch as watches, web};

/// How the operator is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What holds for all loops.
    pub settings: LoopSettings,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The only namespaces that are watched and written; none for all of them.
    pub namespaces: Vec<String>,
    /// Whether there is a leader election. Without one, only one operator may run.
    pub leader_elect: bool,
    /// The address of probes and metrics.
    pub listen: SocketAddr,
    /// How many objects are worked on at the same time.
    pub workers: usize,
    /// How long one request of a watch lasts.
    pub watch_timeout: Duration,
    /// What is run.
    pub loops: LoopSet,
}

/// The name of the Lease.
const LEASE: &str = "stead-operator";

/// How long reconciles in progress may take when the process is told to stop.
const SHUTDOWN: Duration = Duration::from_secs(20);

/// Runs the operator until `stop` completes; then reconciles in progress finish and the Lease is released.
///
/// The futures are boxed so that all of this is compiled in this crate, and not in the program that calls it.
pub fn run(
    config: ClientConfig,
    options: Options,
    stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_until(config, options, stop))
}

async fn run_until(config: ClientConfig, options: Options, stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    // The queue decides when to retry.
    let idle = options.watch_timeout + Duration::from_secs(10);
    let config = config.without_retries().request_timeout(MAX_READ).idle_timeout(idle);
    let client = config.connect()?;
    let shared = Arc::new(Shared::new(options.loops, options.namespaces));
    let listener = tokio::net::TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("listening on {}", options.listen))?;
    info!(version = env!("CARGO_PKG_VERSION"), "probes and metrics on {}", listener.local_addr()?);

    let mut tasks = JoinSet::new();
    let pages = web::pages(shared.clone());
    tasks.spawn(async move {
        if let Err(error) = axum::serve(listener, pages).await {
            warn!("serving probes: {error}");
        }
    });
    tasks.spawn(definitions::keep(client.clone(), shared.clone()));
    for watched in options.loops.watched {
        let scopes = shared.index().scopes(watched);
        for scope in scopes {
            tasks.spawn(watches::keep(client.clone(), watched, scope, options.watch_timeout, shared.clone()));
        }
    }
    let cluster = Cluster::new(client, shared.clone());
    tasks.spawn(references::keep(cluster.clone(), shared.clone()));
    tasks.spawn(services::keep(cluster.clone(), shared.clone()));
    tasks.spawn(terms(shared.clone()));

    let identity = identity();
    let (stopping, stopped) = watch::channel(false);
    let executor = Arc::new(Executor::new(cluster, shared.clone(), options.settings, identity.clone()));
    let mut workers = JoinSet::new();
    for _ in 0..options.workers.max(1) {
        workers.spawn(work(executor.clone(), shared.clone(), stopped.clone()));
    }
    let election = if options.leader_elect {
        let lease = LeaseName { namespace: options.namespace, name: LEASE.into() };
        Some(Election::start(config, lease, identity, shared.clock, shared.leadership.clone())?)
    } else {
        shared.leadership.set(ElectionRole::Leader(Term::Endless));
        None
    };

    let ended = tokio::select! {
        () = stop => Ok(()),
        // They run forever: a part that ends has failed.
        _ = tasks.join_next() => Err(anyhow::anyhow!("a part of the operator ended; see the log")),
        _ = workers.join_next() => Err(anyhow::anyhow!("a worker ended; see the log")),
    };
    info!("stopping");
    // Fails only if all workers have ended.
    let _ = stopping.send(true);
    let last = tokio::time::timeout(SHUTDOWN, async { while workers.join_next().await.is_some() {} }).await;
    if last.is_err() {
        warn!("reconciles in progress did not finish within {} s", SHUTDOWN.as_secs());
        workers.shutdown().await;
    }
    if let Some(election) = election {
        election.end().await;
    }
    tasks.shutdown().await;
    debug!(idle = shared.is_idle(), "stopped");
    ended
}

/// One worker: one object after the other.
async fn work(executor: Arc<Executor<Cluster>>, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    loop {
        let key = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            key = shared.next() => key,
        };
        let ended = executor.look(&key).await;
        shared.end(&key, ended);
    }
}

/// Reconciles everything at the start of each term: the previous leader may have left something half done.
async fn terms(shared: Arc<Shared>) {
    let mut leads = shared.leadership.subscribe();
    let mut synced = false;
    while leads.wait_for(|leads| *leads).await.is_ok() {
        while !synced {
            synced = shared.is_synced();
            if synced {
                info!("every kind has been listed");
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        shared.enqueue_all();
        if leads.wait_for(|leads| !*leads).await.is_err() {
            return;
        }
    }
}

/// An identity that no other process has: the name of the pod or host, the process ID and the time.
fn identity() -> String {
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let host = name("POD_NAME").or_else(|| name("HOSTNAME")).unwrap_or_else(|| "stead".into());
    format!("{host}_{}-{:x}", std::process::id(), jiff::Timestamp::now().as_nanosecond())
}
