//! The operator as a whole: what is started, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use stead_election::{Election, LeaseName, Standing, Term};
use stead_loops::Settings;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::client::Cluster;
use crate::execute::Executor;
use crate::logic::Logic;
use crate::shared::Shared;
use crate::{definitions, references, watch as watches, web};

/// How the operator is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What holds for all loops.
    pub settings: Settings,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The only namespaces that are watched and written; none for all of them.
    pub namespaces: Vec<String>,
    /// Whether there is an election; without one, nobody else may run.
    pub leader_elect: bool,
    /// Where probes and Prometheus find it.
    pub listen: SocketAddr,
    /// How many objects are worked on at the same time.
    pub workers: usize,
    /// After how long a watch is begun anew.
    pub watch_timeout: Duration,
    /// What is run.
    pub logic: Logic,
}

/// The name of the Lease.
const LEASE: &str = "stead-operator";

/// How long work that is under way may still take when the process is told to end.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// Runs the operator until `stop` comes: then writes that are under way are finished, and the Lease is given back.
pub async fn run(mut config: kube::Config, options: Options, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    // Our own queue knows when to try again.
    config.default_retry = false;
    config.read_timeout = Some(options.watch_timeout + Duration::from_secs(10));
    let client = Client::try_from(config.clone()).context("making a client")?;
    let shared = Arc::new(Shared::new(options.logic, options.namespaces));
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
    for watched in options.logic.watched {
        let scopes = shared.index().scopes(watched);
        for scope in scopes {
            tasks.spawn(watches::keep(client.clone(), watched, scope, options.watch_timeout, shared.clone()));
        }
    }
    let cluster = Cluster::new(client, shared.clone());
    tasks.spawn(references::keep(cluster.clone(), shared.clone()));
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
        Some(Election::begin(config, lease, identity, shared.clock, shared.leadership.clone())?)
    } else {
        shared.leadership.set(Standing::Leads(Term::Endless));
        None
    };

    let ended = tokio::select! {
        () = stop => Ok(()),
        // All of them run for ever: one that ends has failed.
        _ = tasks.join_next() => Err(anyhow::anyhow!("a part of the operator ended; see the log")),
        _ = workers.join_next() => Err(anyhow::anyhow!("a worker ended; see the log")),
    };
    info!("ending");
    // Where there is no worker left, there is nobody to tell.
    let _ = stopping.send(true);
    let last = tokio::time::timeout(LAST_WORDS, async { while workers.join_next().await.is_some() {} }).await;
    if last.is_err() {
        warn!("work under way did not end within {} s", LAST_WORDS.as_secs());
        workers.shutdown().await;
    }
    if let Some(election) = election {
        election.end().await;
    }
    tasks.shutdown().await;
    debug!(idle = shared.is_idle(), "ended");
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

/// At the beginning of each term everything is looked at once: who led before may have left something half done.
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

/// A name that no other process has: the pod's or the host's, this process's id and the time.
fn identity() -> String {
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let host = name("POD_NAME").or_else(|| name("HOSTNAME")).unwrap_or_else(|| "stead".into());
    format!("{host}_{}-{:x}", std::process::id(), jiff::Timestamp::now().as_nanosecond())
}
