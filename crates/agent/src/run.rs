//! Starts and stops the parts of the agent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::BoxFuture;
use stead_client::ClientConfig;
use stead_election::{Candidate, LeaseName, LeaseTiming, run_candidate};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::children::Children;
use crate::cluster::Cluster;
use crate::daemon::Daemon;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::{boot, heals, lead, observe, orders, server, shutdown, web};

/// How long the processes left behind by glusterd may take to stop.
const BRICK_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long releasing the Lease may take.
const LEASE_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The intervals of the election. Agents read the Lease less often than an operator would: there are many of them, and
/// a decision can wait for two seconds more.
const TIMING: LeaseTiming = LeaseTiming { retry: Duration::from_secs(3), ..LeaseTiming::DEFAULT };

/// The time limit of a request to the API server, and of connecting to it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection to the API server may be idle; a watch is shorter.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs the agent until `stop` completes. Then it waits to be detached if the pod was scaled away, releases the Lease,
/// and stops glusterd and its bricks.
///
/// The futures are boxed so that all of this is compiled in this crate, and not in the program that calls it.
pub fn run(
    config: ClientConfig,
    settings: Settings,
    stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_until(config, settings, stop))
}

async fn run_until(config: ClientConfig, settings: Settings, stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    let config = config
        .without_retries()
        .connect_timeout(REQUEST_TIMEOUT)
        .request_timeout(REQUEST_TIMEOUT)
        .idle_timeout(IDLE_TIMEOUT);
    let client = config.connect()?;
    let settings = Arc::new(settings);
    let children = Children::become_subreaper();
    let (daemon, supervised) = Daemon::new(settings.glusterd.clone(), children);
    let cluster =
        Cluster::new(client.clone(), settings.clone()).context("the names of the pool's pods are not valid")?;
    let shared = Arc::new(Shared::new(settings.clone(), cluster.clone(), daemon, children));

    let listener = tokio::net::TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listening on {}", settings.listen))?;
    info!(version = env!("CARGO_PKG_VERSION"), pod = settings.pod.name, "listening on {}", listener.local_addr()?);

    let mut tasks = JoinSet::new();
    let pages = web::pages(shared.clone());
    tasks.spawn(server::serve(listener, pages, server::Limits::DEFAULT));
    tasks.spawn(async move {
        if let Err(error) = children.reap().await {
            warn!("reaping orphans: {error}");
        }
    });
    let supervisor = tokio::spawn(supervised);
    tasks.spawn(async move { cluster.watch_all().await });
    tasks.spawn(observe::run(shared.clone()));

    let (candidacy, receiver) = watch::channel(false);
    let (end_election, ended) = oneshot::channel();
    let lease = LeaseName { namespace: settings.namespace.clone(), name: settings.record() };
    let identity = format!("{}_{}", settings.pod.name, settings.pod.uid);
    let candidate = Candidate::new(identity, TIMING);
    let leadership = shared.leadership.clone();
    let election = tokio::spawn(run_candidate(client, lease, candidate, shared.clock, leadership, receiver, ended));

    let work = {
        let shared = shared.clone();
        async move {
            boot::prepare(&shared).await?;
            shared.set_doing(None);
            shared.daemon.start();
            tokio::join!(
                heals::run(shared.clone()),
                orders::run(shared.clone()),
                lead::run(shared.clone()),
                lead::update_candidacy(shared.clone(), candidacy),
            );
            anyhow::Ok(())
        }
    };
    let ending = async {
        stop.await;
        shutdown::wait_to_be_detached(&shared).await;
    };
    let result = tokio::select! {
        () = ending => Ok(()),
        // All of them run for ever: if one ends, it has failed.
        _ = tasks.join_next() => Err(anyhow::anyhow!("a part of the agent ended; see the log")),
        ended = work => ended.and_then(|()| Err(anyhow::anyhow!("a part of the agent ended; see the log"))),
    };
    info!("stopping");
    // If nothing receives it, the election has ended already.
    let _ = end_election.send(());
    let _ = tokio::time::timeout(LEASE_RELEASE_TIMEOUT, election).await;
    shared.daemon.stop().await;
    children.terminate_orphans(BRICK_STOP_TIMEOUT).await;
    supervisor.abort();
    tasks.shutdown().await;
    result
}
